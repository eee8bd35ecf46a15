//! A Redis Cluster as one of its nodes sees it.

use redis::ConnectionInfo;

use super::redis_server::Server;
use super::replicas;
use crate::error::StoreError;

const SLOTS: &str = "16384";

/// What a node knows of its cluster.
pub(super) struct ClusterView {
    pub(super) is_whole: bool,
    /// The cluster's state and how many slots have a master, in words.
    pub(super) state: String,
    /// The masters that have slots and are alive.
    pub(super) masters: Vec<MasterView>,
}

/// A master.
pub(super) struct MasterView {
    pub(super) address: String,
    /// Its replicas that are alive.
    pub(super) replicas: usize,
}

impl ClusterView {
    pub(super) async fn of(server: &Server) -> Result<Self, StoreError> {
        let info: String = server.ask(&["CLUSTER", "INFO"]).await?;
        let nodes: String = server.ask(&["CLUSTER", "NODES"]).await?;
        Ok(Self::parse(&info, &nodes))
    }

    fn parse(info: &str, nodes: &str) -> Self {
        let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
        let (state, assigned) = (value("cluster_state:"), value("cluster_slots_assigned:"));
        let nodes: Vec<Vec<&str>> = nodes.lines().map(|line| line.split_whitespace().collect()).collect();
        let alive = |node: &&Vec<&str>| node.len() >= 8 && !node[2].contains("fail");
        let masters = nodes.iter().filter(alive).filter(|node| node[2].contains("master") && node.len() > 8);
        let masters = masters.map(|master| MasterView {
            address: master[1].split(['@', ',']).next().unwrap_or_default().to_owned(),
            replicas: nodes.iter().filter(alive).filter(|node| node[3] == master[0]).count(),
        });
        Self {
            is_whole: state == "ok" && assigned == SLOTS,
            state: format!("state {state}, {assigned} of {SLOTS} slots have a master"),
            masters: masters.collect(),
        }
    }
}

impl MasterView {
    /// How it is reached, in the same way as the node that named it.
    pub(super) fn beside(&self, seed: &ConnectionInfo) -> Option<ConnectionInfo> {
        let (host, port) = self.address.rsplit_once(':')?;
        Some(replicas::at(seed, host.to_owned(), port.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_those_that_live_and_have_slots() {
        let info = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n";
        let nodes = "\
a 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-8000\n\
b 127.0.0.1:7001@17001,host master - 0 0 2 connected 8001-16383\n\
c 127.0.0.1:7002@17002 slave a 0 0 1 connected\n\
d 127.0.0.1:7003@17003 slave,fail b 0 0 2 connected\n\
e 127.0.0.1:7004@17004 master,fail - 0 0 3 connected 5-6\n\
f 127.0.0.1:7005@17005 master - 0 0 4 connected\n";
        let view = ClusterView::parse(info, nodes);
        assert!(view.is_whole);
        let masters: Vec<(&str, usize)> =
            view.masters.iter().map(|master| (master.address.as_str(), master.replicas)).collect();
        assert_eq!(masters, [("127.0.0.1:7000", 1), ("127.0.0.1:7001", 0)]);
        assert!(!ClusterView::parse("cluster_state:ok\r\ncluster_slots_assigned:16383\r\n", nodes).is_whole);
    }
}
