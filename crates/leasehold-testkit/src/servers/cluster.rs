//! A Redis Cluster of three masters with one replica each.
//!
//! The nodes are `0..6`; at first node `n + 3` is the replica of node `n`. What each node is later, the
//! cluster decides, so ask: [`RedisCluster::master_of`], [`RedisCluster::replica_of`].

mod faults;
mod proxies;
mod slots;
mod view;

use std::time::Duration;

pub use faults::LostWrites;
pub use slots::SlotMove;
use view::{View, agree, owner_of};

use super::authority::Certificate;
use super::clock::ClockShift;
use super::redis_server::{Persistence, RedisOptions, RedisServer, value_in};
use super::wait;

const MASTERS: usize = 3;
const NODES: usize = 6;
const SLOTS: usize = 16_384;
/// How long the cluster may take to agree on something; a failover takes 4 to 6 seconds.
const AGREE_TIME_MAX: Duration = Duration::from_secs(40);

/// One of the 16384 parts of a cluster's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(u16);

/// One of the six nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterNode(usize);

/// How a cluster is started.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    node: RedisOptions,
}

/// A cluster of six Redis servers. They are gone when this is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// What the nodes call themselves; it stays over a restart.
    ids: Vec<String>,
}

impl Slot {
    /// Its number, below 16384.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl ClusterNode {
    /// Its place in [`RedisCluster::addresses`].
    pub fn index(self) -> usize {
        self.0
    }
}

impl Default for ClusterOptions {
    fn default() -> Self {
        let node = RedisOptions::default().cluster_node();
        let node = node.args(&["--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1"]);
        // A replica that was cut off for long is promoted all the same: tests want the promotion.
        let node = node.args(&["--cluster-replica-validity-factor", "0"]);
        // Replicas stay with their masters, so that a test knows what it has.
        let node = node.args(&["--cluster-allow-replica-migration", "no"]);
        Self { node }
    }
}

impl ClusterOptions {
    /// The same with this promise about every node's writes; [`Persistence::Always`] if not called.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.node = self.node.persistence(persistence);
        self
    }

    /// The same with more arguments for every node.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.node = self.node.args(args);
        self
    }

    /// The same with every node by this clock.
    pub fn clock(mut self, clock: &ClockShift) -> Self {
        self.node = self.node.clock(clock);
        self
    }

    /// The same with TLS on every node, on ports of their own, and among the nodes.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.node = self.node.tls(certificate);
        self
    }

    /// Starts six nodes, makes them a cluster, and waits until every replica can take over.
    pub fn start(&self) -> RedisCluster {
        let nodes = self.node.start_independent(NODES);
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"])).collect();
        let cluster = RedisCluster { nodes, ids };
        cluster.join();
        cluster
    }
}

impl RedisCluster {
    /// A cluster whose nodes keep every write they have answered, and give each other 2 s before a failover.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// For a cluster with something different.
    pub fn options() -> ClusterOptions {
        ClusterOptions::default()
    }

    /// `redis-cluster://` and every node, as our own settings want them.
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.addresses().join(","))
    }

    /// `redis://127.0.0.1:port` of every node, as a cluster client wants them.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// `127.0.0.1:port` of every node.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::address).collect()
    }

    /// `127.0.0.1:port` of every node where it speaks TLS.
    pub fn tls_addresses(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::tls_address).collect()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = ClusterNode> + use<> {
        (0..NODES).map(ClusterNode)
    }

    /// The server of a node.
    pub fn server(&self, node: ClusterNode) -> &RedisServer {
        &self.nodes[node.0]
    }

    /// The server of a node, to do something to it.
    pub fn server_mut(&mut self, node: ClusterNode) -> &mut RedisServer {
        &mut self.nodes[node.0]
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> Slot {
        let (node, _) = self.answering().next().expect("a node that answers");
        Slot(self.server(node).command(&["CLUSTER", "KEYSLOT", key]))
    }

    /// The node that has a key, by the newest word of any node that answers.
    pub fn master_of(&self, key: &str) -> ClusterNode {
        self.master_of_slot(self.slot_of(key))
    }

    /// The node that has a slot, by the newest word of any node that answers.
    pub fn master_of_slot(&self, slot: Slot) -> ClusterNode {
        let owner = owner_of(&self.views(), slot.0).expect("every slot has a master");
        self.node_of(&owner)
    }

    /// The node that would take a key over; panics when its master has no replica that answers.
    pub fn replica_of(&self, key: &str) -> ClusterNode {
        let master = self.master_of(key);
        let mut replicas = self.answering().filter(|(node, _)| {
            let view = self.view(*node);
            view.is_some_and(|view| view.master_of(&self.ids[node.0]) == Some(self.ids[master.0].clone()))
        });
        replicas.next().map(|(node, _)| node).expect("a replica that answers")
    }

    /// The nodes that answer and are masters.
    pub fn masters(&self) -> Vec<ClusterNode> {
        let masters = self.answering().filter(|(_, server)| server.info("replication", "role") == "master");
        masters.map(|(node, _)| node).collect()
    }

    /// Starts a killed or stopped node again with its data, and waits until it has found its place.
    pub fn restart(&mut self, node: ClusterNode) {
        self.nodes[node.0].restart();
        self.wait_until_settled();
    }

    /// Waits until all nodes that answer agree who has what, and every replica among them is in step.
    pub fn wait_until_settled(&self) {
        self.wait_until("the nodes agree", |cluster| cluster.is_settled());
    }

    fn join(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Different from the start, so that no two nodes must sort it out later.
            let () = node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, master) in self.nodes.iter().enumerate().take(MASTERS) {
            let (first, end) = (index * SLOTS / MASTERS, (index + 1) * SLOTS / MASTERS);
            let (first, last) = (first.to_string(), (end - 1).to_string());
            let () = master.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let () = node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.peer_port().to_string()]);
            }
        }
        self.wait_until("every node knows every other", |cluster| {
            cluster.views().iter().all(|view| cluster.ids.iter().all(|id| view.is_met(id)))
        });
        for (replica, master) in self.nodes[MASTERS..].iter().zip(&self.ids) {
            let () = replica.command(&["CLUSTER", "REPLICATE", master]);
        }
        self.wait_until("every replica is in step", |cluster| {
            let has_replica = |master: &RedisServer| master.info("replication", "connected_slaves") == "1";
            cluster.is_settled() && cluster.nodes[..MASTERS].iter().all(has_replica)
        });
    }

    fn is_settled(&self) -> bool {
        let nodes: Vec<(ClusterNode, &RedisServer)> = self.answering().collect();
        let ids: Vec<&str> = nodes.iter().map(|(node, _)| self.ids[node.0].as_str()).collect();
        let views = self.views();
        views.len() == nodes.len()
            && agree(&views, &ids)
            && nodes.iter().all(|(_, server)| is_ok(server) && is_in_step(server))
    }

    fn node_of(&self, id: &str) -> ClusterNode {
        ClusterNode(self.ids.iter().position(|known| known == id).expect("a node of this cluster"))
    }

    fn answering(&self) -> impl Iterator<Item = (ClusterNode, &RedisServer)> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, server)| server.is_answering());
        nodes.map(|(index, server)| (ClusterNode(index), server))
    }

    fn view(&self, node: ClusterNode) -> Option<View> {
        let text: Option<String> = self.nodes[node.0].try_command(&["CLUSTER", "NODES"]).ok();
        text.as_deref().map(View::parse)
    }

    /// What each node that answers thinks of all.
    fn views(&self) -> Vec<View> {
        self.answering().filter_map(|(node, _)| self.view(node)).collect()
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let details = || {
            let logs = self.nodes.iter().map(RedisServer::log_tail).collect::<Vec<_>>().join("\n");
            format!("{:#?}\n{logs}", self.views())
        };
        wait::until(what, AGREE_TIME_MAX, || condition(self), details);
    }
}

fn is_ok(server: &RedisServer) -> bool {
    let info: Option<String> = server.try_command(&["CLUSTER", "INFO"]).ok();
    info.and_then(|info| value_in(&info, "cluster_state")).as_deref() == Some("ok")
}

/// A replica that never finished its first copy is never promoted, so this is worth waiting for.
fn is_in_step(server: &RedisServer) -> bool {
    let Ok(info) = server.try_command::<String>(&["INFO", "replication"]) else { return false };
    match value_in(&info, "role").as_deref() {
        Some("master") => {
            info.lines().all(|line| !line.starts_with("slave") || line.contains("state=online"))
        }
        Some("slave") => value_in(&info, "master_link_status").as_deref() == Some("up"),
        _ => false,
    }
}
