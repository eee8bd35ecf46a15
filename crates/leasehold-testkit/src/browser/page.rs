//! One window of a browser: what a person does with it, and what it complained about.

use std::time::{Duration, Instant};

use leasehold_client::{Client, Method, Request};
use serde_json::{Value, json};

/// How long a page may take for anything before the test gives up. Not a measurement.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_PAUSE: Duration = Duration::from_millis(25);

/// What the page is shown on.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Whether the person likes it dark.
    pub dark: bool,
    /// Whether it is a phone: touch, and pixels twice as fine.
    pub phone: bool,
}

impl Screen {
    /// A desk.
    pub const DESKTOP: Self = Self { width: 1280, height: 800, dark: false, phone: false };
    /// A phone.
    pub const PHONE: Self = Self { width: 390, height: 844, dark: false, phone: true };

    /// The same in the dark.
    pub const fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

/// A window.
#[derive(Debug)]
pub struct Page {
    client: Client,
    session: String,
    /// Parts of messages that a test expects and that are therefore no complaint.
    expected: Vec<String>,
    /// What the browser has said so far that nobody expected.
    complaints: Vec<String>,
}

impl Page {
    pub(super) async fn new(client: Client, session: String, screen: Screen) -> Self {
        let mut page = Self { client, session, expected: Vec::new(), complaints: Vec::new() };
        page.show_on(screen).await;
        page
    }

    /// Changes the screen.
    pub async fn show_on(&mut self, screen: Screen) {
        let Screen { width, height, dark, phone } = screen;
        let scale = if phone { 2 } else { 1 };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        self.devtools("Emulation.setTouchEmulationEnabled", json!({"enabled": phone})).await;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// For a person who is made unwell by motion.
    pub async fn without_motion(&mut self) {
        let features = json!([{"name": "prefers-reduced-motion", "value": "reduce"}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Opens an address and waits until it is loaded.
    pub async fn open(&mut self, url: &str) {
        self.command(Method::POST, "/url", json!({"url": url})).await;
    }

    /// Loads it again.
    pub async fn reload(&mut self) {
        self.command(Method::POST, "/refresh", json!({})).await;
    }

    /// Opens a second tab of the same browser and goes on in it. Gives back both, the old one first.
    pub async fn second_tab(&mut self) -> (String, String) {
        let first = self.command(Method::GET, "/window", Value::Null).await;
        let second = self.command(Method::POST, "/window/new", json!({"type": "tab"})).await;
        let (first, second) = (text(&first), text(&second["handle"]));
        self.to_tab(&second).await;
        (first, second)
    }

    /// Goes on in this tab.
    pub async fn to_tab(&mut self, tab: &str) {
        self.command(Method::POST, "/window", json!({"handle": tab})).await;
    }

    /// Runs a script, which may `return` something and `await` in it.
    pub async fn run(&mut self, script: &str) -> Value {
        let wrapped = format!(
            "const done = arguments[arguments.length - 1]; (async () => {{ {script} }})().then((value) => done({{ value }}), \
             (error) => done({{ error: String(error) }}));"
        );
        let answer =
            self.command(Method::POST, "/execute/async", json!({"script": wrapped, "args": []})).await;
        if let Some(error) = answer["error"].as_str() {
            panic!("the script failed: {error}\n{script}");
        }
        answer["value"].clone()
    }

    /// Waits until an expression of the page is true; panics with what the page shows when it does not become so.
    ///
    /// An expression that fails is not true yet: a page follows a click to another view only some moments later.
    pub async fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let script =
                format!("try {{ return Boolean({expression}); }} catch (error) {{ return String(error); }}");
            let answer = self.run(&script).await;
            if answer == Value::Bool(true) {
                return;
            }
            if Instant::now() >= deadline {
                let shown = self.run("return document.body.innerText;").await;
                let picture = self.keep_picture("until").await;
                let log = self.log().await;
                panic!(
                    "never true, at last {answer}: {expression}\n{picture}\n--- the page ---\n{}\n--- its log ---\n{log:#?}",
                    text(&shown)
                );
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }

    /// Waits until an element is there and can be seen.
    pub async fn until_there(&mut self, selector: &str) {
        self.until(&format!("document.querySelector({selector:?})?.checkVisibility()")).await;
    }

    /// Waits until the page says this somewhere.
    pub async fn until_says(&mut self, words: &str) {
        self.until(&format!("document.body.innerText.includes({words:?})")).await;
    }

    /// What an element says.
    pub async fn text_of(&mut self, selector: &str) -> String {
        self.until_there(selector).await;
        text(&self.run(&format!("return document.querySelector({selector:?}).textContent;")).await)
    }

    /// Clicks an element as a person would, once it is there and takes clicks.
    pub async fn click(&mut self, selector: &str) {
        self.until(&format!(
            "document.querySelector({selector:?}) && !document.querySelector({selector:?}).disabled"
        ))
        .await;
        let found = json!({"using": "css selector", "value": selector});
        let element = self.command(Method::POST, "/element", found).await;
        let id = element.as_object().and_then(|object| object.values().next()).map(text).unwrap_or_default();
        self.command(Method::POST, &format!("/element/{id}/click"), json!({})).await;
    }

    /// Clicks at a place of the window.
    pub async fn click_at(&mut self, at: (i64, i64)) {
        self.drag(at, at).await;
    }

    /// Drags with the mouse.
    pub async fn drag(&mut self, from: (i64, i64), to: (i64, i64)) {
        self.point("mouse", &[[from, to]]).await;
    }

    /// Turns the mouse's wheel at a place; upwards is negative.
    pub async fn turn_wheel(&mut self, at: (i64, i64), by: i64) {
        let steps =
            json!([{"type": "scroll", "x": at.0, "y": at.1, "deltaX": 0, "deltaY": by, "duration": 0}]);
        let wheel = json!({"type": "wheel", "id": "wheel", "actions": steps});
        self.command(Method::POST, "/actions", json!({"actions": [wheel]})).await;
    }

    /// Taps with a finger.
    pub async fn tap(&mut self, at: (i64, i64)) {
        self.point("touch", &[[at, at]]).await;
    }

    /// Moves a finger over the screen.
    pub async fn swipe(&mut self, from: (i64, i64), to: (i64, i64)) {
        self.point("touch", &[[from, to]]).await;
    }

    /// Puts two fingers down left and right of a place and moves them, from one distance to another.
    pub async fn pinch(&mut self, at: (i64, i64), from: i64, to: i64) {
        let finger = |side: i64| [(at.0 + side * from / 2, at.1), (at.0 + side * to / 2, at.1)];
        self.point("touch", &[finger(-1), finger(1)]).await;
    }

    /// Puts pointers of a kind down, all at once, moves each from one place to another, and lifts them.
    async fn point(&mut self, kind: &str, ways: &[[(i64, i64); 2]]) {
        let pointers = ways.iter().enumerate().map(|(number, [from, to])| {
            let stays = from == to;
            let steps = json!([
                {"type": "pointerMove", "duration": 0, "x": from.0, "y": from.1},
                {"type": "pointerDown", "button": 0},
                {"type": "pointerMove", "duration": if stays { 0 } else { 100 }, "x": to.0, "y": to.1},
                {"type": "pointerUp", "button": 0},
            ]);
            let id = format!("{kind} {number}");
            json!({"type": "pointer", "id": id, "parameters": {"pointerType": kind}, "actions": steps})
        });
        let pointers: Vec<_> = pointers.collect();
        self.command(Method::POST, "/actions", json!({"actions": pointers})).await;
    }

    /// Presses keys one after the other, wherever the focus is: `Tab`, `Enter`, `ArrowLeft` and so on; a letter is itself.
    pub async fn press(&mut self, keys: &[&str]) {
        let mut steps = Vec::new();
        for key in keys {
            let code = Self::key(key);
            steps.push(json!({"type": "keyDown", "value": code}));
            steps.push(json!({"type": "keyUp", "value": code}));
        }
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": steps});
        self.command(Method::POST, "/actions", json!({"actions": [keyboard]})).await;
    }

    /// WebDriver's letter for a key.
    fn key(name: &str) -> &str {
        match name {
            "Tab" => "\u{E004}",
            "Enter" => "\u{E007}",
            "Space" => " ",
            "PageUp" => "\u{E00E}",
            "PageDown" => "\u{E00F}",
            "End" => "\u{E010}",
            "Home" => "\u{E011}",
            "ArrowLeft" => "\u{E012}",
            "ArrowUp" => "\u{E013}",
            "ArrowRight" => "\u{E014}",
            "ArrowDown" => "\u{E015}",
            other => other,
        }
    }

    /// Types into an element, in place of what was there.
    pub async fn fill(&mut self, selector: &str, words: &str) {
        self.click(selector).await;
        self.run(&format!("document.querySelector({selector:?}).value = '';")).await;
        let letters: Vec<String> = words.chars().map(String::from).collect();
        self.press(&letters.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// A picture of the window, as PNG.
    pub async fn picture(&mut self) -> Vec<u8> {
        let shot = self.devtools("Page.captureScreenshot", json!({"format": "png"})).await;
        decode_base64(shot["data"].as_str().unwrap_or_default())
    }

    /// Something that the browser may complain about without failing the test: a part of the message.
    pub fn expect_in_log(&mut self, words: &str) {
        self.expected.push(words.to_owned());
    }

    /// Panics if the browser complained about anything: a script that failed, a policy that was violated, a file that was
    /// not there. Every test of a page ends with this.
    pub async fn assert_no_complaints(&mut self) {
        let complaints = self.complaints().await;
        assert!(complaints.is_empty(), "the browser complained:\n{}", complaints.join("\n"));
    }

    /// What the browser has complained about so far, without what was expected.
    pub async fn complaints(&mut self) -> &[String] {
        self.log().await;
        &self.complaints
    }

    /// Reads the log, and remembers what nobody expected.
    async fn log(&mut self) -> Vec<String> {
        let entries = self.command(Method::POST, "/se/log", json!({"type": "browser"})).await;
        let mut all = Vec::new();
        for entry in entries.as_array().into_iter().flatten() {
            let message = text(&entry["message"]);
            let line = format!("{} {}: {message}", text(&entry["level"]), text(&entry["source"]));
            let grave = matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
            if grave && !self.expected.iter().any(|expected| message.contains(expected)) {
                self.complaints.push(line.clone());
            }
            all.push(line);
        }
        all
    }

    /// Keeps a picture for whoever looks into a failure, and says where.
    async fn keep_picture(&mut self, name: &str) -> String {
        let path = std::env::temp_dir().join(format!("leasehold-{name}-{}.png", std::process::id()));
        let picture = self.picture().await;
        match std::fs::write(&path, picture) {
            Ok(()) => format!("picture: {}", path.display()),
            Err(error) => format!("no picture: {error}"),
        }
    }

    async fn devtools(&mut self, name: &str, parameters: Value) -> Value {
        self.command(Method::POST, "/goog/cdp/execute", json!({"cmd": name, "params": parameters})).await
    }

    async fn command(&mut self, method: Method, path: &str, body: Value) -> Value {
        let mut request = Request::new(method, format!("/session/{}{path}", self.session));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = self.client.send(request).await;
        let answer = answer.unwrap_or_else(|error| panic!("chromedriver did not answer to {path}: {error}"));
        let mut body: Value = answer.json().expect("chromedriver speaks JSON");
        let value = body["value"].take();
        assert!(answer.status == 200, "{path}: {}", value["message"]);
        value
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Pictures come in base64, and this is all that needs it.
fn decode_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let number = group.iter().fold(0_u32, |number, digit| number << 6 | u32::from(*digit));
        let number = number << (6 * (4 - group.len()));
        let whole = [(number >> 16) as u8, (number >> 8) as u8, number as u8];
        bytes.extend_from_slice(&whole[..group.len() - 1]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_with_and_without_a_rest() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmE=", "fooba")]
        {
            assert_eq!(decode_base64(text), bytes.as_bytes(), "{text}");
        }
    }
}
