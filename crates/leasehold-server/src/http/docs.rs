//! The API's description and a page to read it, both without anything from elsewhere.

use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use super::Encoded;

/// The page. Its script is ours to serve, and asks nobody else for anything.
const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leasehold API</title>
<link rel="icon" href="/web/icon.svg" type="image/svg+xml">
</head>
<body>
<script id="api-reference" data-url="/openapi.json" data-configuration='{"withDefaultFonts":false,"telemetry":false,"agent":{"disabled":true},"hideClientButton":true,"showDeveloperTools":"never"}'></script>
<script src="/docs/reference.js"></script>
</body>
</html>
"#;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      font-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The OpenAPI document, made from the code.
pub(crate) async fn openapi(headers: HeaderMap) -> Response {
    static DOCUMENT: OnceLock<Encoded> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Encoded::new(crate::openapi().into()));
    unguessed(document.response(&headers, "application/json"))
}

/// The page.
pub(crate) async fn page() -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let mut response = unguessed((kind, PAGE).into_response());
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// The page's script.
pub(crate) async fn script(headers: HeaderMap) -> Response {
    static SCRIPT: OnceLock<Encoded> = OnceLock::new();
    let script = SCRIPT.get_or_init(|| {
        Encoded::new(scalar_api_reference::get_asset("scalar.js").unwrap_or_default().into())
    });
    unguessed(script.response(&headers, "text/javascript; charset=utf-8"))
}

/// What it is said to be is what it is.
fn unguessed(mut response: Response) -> Response {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
