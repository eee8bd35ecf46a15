//! A real browser: Debian's Chromium behind its own driver, on loopback, without a window.
//!
//! The driver speaks WebDriver, which is JSON over HTTP, so the client of this repository is all that is needed to talk
//! to it. Each [`Browser`] is a driver with its own Chromium and an empty profile: two of them are two people.

mod page;

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_client::{Client, Request};
use rustix::process::Signal;
use serde_json::{Value, json};

pub use page::{Page, Screen};

use crate::launch::free_address;
use crate::signals;

/// How long the driver may take to listen.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// How long one command may take; a busy machine starts Chromium slowly.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(120);
/// Between asking for a free port and using it another process may take it.
const PORT_TRIES_MAX: usize = 5;

/// A driver and its Chromium. Both are killed when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a driver; panics and says what to install when there is none.
    pub async fn start() -> Self {
        for _ in 1..PORT_TRIES_MAX {
            if let Some(browser) = Self::try_start().await {
                return browser;
            }
        }
        Self::try_start().await.expect("chromedriver did not get a port, several times in a row")
    }

    async fn try_start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary directory for the browser's profile");
        let address = free_address();
        let port = address.rsplit(':').next().unwrap_or_default();
        let log = File::create(folder.path().join("driver.log")).expect("the driver's log can be created");
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be opened twice"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot run chromedriver: {error}\ninstall the Debian packages chromium and chromium-driver")
            });
        let mut browser = Self { driver, address, folder };
        let mut client = Client::new(&browser.address);
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            if matches!(browser.driver.try_wait(), Ok(Some(_))) {
                return None;
            }
            if client.send(Request::get("/status")).await.is_ok_and(|answer| answer.status == 200) {
                return Some(browser);
            }
            assert!(Instant::now() < deadline, "chromedriver does not answer within {START_TIME_MAX:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A fresh window of this size.
    pub async fn page(&self, screen: Screen) -> Page {
        let profile = self.folder.path().join("profile");
        let arguments = [
            "--headless=new".to_owned(),
            // Tests run as root in containers, where the sandbox cannot be set up; only our own pages are opened.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={},{}", screen.width, screen.height),
            format!("--user-data-dir={}", profile.display()),
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let mut client = Client::new(&self.address).with_timeout(COMMAND_TIME_MAX);
        let answer = client.send(Request::post("/session", &capabilities)).await;
        let answer = answer.unwrap_or_else(|error| panic!("chromedriver gives no session: {error}"));
        let body: Value = answer.json().expect("chromedriver speaks JSON");
        let Some(session) = body["value"]["sessionId"].as_str() else {
            panic!("Chromium did not start: {}\n{}", body["value"]["message"], self.log());
        };
        Page::new(client, session.to_owned(), screen).await
    }

    fn log(&self) -> String {
        signals::read_lossy(&self.folder.path().join("driver.log"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium is the driver's child and outlives it: all of them have to go, youngest first.
        let mut family = vec![self.driver.id()];
        let mut place = 0;
        while place < family.len() {
            family.extend(signals::children(family[place]));
            place += 1;
        }
        for pid in family.iter().skip(1).rev() {
            signals::send(*pid, Signal::KILL);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        for pid in family.iter().skip(1) {
            signals::wait_until_gone(*pid);
        }
    }
}
