//! Where the load goes, and the refusal to send it to somebody else's machine.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};

/// Which servers may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// This machine only.
    Loopback,
    /// Any server: the user said that it is theirs.
    Anywhere,
}

/// A server that may be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    authority: String,
}

impl Target {
    /// Reads `http://127.0.0.1:7070` and checks that load may go there.
    pub(crate) async fn resolve(url: &str, reach: Reach) -> anyhow::Result<Self> {
        ensure!(!url.starts_with("https://"), "rush speaks plain HTTP: give it an http:// address");
        let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        ensure!(!authority.contains(['/', '?', '#', '@']), "`{url}` is more than a host and a port");
        let found = tokio::net::lookup_host(authority).await.with_context(|| {
            format!("cannot find `{authority}`; an address looks like http://127.0.0.1:7070")
        })?;
        let addresses: Vec<SocketAddr> = found.collect();
        let Some(first) = addresses.first() else { bail!("`{authority}` has no address") };
        match reach {
            Reach::Anywhere => Ok(Self { authority: authority.to_owned() }),
            Reach::Loopback => {
                let stranger = addresses.iter().find(|address| !address.ip().is_loopback());
                if let Some(stranger) = stranger {
                    bail!(
                        "{} is not this machine; a load test of a server that is not yours is an attack on it \
                         (if it is yours, say --i-own-this-server)",
                        stranger.ip()
                    );
                }
                // The checked address itself, so that the name cannot lead elsewhere later.
                Ok(Self::from(*first))
            }
        }
    }

    /// The address as [`leasehold_client::Client`] takes it.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

/// A server the caller started itself.
impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { authority: address.to_string() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_may_be_loaded() {
        for url in ["http://127.0.0.1:7070", "127.0.0.1:7070", "http://127.8.9.10:1/", "http://[::1]:7070"] {
            Target::resolve(url, Reach::Loopback).await.unwrap();
        }
        let target = Target::resolve("http://127.0.0.1:7070/", Reach::Loopback).await.unwrap();
        assert_eq!(target.to_string(), "http://127.0.0.1:7070");
    }

    #[tokio::test]
    async fn other_machines_only_with_their_owners_word() {
        for url in ["http://192.0.2.1:80", "0.0.0.0:7070", "[2001:db8::1]:80"] {
            assert!(Target::resolve(url, Reach::Loopback).await.is_err(), "{url} was accepted");
            Target::resolve(url, Reach::Anywhere).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_no_address_is_refused() {
        for url in ["https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:1/v1", "a@127.0.0.1:1", ""] {
            assert!(Target::resolve(url, Reach::Anywhere).await.is_err(), "{url} was accepted");
        }
    }
}
