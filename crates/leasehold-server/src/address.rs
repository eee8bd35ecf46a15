//! Whose request it is: the peer, or what a trusted proxy says.

use std::net::IpAddr;
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
    let values = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    for hop in hops.into_iter().rev() {
        let Ok(address) = hop.parse() else { return client };
        client = address;
        if !is_trusted(client) {
            return client;
        }
    }
    client
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
}
