//! `Idempotency-Key`: which request this is, and whether it was made before.

use bytes::Bytes;
use http::{HeaderMap, Method};
use leasehold_api::{Code, IDEMPOTENCY_KEY};
use leasehold_engine::{IdempotencyKey, SecretKey};
use sha2::{Digest, Sha256};

use crate::problem::ApiError;

/// Bytes of a key.
const KEY_BYTES_MAX: usize = 255;

/// The request's key, hashed with its route and its body; none when it has none. A hold's id ends like the hash, so that is one which
/// nobody can look for without the server's own key.
pub(crate) fn key(
    secret: &SecretKey,
    headers: &HeaderMap,
    method: &Method,
    path: &str,
    body: &Bytes,
    required: bool,
) -> Result<Option<IdempotencyKey>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return if required { Err(ApiError::new(Code::IdempotencyMissing)) } else { Ok(None) };
    };
    let bytes = value.as_bytes();
    let valid = !bytes.is_empty() && bytes.len() <= KEY_BYTES_MAX && bytes.iter().all(u8::is_ascii_graphic);
    if !valid || values.next().is_some() {
        return Err(ApiError::new(Code::IdempotencyInvalid).detail("1 to 255 visible ASCII characters, once"));
    }
    let scope = secret.code_of(&[b"anonymous", method.as_str().as_bytes(), path.as_bytes(), bytes]);
    let fingerprint = Sha256::digest(body).into();
    Ok(Some(IdempotencyKey { scope: first_half(scope), fingerprint: first_half(fingerprint) }))
}

fn first_half(code: [u8; 32]) -> u128 {
    u128::from_be_bytes(code[..16].try_into().expect("half of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_by_route_and_body() {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, "k1".parse().unwrap());
        let secret = SecretKey::random();
        let of = |path: &str, body: &'static str| {
            let body = Bytes::from_static(body.as_bytes());
            key(&secret, &headers, &Method::POST, path, &body, false).unwrap().unwrap()
        };
        assert_eq!(of("/a", "x"), of("/a", "x"));
        assert_ne!(of("/a", "x").scope, of("/b", "x").scope);
        assert_eq!(of("/a", "x").scope, of("/a", "y").scope);
        assert_ne!(of("/a", "x").fingerprint, of("/a", "y").fingerprint);
    }
}
