//! The addresses of Redis servers, as users write them.

use redis::ConnectionInfo;

use super::link::{Servers, server};

/// A URL that names no Redis servers.
#[derive(Debug, thiserror::Error)]
pub enum BadRedisUrl {
    /// Another kind of URL.
    #[error("expected redis://, redis-cluster:// or redis-sentinel://")]
    Scheme,
    /// Sentinel needs to be told which of its masters.
    #[error(
        "a Sentinel's URL ends with the name of the master: redis-sentinel://host:26379,host:26379/mymaster"
    )]
    NoMaster,
    /// One of the addresses.
    #[error("not the address of a Redis server")]
    Address(#[source] redis::RedisError),
}

pub(crate) fn servers(url: &str) -> Result<Servers, BadRedisUrl> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme {
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" => {
            Ok(Servers::One(Box::new(server(url).map_err(BadRedisUrl::Address)?)))
        }
        "redis-cluster" | "rediss-cluster" => Ok(Servers::Cluster(several(url)?.0)),
        "redis-sentinel" => {
            let (sentinels, path) = several(url)?;
            let master = path.filter(|path| !path.is_empty()).ok_or(BadRedisUrl::NoMaster)?;
            Ok(Servers::Sentinel { sentinels, master })
        }
        _ => Err(BadRedisUrl::Scheme),
    }
}

/// The servers of `scheme://user:password@a:1,b:2/path`, each with the user and password, and the path.
pub(crate) fn several(url: &str) -> Result<(Vec<ConnectionInfo>, Option<String>), BadRedisUrl> {
    let (scheme, rest) = url.split_once("://").ok_or(BadRedisUrl::Scheme)?;
    let plain = if matches!(scheme, "rediss-cluster" | "redlocks") { "rediss" } else { "redis" };
    let (rest, path) = match rest.split_once('/') {
        Some((rest, path)) => (rest, Some(path.to_owned())),
        None => (rest, None),
    };
    let (login, hosts) = match rest.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), rest),
    };
    let of_host = |host: &str| server(&format!("{plain}://{login}{host}")).map_err(BadRedisUrl::Address);
    Ok((hosts.split(',').map(of_host).collect::<Result<_, _>>()?, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_share_user_and_password() {
        let (nodes, path) = several("redis-cluster://ada:secret@one:7000,two:7001").unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[1].addr().to_string(), "two:7001");
        assert_eq!(nodes[1].redis_settings().username(), Some("ada"));
        assert_eq!(path, None);
    }

    #[test]
    fn what_is_no_redis_is_refused_without_repeating_the_password() {
        assert!(matches!(servers("http://x"), Err(BadRedisUrl::Scheme)));
        assert!(matches!(servers("redis-sentinel://a:1,b:2"), Err(BadRedisUrl::NoMaster)));
        let error = servers("redis://:hunter2@:::").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}
