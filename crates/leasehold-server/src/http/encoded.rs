//! An answer that is made once and sent often: plain and compressed, with a tag by which a client knows it again.

use std::io::Write as _;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

/// Content in both forms.
#[derive(Debug)]
pub(crate) struct Encoded {
    plain: Bytes,
    compressed: Bytes,
    tag: String,
}

impl Encoded {
    /// What seldom changes: compressed well, with a tag made of its content.
    pub(crate) fn new(plain: Bytes) -> Self {
        let digest = Sha256::digest(&plain);
        let tag: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Self::tagged(plain, &tag, Compression::default())
    }

    /// The same with a tag that is known already, and as much work as it is worth.
    pub(crate) fn tagged(plain: Bytes, tag: &str, work: Compression) -> Self {
        let compressed = gzip(&plain, work);
        // Weak, because both forms have it.
        Self { plain, compressed, tag: format!("W/\"{tag}\"") }
    }

    #[cfg(test)]
    pub(crate) fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The content, or 304 when the client has it.
    pub(crate) fn response(&self, headers: &HeaderMap, kind: &'static str) -> Response {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let unchanged = text(header::IF_NONE_MATCH)
            .is_some_and(|known| known.split(',').any(|one| one.trim() == self.tag || one.trim() == "*"));
        let compress = super::accepts_gzip(text(header::ACCEPT_ENCODING).unwrap_or_default());
        let mut response = match (unchanged, compress) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => self.compressed.clone().into_response(),
            (false, false) => self.plain.clone().into_response(),
        };
        let sent = response.headers_mut();
        sent.insert(
            header::ETAG,
            HeaderValue::from_str(&self.tag).expect("tags are made of digits and letters"),
        );
        // Kept by the client, and asked for again each time: a new program has new pages at the same address.
        sent.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        sent.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if !unchanged {
            sent.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            if compress {
                sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
        response
    }
}

/// Compresses an answer.
pub(crate) fn gzip(plain: &[u8], work: Compression) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), work);
    let compressed = encoder.write_all(plain).and_then(|()| encoder.finish());
    compressed.expect("writing into memory does not fail").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn it_is_compressed_for_those_who_can_and_not_sent_to_those_who_have_it() {
        let content = Encoded::new(Bytes::from(vec![b'a'; 10_000]));
        let plain = content.response(&HeaderMap::new(), "text/css");
        assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
        let compressed = content.response(&asked(header::ACCEPT_ENCODING, "br, gzip"), "text/css");
        assert_eq!(compressed.headers()[header::CONTENT_ENCODING], "gzip");
        assert!(content.compressed.len() < 200);
        let known = content.response(&asked(header::IF_NONE_MATCH, &content.tag), "text/css");
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        let other = content.response(&asked(header::IF_NONE_MATCH, "W/\"other\""), "text/css");
        assert_eq!(other.status(), StatusCode::OK);
    }
}
