//! What is for operators only: the console and what it reads. Until there are API keys, that means this machine.

use std::net::IpAddr;

use http::header::{self, HeaderName};
use http::{Method, Request, Version};

use crate::config::{Operators, ServerConfig};
use crate::problem::ApiError;

/// Paths that begin so are for operators.
const PATHS: [&str; 2] = ["/console", "/v1/operator/"];
/// Where a browser says whose page asks.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Where it says what for; here, whether the answer becomes the page in the window.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// What proxies add to a request that they pass on.
const PASSED_ON: [&str; 9] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-client-ip",
    "cf-connecting-ip",
    "via",
];

/// Where a connection leads from and to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// Who is at the other end.
    pub(crate) peer: IpAddr,
    /// Whether only this machine can connect to the address that the server listens on.
    pub(crate) is_loopback_only: bool,
}

/// Refuses what a stranger must not do as long as there are no API keys.
///
/// The peer alone does not tell strangers: a proxy on this machine passes them on, and a stranger's web page can make
/// the operator's own browser ask, under this machine's name or under one of its own that leads here.
pub(crate) fn check<B>(config: &ServerConfig, ends: Ends, request: &Request<B>) -> Result<(), ApiError> {
    let headers = request.headers();
    let site = headers.get(SITE);
    let is_own_page = site.is_none_or(|site| site == "same-origin" || site == "none");
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_own_page && !is_read {
        return Err(ApiError::not_found().detail("nothing is changed for a page of another site"));
    }
    if config.operators == Operators::Anywhere {
        return Ok(());
    }
    let host = headers.get(header::HOST).map(|host| host.to_str().is_ok_and(is_this_machine));
    let is_operators = PATHS.iter().any(|start| request.uri().path().starts_with(start));
    // Nearly every request ends here.
    if !is_operators && (host != Some(false) || !ends.is_loopback_only) {
        return Ok(());
    }
    let is_proxys = config.trusted_proxies.iter().any(|proxies| proxies.contains(ends.peer));
    let is_passed_on = is_proxys || headers.keys().any(|name| PASSED_ON.contains(&name.as_str()));
    // What proxies add, a stranger's page can add too.
    if ends.is_loopback_only && !is_proxys && host == Some(false) {
        return Err(ApiError::not_found().detail(
            "this server is asked for as 127.0.0.1 or localhost, or through a proxy named in --trusted-proxies",
        ));
    }
    // A link to the console from another server of this machine shows it and changes nothing.
    let is_link = is_read
        && request.uri().path() == PATHS[0]
        && site.is_some_and(|site| site == "same-site")
        && headers.get(MODE).is_some_and(|mode| mode == "navigate");
    // Proxies that add nothing speak an old HTTP, as nginx does unless it is told otherwise; browsers do not.
    let is_operator = ends.peer.is_loopback()
        && !is_passed_on
        && host == Some(true)
        && (is_own_page || is_link)
        && request.version() > Version::HTTP_10;
    if is_operators && !is_operator {
        return Err(ApiError::not_found().detail(
            "for operators on the server's own machine, asked for as 127.0.0.1 or localhost; there are no API keys yet",
        ));
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
    use super::*;

    const STRANGER: &str = "192.0.2.1";

    fn ask(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn is_refused(config: &ServerConfig, peer: &str, request: &Request<()>) -> bool {
        check(config, Ends { peer: peer.parse().unwrap(), is_loopback_only: false }, request).is_err()
    }

    fn refuses_console(peer: &str, headers: &[(&str, &str)]) -> bool {
        is_refused(&ServerConfig::default(), peer, &ask(Method::GET, "/console", headers))
    }

    #[test]
    fn console_is_for_this_machine_asked_for_by_its_own_name() {
        for host in ["127.0.0.1:7070", "localhost:7070", "LOCALHOST", "[::1]:7070", "127.9.9.9"] {
            assert!(!refuses_console("127.0.0.1", &[("host", host)]), "{host}");
        }
        for host in ["tickets.example", "127.0.0.1.example:7070", "10.0.0.1", "", "[::2]"] {
            assert!(refuses_console("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(refuses_console(STRANGER, &[("host", "127.0.0.1")]));
        assert!(refuses_console("127.0.0.1", &[]), "without a name");
    }

    #[test]
    fn console_is_not_for_what_was_passed_on_nor_for_another_sites_page() {
        let host = ("host", "localhost:7070");
        for name in PASSED_ON {
            assert!(refuses_console("127.0.0.1", &[host, (name, "127.0.0.1")]), "{name}");
        }
        assert!(refuses_console("127.0.0.1", &[host, ("sec-fetch-site", "cross-site")]));
        assert!(refuses_console("127.0.0.1", &[host, ("sec-fetch-site", "same-site")]));
        assert!(!refuses_console("127.0.0.1", &[host, ("sec-fetch-site", "same-origin")]));
        let linked = |site| [host, ("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
        assert!(!refuses_console("127.0.0.1", &linked("same-site")), "a server beside it may link here");
        assert!(refuses_console("127.0.0.1", &linked("cross-site")));
        let log = ask(Method::GET, "/v1/operator/problems", &linked("same-site"));
        assert!(is_refused(&ServerConfig::default(), "127.0.0.1", &log), "to the page only");
        let behind =
            ServerConfig { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..ServerConfig::default() };
        assert!(is_refused(&behind, "127.0.0.1", &ask(Method::GET, "/console", &[host])), "the proxy itself");
        let mut old = ask(Method::GET, "/console", &[host]);
        *old.version_mut() = Version::HTTP_10;
        assert!(is_refused(&ServerConfig::default(), "127.0.0.1", &old), "nginx as it comes");
    }

    #[test]
    fn another_sites_page_changes_nothing() {
        for config in [
            ServerConfig::default(),
            ServerConfig { operators: Operators::Anywhere, ..ServerConfig::default() },
        ] {
            let refuses = |method: Method, headers: &[(&str, &str)]| {
                is_refused(&config, "127.0.0.1", &ask(method, "/v1/events", headers))
            };
            for site in ["cross-site", "same-site"] {
                assert!(refuses(Method::POST, &[("sec-fetch-site", site)]), "{site}");
                assert!(refuses(Method::DELETE, &[("sec-fetch-site", site)]), "{site}");
                assert!(!refuses(Method::GET, &[("sec-fetch-site", site)]), "{site}");
            }
            assert!(!refuses(Method::POST, &[("sec-fetch-site", "same-origin")]));
            assert!(!refuses(Method::POST, &[]), "not a browser");
        }
    }

    #[test]
    fn foreign_name_that_leads_to_this_machine_opens_nothing() {
        let peer = "127.0.0.1";
        let refuses_with = |config: &ServerConfig, is_loopback_only, headers: &[(&str, &str)]| {
            let ends = Ends { peer: peer.parse().unwrap(), is_loopback_only };
            check(config, ends, &ask(Method::GET, "/v1/events", headers)).is_err()
        };
        let refuses = |is_loopback_only, headers: &[(&str, &str)]| {
            refuses_with(&ServerConfig::default(), is_loopback_only, headers)
        };
        assert!(refuses(true, &[("host", "stranger.example:7070")]));
        assert!(!refuses(true, &[("host", "127.0.0.1:7070")]));
        for name in PASSED_ON {
            let headers = [("host", "stranger.example"), (name, "192.0.2.1")];
            assert!(refuses(true, &headers), "{name} is what any page can send");
        }
        let behind = ServerConfig { trusted_proxies: vec![peer.parse().unwrap()], ..ServerConfig::default() };
        assert!(!refuses_with(&behind, true, &[("host", "tickets.example")]), "a proxy that was named");
        assert!(
            !refuses(false, &[("host", "tickets.example")]),
            "a server that others reach has other names"
        );
    }

    #[test]
    fn told_otherwise_in_so_many_words_it_is_open_and_everything_else_always_is() {
        let open = ServerConfig { operators: Operators::Anywhere, ..ServerConfig::default() };
        let problems = ask(Method::GET, "/v1/operator/problems", &[]);
        assert!(!is_refused(&open, STRANGER, &problems));
        assert!(is_refused(&ServerConfig::default(), STRANGER, &problems));
        assert!(!is_refused(&ServerConfig::default(), STRANGER, &ask(Method::GET, "/events/gala", &[])));
    }
}
