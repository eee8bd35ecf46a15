//! Failovers: planned, after a crash, and one that loses writes that were answered.

use super::{ClusterNode, RedisCluster};

/// A master whose replica is cut off: what is written to it now is lost in [`RedisCluster::fail_over`].
#[derive(Debug)]
#[must_use = "nothing is lost before `fail_over`"]
pub struct LostWrites {
    /// The node that will be killed, with all that was written to it since.
    pub master: ClusterNode,
    /// The node that will take over. It stands still.
    pub replica: ClusterNode,
}

impl RedisCluster {
    /// Cuts the replica off the master of `key`. What was answered before this call is on the replica; what
    /// is answered from now on will be lost.
    ///
    /// A replica that is only paused finds the missed writes in its socket when it goes on, so the master
    /// also closes the connection.
    pub fn begin_lost_writes(&mut self, key: &str) -> LostWrites {
        let (master, replica) = (self.master_of(key), self.replica_of(key));
        let written: u64 = parsed(&self.server(master).info("replication", "master_repl_offset"));
        self.wait_until("the replica has what was written so far", |cluster| {
            let copied = cluster.server(replica).info("replication", "slave_repl_offset");
            copied.parse().is_ok_and(|copied: u64| copied >= written)
        });
        self.server_mut(replica).pause();
        let killed: u32 = self.server(master).command(&["CLIENT", "KILL", "TYPE", "replica"]);
        assert_eq!(killed, 1, "the master had one connection to its replica");
        self.wait_until("the master has lost its replica", |cluster| {
            cluster.server(master).info("replication", "connected_slaves") == "0"
        });
        LostWrites { master, replica }
    }

    /// Kills the master, lets the replica go on, and waits until it has taken over. Returns the new master.
    pub fn fail_over(&mut self, cut: LostWrites) -> ClusterNode {
        let LostWrites { master, replica } = cut;
        let replicas = self.server(master).info("replication", "connected_slaves");
        assert_eq!(replicas, "0", "the replica came back: nothing would be lost");
        self.server_mut(master).kill9();
        self.server_mut(replica).resume();
        self.wait_for_promotion(replica);
        replica
    }

    /// Kills the master of `key` and waits until its replica has taken over. Returns the new master.
    pub fn kill_master(&mut self, key: &str) -> ClusterNode {
        let (master, replica) = (self.master_of(key), self.replica_of(key));
        self.server_mut(master).kill9();
        self.wait_for_promotion(replica);
        replica
    }

    /// Lets master and replica of `key` change places without losing a write. Returns the new master.
    pub fn planned_failover(&mut self, key: &str) -> ClusterNode {
        let replica = self.replica_of(key);
        let () = self.server(replica).command(&["CLUSTER", "FAILOVER"]);
        self.wait_for_promotion(replica);
        replica
    }

    fn wait_for_promotion(&self, replica: ClusterNode) {
        self.wait_until("the replica is promoted", |cluster| {
            cluster.server(replica).info("replication", "role") == "master" && cluster.is_settled()
        });
    }
}

fn parsed(number: &str) -> u64 {
    number.parse().unwrap_or_else(|error| panic!("`{number}` is no offset: {error}"))
}
