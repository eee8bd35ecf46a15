//! The calls of the lock API, typed.

use std::time::Duration;

use leasehold_api::{
    AcquireLock, LockGrant, LockList, LockRelease, LockRenewal, LockView, Problem, RenewLock,
};

use crate::{Client, Request, Response, TransportError};

/// A call that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There was no answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refused; `code` says why: `lock-held`, `lock-lost` and so on.
    #[error("refused: {}", .0.code)]
    Refused(Box<Problem>),
    /// The answer is not what the API promises.
    #[error("the answer with status {status} cannot be read")]
    Unreadable {
        /// Its status.
        status: u16,
    },
}

impl Client {
    /// Leases a name, waiting for it as long as was asked for. With a key, it can be asked for again when no
    /// answer comes, and is granted once.
    pub async fn acquire_lock(
        &mut self,
        name: &str,
        wanted: &AcquireLock,
        idempotency_key: Option<&str>,
    ) -> Result<LockGrant, CallError> {
        let mut request = Request::acquire_lock(name, wanted);
        if let Some(key) = idempotency_key {
            request = request.idempotency_key(key);
        }
        let wait = Duration::from_millis(wanted.wait_ms.unwrap_or(2_000));
        read(self.send_within(request, self.timeout.saturating_add(wait)).await?)
    }

    /// Lengthens a lease to `ttl` from now.
    pub async fn renew_lock(
        &mut self,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<LockRenewal, CallError> {
        read(self.send(Request::renew_lock(name, owner, ttl)).await?)
    }

    /// Gives a lock back.
    pub async fn release_lock(&mut self, name: &str, owner: &str) -> Result<LockRelease, CallError> {
        read(self.send(Request::release_lock(name, owner)).await?)
    }

    /// Who has a lock.
    pub async fn lock(&mut self, name: &str) -> Result<LockView, CallError> {
        read(self.send(Request::get(lock_path(name))).await?)
    }

    /// A page of the locks whose names begin with a prefix; `cursor` is `next` of the page before.
    pub async fn locks(&mut self, prefix: &str, cursor: Option<&str>) -> Result<LockList, CallError> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", escaped(cursor))).unwrap_or_default();
        read(self.send(Request::get(format!("/v1/locks?prefix={}{cursor}", escaped(prefix)))).await?)
    }
}

impl Request {
    /// `POST /v1/locks/{name}`.
    pub fn acquire_lock(name: &str, wanted: &AcquireLock) -> Self {
        Self::post(lock_path(name), wanted)
    }

    /// `PATCH /v1/locks/{name}`.
    pub fn renew_lock(name: &str, owner: &str, ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self::patch(lock_path(name), &RenewLock { ttl_ms }).lock_owner(owner)
    }

    /// `DELETE /v1/locks/{name}`.
    pub fn release_lock(name: &str, owner: &str) -> Self {
        Self::delete(lock_path(name)).lock_owner(owner)
    }

    /// The same with a lock's owner token.
    pub fn lock_owner(self, owner: impl Into<String>) -> Self {
        self.header(leasehold_api::LOCK_OWNER, owner)
    }
}

fn lock_path(name: &str) -> String {
    format!("/v1/locks/{}", escaped(name))
}

/// Every byte that could mean something else in a path or a query stands as an escape.
fn escaped(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'@' => {
                path.push(char::from(byte));
            }
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

fn read<T: serde::de::DeserializeOwned>(response: Response) -> Result<T, CallError> {
    let unreadable = CallError::Unreadable { status: response.status };
    match response.status {
        200..=299 => response.json().map_err(|_| unreadable),
        _ => Err(response.json().map_or(unreadable, |problem| CallError::Refused(Box::new(problem)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_paths_whatever_is_in_them() {
        assert_eq!(lock_path("order:42"), "/v1/locks/order:42");
        assert_eq!(lock_path("a/b c%?#\u{e9}"), "/v1/locks/a%2Fb%20c%25%3F%23%C3%A9");
    }
}
