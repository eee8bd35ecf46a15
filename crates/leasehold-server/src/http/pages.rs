//! The web pages: files that are part of the program, sent with a tag and compressed, under a policy that lets nothing
//! in from elsewhere.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{Encoded, json};
use crate::app::App;
use crate::config::{Checkout, ServerConfig};
use crate::problem::ApiError;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// What the buyer's page has in its first line, and what stands there instead in the demonstration.
const CHECKOUT_NONE: &str = "data-checkout=\"none\"";
const CHECKOUT_STAND_IN: &str = "data-checkout=\"stand-in\"";

/// The same in the console, for the button that starts a rush.
const RUSH_NONE: &str = "data-rush=\"none\"";
const RUSH_READY: &str = "data-rush=\"ready\"";

/// Scripts, styles and answers of this server only, and markup is never made of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

macro_rules! files {
    ($($name:literal: $kind:expr),+ $(,)?) => {
        [$(($name, $kind, include_bytes!(concat!("../../web/", $name)))),+]
    };
}

/// The folder `web`. What is not listed here is not served; a test compares.
const FILES: &[(&str, &str, &[u8])] = &files![
    "api.js": SCRIPT,
    "bank.js": SCRIPT,
    "base.css": STYLE,
    "cart.js": SCRIPT,
    "chart.js": SCRIPT,
    "choose-view.js": SCRIPT,
    "console-blocks.js": SCRIPT,
    "console-cluster.js": SCRIPT,
    "console-dialog.js": SCRIPT,
    "console-health.js": SCRIPT,
    "console-locks.js": SCRIPT,
    "console-metrics.js": SCRIPT,
    "console-rush.js": SCRIPT,
    "console-sales.js": SCRIPT,
    "console-seats.js": SCRIPT,
    "console-tally.js": SCRIPT,
    "console.css": STYLE,
    "console.html": HTML,
    "console.js": SCRIPT,
    "dom.js": SCRIPT,
    "event-first.js": SCRIPT,
    "event.css": STYLE,
    "event.html": HTML,
    "event.js": SCRIPT,
    "hold-view.js": SCRIPT,
    "icon.svg": IMAGE,
    "lobby.css": STYLE,
    "lobby.html": HTML,
    "lobby.js": SCRIPT,
    "log-words.js": SCRIPT,
    "pay-view.js": SCRIPT,
    "seat-map-cursor.js": SCRIPT,
    "seat-map-layout.js": SCRIPT,
    "seat-map-live.js": SCRIPT,
    "seat-map-nearby.js": SCRIPT,
    "seat-map-painter.js": SCRIPT,
    "seat-map-style.js": SCRIPT,
    "seat-map-view.js": SCRIPT,
    "seat-map.js": SCRIPT,
    "words.js": SCRIPT,
];

/// The files, ready to be sent.
#[derive(Debug)]
pub(crate) struct Pages(Vec<Page>);

#[derive(Debug)]
struct Page {
    name: &'static str,
    kind: &'static str,
    content: Encoded,
}

/// `/`: what is on.
pub(crate) async fn lobby(State(app): State<App>, headers: HeaderMap) -> Response {
    app.pages.send("lobby.html", &headers)
}

/// `/events/{event}`: the buyer's page. Which event it is, and whether there is one, the page finds out itself.
pub(crate) async fn event(State(app): State<App>, Path(_): Path<String>, headers: HeaderMap) -> Response {
    app.pages.send("event.html", &headers)
}

/// `/console`: the operator's page.
pub(crate) async fn console(State(app): State<App>, headers: HeaderMap) -> Response {
    let elsewhere = app.config.console_at.map(|address| address.to_string());
    match elsewhere.filter(|own| headers.get(header::HOST).is_none_or(|host| host != own.as_str())) {
        Some(own) => Redirect::temporary(&format!("http://{own}/console")).into_response(),
        None => app.pages.send("console.html", &headers),
    }
}

/// `/console/rush`: how the rush stands that was started from the console. Only in the demonstration.
pub(crate) async fn rush(State(app): State<App>) -> Result<Response, ApiError> {
    app.config.rush.as_ref().ok_or_else(ApiError::not_found)?;
    Ok(json(StatusCode::OK, &app.rush.show()))
}

/// Starts one, unless one goes on.
pub(crate) async fn start_rush(State(app): State<App>) -> Result<Response, ApiError> {
    let rush = app.config.rush.as_ref().ok_or_else(ApiError::not_found)?;
    app.rush.start(rush);
    Ok(json(StatusCode::ACCEPTED, &app.rush.show()))
}

/// `/web/{file}`: what the pages are made of.
pub(crate) async fn file(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let known = FILES.iter().find(|(known, kind, _)| *known == name && *kind != HTML);
    let (name, ..) = known.ok_or_else(ApiError::not_found)?;
    Ok(app.pages.send(name, &headers))
}

impl Pages {
    /// Compresses everything once.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let page = |(name, kind, bytes): &(&'static str, &'static str, &'static [u8])| {
            let text = |from, to| Encoded::new(String::from_utf8_lossy(bytes).replace(from, to).into());
            let content = match *name {
                "event.html" if config.checkout == Checkout::StandIn => {
                    text(CHECKOUT_NONE, CHECKOUT_STAND_IN)
                }
                "console.html" if config.rush.is_some() => text(RUSH_NONE, RUSH_READY),
                _ => Encoded::new(Bytes::from_static(bytes)),
            };
            Page { name, kind, content }
        };
        Self(FILES.iter().map(page).collect())
    }

    fn send(&self, name: &str, headers: &HeaderMap) -> Response {
        let page = self.0.iter().find(|page| page.name == name).expect("only listed files are asked for");
        let mut response = page.content.response(headers, page.kind);
        let sent = response.headers_mut();
        let mut say = |name: HeaderName, value| sent.insert(name, HeaderValue::from_static(value));
        say(header::CONTENT_SECURITY_POLICY, POLICY);
        say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        say(header::REFERRER_POLICY, "no-referrer");
        say(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        say(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_and_says_what_it_is_for() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let entries = std::fs::read_dir(folder).unwrap();
        let there: BTreeSet<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(there, listed);
        for (name, kind, bytes) in FILES {
            let begins = match *kind {
                SCRIPT => bytes.starts_with(b"// "),
                STYLE => bytes.starts_with(b"/* "),
                _ => true,
            };
            assert!(begins, "{name} does not begin by saying what it is for");
        }
    }

    #[test]
    fn only_the_demonstration_has_a_stand_in_for_payments() {
        let page = |checkout| {
            let pages = Pages::new(&ServerConfig { checkout, ..ServerConfig::default() });
            let page = pages.0.iter().find(|page| page.name == "event.html").unwrap();
            String::from_utf8(page.content.plain().to_vec()).unwrap()
        };
        assert!(page(Checkout::None).contains(CHECKOUT_NONE));
        let demonstration = page(Checkout::StandIn);
        assert!(demonstration.contains(CHECKOUT_STAND_IN) && !demonstration.contains(CHECKOUT_NONE));
    }

    #[test]
    fn the_files_never_make_markup_of_text_and_load_nothing_from_elsewhere() {
        for (name, kind, bytes) in FILES {
            let text = String::from_utf8_lossy(bytes);
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(word), "{name} has {word}");
            }
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            assert!(*kind == IMAGE || !elsewhere.contains("://"), "{name} names an address");
        }
    }
}
