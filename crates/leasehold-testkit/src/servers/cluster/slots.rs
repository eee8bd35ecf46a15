//! Moves slots from one master to another, as an operator does while the cluster is in use.

use redis::RedisResult;

use super::{ClusterNode, RedisCluster, Slot};

/// How many keys go at once when a whole slot is moved.
const KEYS_PER_STEP: usize = 10;
/// How long the two nodes may take for one step.
const STEP_TIME_MAX_MS: &str = "5000";

/// A slot on its way: some of its keys are still on the old node, some already on the new one.
#[derive(Debug)]
#[must_use = "the slot is on its way until `finish_slot_move`"]
pub struct SlotMove {
    /// The slot.
    pub slot: Slot,
    /// The node that gives it away.
    pub from: ClusterNode,
    /// The node that gets it.
    pub to: ClusterNode,
    /// How many keys have gone so far.
    pub keys_moved: usize,
}

impl RedisCluster {
    /// Moves a slot with all its keys to another master. Returns how many keys went.
    pub fn move_slot(&self, slot: Slot, to: ClusterNode) -> usize {
        let moving = self.begin_slot_move(slot, to);
        self.finish_slot_move(moving)
    }

    /// Opens a slot for its move to another master: from now on its new keys are made there.
    pub fn begin_slot_move(&self, slot: Slot, to: ClusterNode) -> SlotMove {
        let from = self.master_of_slot(slot);
        assert_ne!(from, to, "the slot is there already");
        let number = slot.number().to_string();
        let () = self.server(to).command(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &self.ids[from.0]]);
        let () = self.server(from).command(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &self.ids[to.0]]);
        SlotMove { slot, from, to, keys_moved: 0 }
    }

    /// Moves at most `keys_max` keys of a slot on its way. Returns how many went, 0 when none is left.
    pub fn move_some_keys(&self, moving: &mut SlotMove, keys_max: usize) -> usize {
        let (number, count) = (moving.slot.number().to_string(), keys_max.to_string());
        let from = self.server(moving.from);
        let keys: Vec<String> = from.command(&["CLUSTER", "GETKEYSINSLOT", &number, &count]);
        if !keys.is_empty() {
            let port = self.server(moving.to).peer_port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", STEP_TIME_MAX_MS, "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            let () = from.command(&words);
            moving.keys_moved += keys.len();
        }
        keys.len()
    }

    /// Moves what is left of a slot, gives it to its new master, and waits until every node knows.
    /// Returns how many keys went in all.
    pub fn finish_slot_move(&self, mut moving: SlotMove) -> usize {
        while self.move_some_keys(&mut moving, KEYS_PER_STEP) > 0 {}
        let (number, owner) = (moving.slot.number().to_string(), &self.ids[moving.to.0]);
        let words = ["CLUSTER", "SETSLOT", &number, "NODE", owner];
        // The new master first: a node that lost a slot sends everybody to whom it believes to have it.
        for node in [moving.to, moving.from] {
            let () = self.server(node).command(&words);
        }
        for node in self.masters().into_iter().filter(|node| ![moving.to, moving.from].contains(node)) {
            // The others hear of it from the new master too; this only saves their clients a detour.
            let _: RedisResult<()> = self.server(node).try_command(&words);
        }
        self.wait_until("every node knows the slot's new master", |cluster| {
            cluster.master_of_slot(moving.slot) == moving.to && cluster.is_settled()
        });
        moving.keys_moved
    }
}
