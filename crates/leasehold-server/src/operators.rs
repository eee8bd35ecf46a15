//! What is for operators only: the console and what it reads. Until there are API keys, that means this machine.

use std::net::IpAddr;

use http::{HeaderMap, Method, header};

use crate::config::{Operators, ServerConfig};
use crate::problem::ApiError;

/// Paths that begin so are for operators.
const PATHS: [&str; 2] = ["/console", "/v1/operator/"];

/// Refuses a request for something of the operators' that does not come from one.
///
/// The peer alone does not tell: a proxy on this machine passes strangers on, and a stranger's web page can make the
/// operator's own browser ask under a name that leads here. So whatever was passed on, is asked for under another name
/// than this machine's, or comes from another site's page, is refused as well.
pub(crate) fn check(
    config: &ServerConfig,
    peer: IpAddr,
    path: &str,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    if !PATHS.iter().any(|start| path.starts_with(start)) || config.operators == Operators::Anywhere {
        return Ok(());
    }
    let passed_on = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];
    let local = peer.is_loopback()
        && !passed_on.iter().any(|name| headers.contains_key(*name))
        && headers.get(header::HOST).and_then(|host| host.to_str().ok()).is_some_and(is_this_machine)
        && headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin" || site == "none");
    if local {
        return Ok(());
    }
    Err(ApiError::not_found().detail(
        "for operators on the server's own machine, asked for as 127.0.0.1 or localhost; there are no API keys yet",
    ))
}

/// Refuses to change anything for another site's page. A page on any site can make a visitor's browser send a request
/// here, and browsers say where it came from; nothing of ours is asked for from other sites.
pub(crate) fn check_origin(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let is_other_sites =
        headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if is_other_sites && !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Err(ApiError::not_found().detail("nothing is changed for a page of another site"));
    }
    Ok(())
}

/// Whether a `Host` header names this machine.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn refused(peer: &str, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&ServerConfig::default(), peer.parse().unwrap(), "/console", &map).is_err()
    }

    #[test]
    fn only_this_machine_asked_for_by_its_own_name() {
        for host in ["127.0.0.1:7070", "localhost:7070", "LOCALHOST", "[::1]:7070", "127.9.9.9"] {
            assert!(!refused("127.0.0.1", &[("host", host)]), "{host}");
        }
        for host in ["tickets.example", "127.0.0.1.example:7070", "10.0.0.1", "", "[::2]"] {
            assert!(refused("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(refused("192.0.2.1", &[("host", "127.0.0.1")]));
        assert!(refused("127.0.0.1", &[]), "without a name");
    }

    #[test]
    fn nothing_that_was_passed_on_and_nothing_from_another_sites_page() {
        let host = ("host", "localhost:7070");
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"] {
            assert!(refused("127.0.0.1", &[host, (name, "127.0.0.1")]), "{name}");
        }
        assert!(refused("127.0.0.1", &[host, ("sec-fetch-site", "cross-site")]));
        assert!(refused("127.0.0.1", &[host, ("sec-fetch-site", "same-site")]));
        assert!(!refused("127.0.0.1", &[host, ("sec-fetch-site", "same-origin")]));
    }

    #[test]
    fn another_sites_page_changes_nothing() {
        let from = |site: &str| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static("sec-fetch-site"),
                HeaderValue::from_str(site).unwrap(),
            )])
        };
        for site in ["cross-site", "same-site"] {
            assert!(check_origin(&Method::POST, &from(site)).is_err(), "{site}");
            assert!(check_origin(&Method::DELETE, &from(site)).is_err(), "{site}");
            assert!(check_origin(&Method::GET, &from(site)).is_ok(), "{site}");
        }
        assert!(check_origin(&Method::POST, &from("same-origin")).is_ok());
        assert!(check_origin(&Method::POST, &HeaderMap::new()).is_ok(), "not a browser");
    }

    #[test]
    fn told_otherwise_in_so_many_words_it_is_open_and_everything_else_always_is() {
        let open = ServerConfig { operators: Operators::Anywhere, ..ServerConfig::default() };
        let stranger = "192.0.2.1".parse().unwrap();
        assert!(check(&open, stranger, "/v1/operator/problems", &HeaderMap::new()).is_ok());
        assert!(check(&ServerConfig::default(), stranger, "/events/gala", &HeaderMap::new()).is_ok());
        assert!(
            check(&ServerConfig::default(), stranger, "/v1/operator/problems", &HeaderMap::new()).is_err()
        );
    }
}
