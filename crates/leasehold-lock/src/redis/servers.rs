//! Which servers of Redis: one, the master that Sentinel names, or a cluster; and how clients of them are made.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisResult};

use super::transport::Transport;

/// A connection that is not there by then is not coming.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// The same for a server of a cluster, which the others do without.
pub(super) const CLUSTER_CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// An answer that is not there by then counts as lost.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// The same for a cluster, which may have to follow its slots first.
const CLUSTER_ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// Which servers.
#[derive(Debug, Clone)]
pub(crate) enum Servers {
    One(Box<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, master: Master },
    Cluster { nodes: Vec<ConnectionInfo>, transport: Transport },
}

/// The master that Sentinels name. Where it is, only they know.
#[derive(Debug, Clone)]
pub(crate) struct Master {
    pub(crate) name: String,
    /// The user and password there.
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) transport: Transport,
}

/// Takes an address, always with the protocol that lets a server speak first.
pub(super) fn server(url: &str) -> RedisResult<ConnectionInfo> {
    let info = url.into_connection_info()?;
    let redis = speaking_first(info.redis_settings().clone());
    Ok(info.set_redis_settings(redis).set_tcp_settings(nodelay()))
}

pub(super) fn speaking_first(settings: RedisConnectionInfo) -> RedisConnectionInfo {
    settings.set_protocol(ProtocolVersion::RESP3)
}

fn nodelay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// What a cluster's client is made with.
pub(super) fn cluster(nodes: &[ConnectionInfo], transport: &Transport) -> ClusterClientBuilder {
    transport
        .reach_cluster(ClusterClientBuilder::new(nodes.to_vec()))
        .use_protocol(ProtocolVersion::RESP3)
        .tcp_settings(nodelay())
        .connection_timeout(CLUSTER_CONNECT_TIME_MAX)
        .response_timeout(ANSWER_TIME_MAX)
        .overall_response_timeout(Some(CLUSTER_ANSWER_TIME_MAX))
        .retries(8)
        .min_retry_wait(20)
        .max_retry_wait(500)
}

/// A client of the Sentinels, who know where the master is.
pub(super) fn sentinel_client(sentinels: &[ConnectionInfo], master: &Master) -> RedisResult<SentinelClient> {
    let Master { name, settings, transport } = master;
    let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?
        .set_client_to_redis_protocol(ProtocolVersion::RESP3)
        .set_client_to_redis_tcp_settings(nodelay())
        .set_client_to_redis_db(settings.db());
    if let Some(username) = settings.username() {
        builder = builder.set_client_to_redis_username(username);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    // All Sentinels have the same login.
    if let Some(login) = sentinels.first().map(ConnectionInfo::redis_settings) {
        if let Some(username) = login.username() {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
    }
    transport.reach_master(builder).build()
}
