//! A cluster whose clients come through proxies, also to the nodes that they are sent on to.

use super::RedisCluster;
use crate::servers::FaultProxy;

impl RedisCluster {
    /// Puts a proxy in front of every node, and waits until the nodes name only the proxies to clients and to each
    /// other. Replicas copy through them, too; what the nodes agree on goes its own way.
    pub async fn put_behind_proxies(&self) -> Vec<FaultProxy> {
        let mut proxies = Vec::new();
        for node in &self.nodes {
            let proxy = FaultProxy::start(node.address()).await;
            let () = node.command(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
            proxies.push(proxy);
        }
        let names_all = |view: String| proxies.iter().all(|proxy| view.contains(&proxy.address()));
        self.wait_until("every node names the proxies", |cluster| {
            cluster.nodes.iter().all(|node| node.try_command(&["CLUSTER", "NODES"]).is_ok_and(names_all))
        });
        self.wait_until_settled();
        proxies
    }
}
