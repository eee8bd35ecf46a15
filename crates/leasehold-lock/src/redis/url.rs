//! The addresses of Redis servers, as users write them.
//!
//! `scheme://user:password@host:port,host:port/path?parameter=value`. The scheme says what the servers are to
//! each other, and whether they are reached by TLS.

use std::io;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, RedisConnectionInfo};

use super::servers::{Master, Servers, server, speaking_first};
use super::transport::Transport;

/// A URL that names no Redis servers.
#[derive(Debug, thiserror::Error)]
pub enum BadRedisUrl {
    /// Another kind of URL.
    #[error("expected redis://, redis-cluster:// or redis-sentinel://, or one of them with rediss for TLS")]
    Scheme,
    /// Sentinel needs to be told which of its masters.
    #[error(
        "a Sentinel's URL ends with the name of the master: redis-sentinel://host:26379,host:26379/mymaster"
    )]
    NoMaster,
    /// One of the addresses.
    #[error("not the address of a Redis server")]
    Address(#[source] redis::RedisError),
    /// A parameter that nobody would look at. It is not repeated, as it may be a piece of a password.
    #[error(
        "a parameter after the ? means nothing in this URL; there are ca_file with TLS, and sentinel_user and \
         sentinel_password with Sentinel (write %3F for a ? in a password)"
    )]
    Parameter,
    /// Something after a `#`.
    #[error(
        "nothing may stand after a # (write %23 in a password). Certificates are always verified: name the \
         authority with ?ca_file=FILE instead of switching that off"
    )]
    Fragment,
    /// It asks for TLS, which this program does not have.
    #[error("TLS is not built into this program; build it with the feature `tls`")]
    TlsNotBuiltIn,
    /// The certificates to trust.
    #[error("cannot use the certificates of ca_file, {}", path.display())]
    CaFile {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The servers of a URL, but for Redlock's.
pub(crate) fn servers(url: &str) -> Result<Servers, BadRedisUrl> {
    let mut parts = Parts::of(url)?;
    match parts.scheme {
        "redis" | "rediss" | "valkey" | "valkeys" => {
            let transport = parts.transport()?;
            parts.parameters.finish(&["protocol"])?;
            // Parameters that the client does not know it passes over.
            Ok(Servers::One(Box::new(reached(url, &transport)?)))
        }
        "redis+unix" => {
            parts.parameters.finish(&["db", "user", "pass", "protocol"])?;
            Ok(Servers::One(Box::new(reached(url, &Transport::Plain)?)))
        }
        "redis-cluster" | "rediss-cluster" => {
            let transport = parts.transport()?;
            parts.parameters.finish(&[])?;
            Ok(Servers::Cluster { nodes: parts.nodes(&transport)?, transport })
        }
        "redis-sentinel" | "rediss-sentinel" => {
            let transport = parts.transport()?;
            let login = parts.sentinel_login();
            parts.parameters.finish(&[])?;
            let nodes = parts.nodes(&transport)?;
            let settings = nodes.first().map(ConnectionInfo::redis_settings).cloned().unwrap_or_default();
            let name = parts.path.filter(|path| !path.is_empty()).ok_or(BadRedisUrl::NoMaster)?.to_owned();
            // User and password before the @ are the master's, and none of the Sentinels' business.
            let sentinels = nodes.into_iter().map(|node| node.set_redis_settings(login.clone())).collect();
            Ok(Servers::Sentinel { sentinels, master: Master { name, settings, transport } })
        }
        _ => Err(BadRedisUrl::Scheme),
    }
}

/// The independent servers of `redlock://a:1,b:2,c:3`.
pub(crate) fn independent(url: &str) -> Result<Vec<ConnectionInfo>, BadRedisUrl> {
    let mut parts = Parts::of(url)?;
    let transport = parts.transport()?;
    parts.parameters.finish(&[])?;
    parts.nodes(&transport)
}

/// A URL in parts. It holds passwords, so it does not print itself.
struct Parts<'a> {
    scheme: &'a str,
    /// `user:password@`, or nothing.
    login: &'a str,
    hosts: &'a str,
    path: Option<&'a str>,
    parameters: Parameters,
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self, BadRedisUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(BadRedisUrl::Scheme)?;
        if rest.contains('#') {
            return Err(BadRedisUrl::Fragment);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (rest, path) = match rest.split_once('/') {
            Some((rest, path)) => (rest, Some(path)),
            None => (rest, None),
        };
        let (login, hosts) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        Ok(Self { scheme, login, hosts, path, parameters: Parameters::of(query) })
    }

    fn transport(&mut self) -> Result<Transport, BadRedisUrl> {
        let encrypted =
            ["rediss", "valkeys", "rediss-cluster", "rediss-sentinel", "redlocks"].contains(&self.scheme);
        if !encrypted {
            return Ok(Transport::Plain);
        }
        Transport::encrypted(self.parameters.take("ca_file").as_deref())
    }

    /// Every server, with the user and password before the `@`.
    fn nodes(&self, transport: &Transport) -> Result<Vec<ConnectionInfo>, BadRedisUrl> {
        let scheme = if transport.is_encrypted() { "rediss" } else { "redis" };
        let of_host = |host: &str| reached(&format!("{scheme}://{}{host}", self.login), transport);
        self.hosts.split(',').map(of_host).collect()
    }

    fn sentinel_login(&mut self) -> RedisConnectionInfo {
        let mut settings = speaking_first(RedisConnectionInfo::default());
        if let Some(user) = self.parameters.take("sentinel_user") {
            settings = settings.set_username(user);
        }
        if let Some(password) = self.parameters.take("sentinel_password") {
            settings = settings.set_password(password);
        }
        settings
    }
}

fn reached(url: &str, transport: &Transport) -> Result<ConnectionInfo, BadRedisUrl> {
    server(url).and_then(|server| transport.reach(server)).map_err(BadRedisUrl::Address)
}

/// What stands after the `?`, decoded.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(query: &str) -> Self {
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        // A + is itself: passwords are full of them.
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// A parameter that nobody took is a mistake, or meant for somebody else.
    fn finish(&self, known: &[&str]) -> Result<(), BadRedisUrl> {
        let is_known = |(name, _): &(String, String)| known.contains(&name.as_str());
        if self.0.iter().all(is_known) { Ok(()) } else { Err(BadRedisUrl::Parameter) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_share_user_and_password() {
        let Ok(Servers::Cluster { nodes, .. }) = servers("redis-cluster://ada:secret@one:7000,two:7001")
        else {
            panic!("a cluster");
        };
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[1].addr().to_string(), "two:7001");
        assert_eq!(nodes[1].redis_settings().username(), Some("ada"));
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let url =
            "redis-sentinel://ada:secret@one:1,two:2/mymaster?sentinel_user=watch&sentinel_password=a%26b+c=";
        let Ok(Servers::Sentinel { sentinels, master }) = servers(url) else { panic!("Sentinel") };
        assert_eq!((master.name.as_str(), master.settings.password()), ("mymaster", Some("secret")));
        for sentinel in &sentinels {
            assert_eq!(sentinel.redis_settings().username(), Some("watch"));
            assert_eq!(sentinel.redis_settings().password(), Some("a&b+c="));
        }
        let shown = format!("{sentinels:?} {master:?}");
        assert!(!shown.contains("secret") && !shown.contains("a&b"), "{shown}");
    }

    #[test]
    fn the_password_of_the_master_is_not_told_to_sentinels() {
        let Ok(Servers::Sentinel { sentinels, .. }) = servers("redis-sentinel://:secret@one:1/mymaster")
        else {
            panic!("Sentinel");
        };
        assert_eq!(sentinels[0].redis_settings().password(), None);
    }

    #[test]
    fn what_is_no_redis_is_refused_without_repeating_the_password() {
        assert!(matches!(servers("http://x"), Err(BadRedisUrl::Scheme)));
        assert!(matches!(servers("redis-sentinel://a:1,b:2"), Err(BadRedisUrl::NoMaster)));
        for url in ["redis://:hunter2@:::", "redis://:a?hunter2@b", "redis://:a#hunter2@b"] {
            let error = servers(url).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn a_parameter_that_would_change_nothing_is_refused() {
        for url in [
            "redis://a?ca_file=/etc/ca.pem",
            "redis-cluster://a,b?ca_file=/etc/ca.pem",
            "redis://a?sentinel_password=x",
            "redis-sentinel://a:1/mymaster?sentinel_pasword=x",
        ] {
            assert!(matches!(servers(url), Err(BadRedisUrl::Parameter)), "{url}");
        }
        assert!(matches!(independent("redlock://a,b?ca_file=/etc/ca.pem"), Err(BadRedisUrl::Parameter)));
        assert!(servers("redis://a/1?protocol=resp3").is_ok());
    }

    #[test]
    fn verification_cannot_be_switched_off() {
        for url in
            ["rediss://a#insecure", "rediss-cluster://a,b#insecure", "rediss-sentinel://a:1/m#insecure"]
        {
            assert!(matches!(servers(url), Err(BadRedisUrl::Fragment)), "{url}");
        }
        assert!(matches!(independent("redlocks://a,b#insecure"), Err(BadRedisUrl::Fragment)));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_file_without_certificates_is_named() {
        let error = servers("rediss-cluster://a,b?ca_file=/no/such%20ca.pem").unwrap_err();
        assert!(error.to_string().contains("/no/such ca.pem"), "{error}");
    }
}
