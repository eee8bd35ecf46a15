//! Whose request it is: the peer, or what a trusted proxy says.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::HeaderMap;

/// An address or a range of them, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Not an address or range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadNetwork;

impl std::fmt::Display for BadNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not an address or a range such as 10.0.0.0/8")
    }
}

impl std::error::Error for BadNetwork {}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadNetwork)?;
        let prefix_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(prefix_max), str::parse).map_err(|_| BadNetwork)?;
        if prefix > prefix_max { Err(BadNetwork) } else { Ok(Self { address, prefix }) }
    }
}

impl Network {
    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same_start(own.to_bits().into(), other.to_bits().into(), 32, self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same_start(own.to_bits(), other.to_bits(), 128, self.prefix)
            }
            _ => false,
        }
    }
}

fn same_start(one: u128, other: u128, bits: u8, prefix: u8) -> bool {
    prefix == 0 || (one ^ other) >> (bits - prefix) == 0
}

/// The client's address: the last one in `X-Forwarded-For` that no trusted proxy has, if a trusted one sent it.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if trusted.is_empty() || !is_trusted(peer) {
        return peer;
    }
    let mut client = peer;
    let values = headers.get_all("x-forwarded-for").iter();
    // Not text only: what a client sends in front of it must not hide what a proxy has added.
    let hops: Vec<&[u8]> = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).collect();
    for hop in hops.into_iter().rev() {
        let Some(address) = address_of(hop) else { return client };
        client = address;
        if !is_trusted(client) {
            return client;
        }
    }
    client
}

/// A hop's address, which some proxies send with its port, and an IPv4 one as part of IPv6.
fn address_of(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address: Option<IpAddr> = bare.parse().ok();
    let address = address.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", value.parse().unwrap());
        headers
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let (peer, proxy) = ("192.0.2.1".parse().unwrap(), "10.1.2.3".parse().unwrap());
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let headers = forwarded("203.0.113.9, 198.51.100.7");
        assert_eq!(client_address(peer, &headers, &trusted), peer);
        assert_eq!(client_address(proxy, &headers, &[]), proxy);
        assert_eq!(client_address(proxy, &headers, &trusted), "198.51.100.7".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_forged_first_hop_is_not_believed() {
        let proxy = "10.1.2.3".parse().unwrap();
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let headers = forwarded("1.1.1.1, 198.51.100.7, 10.9.9.9");
        assert_eq!(client_address(proxy, &headers, &trusted), "198.51.100.7".parse::<IpAddr>().unwrap());
        assert_eq!(client_address(proxy, &forwarded("nonsense"), &trusted), proxy);
    }

    #[test]
    fn a_hop_is_known_however_a_proxy_writes_it_and_whatever_stands_before_it() {
        let proxy = "10.1.2.3".parse().unwrap();
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let client: IpAddr = "198.51.100.7".parse().unwrap();
        for hops in [
            "198.51.100.7:4711",
            "::ffff:198.51.100.7",
            "198.51.100.7, ::ffff:10.0.0.2",
            "198.51.100.7,10.0.0.2:80",
        ] {
            assert_eq!(client_address(proxy, &forwarded(hops), &trusted), client, "{hops}");
        }
        let wide: IpAddr = "2001:db8::7".parse().unwrap();
        for hops in ["2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:4711"] {
            assert_eq!(client_address(proxy, &forwarded(hops), &trusted), wide, "{hops}");
        }
        let mut headers = HeaderMap::new();
        let hidden = http::HeaderValue::from_bytes(b"\xff, 198.51.100.7").unwrap();
        headers.insert("x-forwarded-for", hidden);
        assert_eq!(client_address(proxy, &headers, &trusted), client, "the byte is the client's");
    }
}
