//! The API's description and a page to read it, both without anything from elsewhere.

use std::io::Write as _;
use std::sync::OnceLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};

/// The page. Its script is ours to serve, and asks nobody else for anything.
const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leasehold API</title>
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
pub(crate) async fn openapi() -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| crate::openapi().into());
    with_type(document.clone().into_response(), "application/json")
}

/// The page.
pub(crate) async fn page() -> Response {
    let mut response = with_type(PAGE.into_response(), "text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// The page's script, compressed once.
pub(crate) async fn script(headers: HeaderMap) -> Response {
    static PLAIN: OnceLock<Bytes> = OnceLock::new();
    static COMPRESSED: OnceLock<Bytes> = OnceLock::new();
    let plain =
        || PLAIN.get_or_init(|| scalar_api_reference::get_asset("scalar.js").unwrap_or_default().into());
    let accepted =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !super::accepts_gzip(accepted) {
        return with_type(plain().clone().into_response(), "text/javascript; charset=utf-8");
    }
    let compressed = COMPRESSED.get_or_init(|| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(plain()).and_then(|()| encoder.finish());
        written.expect("writing into memory does not fail").into()
    });
    let mut response = with_type(compressed.clone().into_response(), "text/javascript; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

fn with_type(mut response: Response, kind: &'static str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    response
}
