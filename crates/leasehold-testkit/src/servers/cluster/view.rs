//! What one node thinks of the cluster: the answer to `CLUSTER NODES`, read.

use std::ops::RangeInclusive;

/// One node's word on all nodes.
#[derive(Debug)]
pub(crate) struct View {
    nodes: Vec<Seen>,
}

/// One node as another sees it.
#[derive(Debug)]
struct Seen {
    id: String,
    flags: Vec<String>,
    /// Whom it copies, if it is a replica.
    master: Option<String>,
    /// The higher, the newer is its claim to its slots.
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    pub(crate) fn parse(text: &str) -> Self {
        Self { nodes: text.lines().filter_map(Seen::parse).collect() }
    }

    /// True when `id` is known, and not only as an address.
    pub(crate) fn is_met(&self, id: &str) -> bool {
        self.seen(id).is_some_and(|seen| !seen.has("handshake") && !seen.has("noaddr"))
    }

    /// Whom `id` copies; `None` when it is a master.
    pub(crate) fn master_of(&self, id: &str) -> Option<String> {
        self.seen(id).and_then(|seen| seen.master.clone())
    }

    fn seen(&self, id: &str) -> Option<&Seen> {
        self.nodes.iter().find(|seen| seen.id == id)
    }
}

impl Seen {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _address, flags, master, _ping, _pong, epoch, _link, slots @ ..] = words.as_slice() else {
            return None;
        };
        Some(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master != "-").then(|| (*master).to_owned()),
            epoch: epoch.parse().ok()?,
            // In brackets stands what is moving, which is not yet anybody else's.
            slots: slots.iter().filter_map(|slots| range(slots)).collect(),
        })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }
}

/// Who has a slot, by the newest claim in any of the views.
pub(crate) fn owner_of(views: &[View], slot: u16) -> Option<String> {
    let seen = views.iter().flat_map(|view| &view.nodes);
    let claims = seen.filter(|seen| seen.slots.iter().any(|range| range.contains(&slot)));
    claims.max_by_key(|seen| seen.epoch).map(|seen| seen.id.clone())
}

/// True when all views say the same about the nodes `ids`, and none doubts that they are alive.
pub(crate) fn agree(views: &[View], ids: &[&str]) -> bool {
    let all_alive = views.iter().all(|view| {
        ids.iter().all(|id| {
            view.is_met(id) && view.seen(id).is_some_and(|seen| !seen.has("fail") && !seen.has("fail?"))
        })
    });
    let roles = |view: &View| -> Vec<_> {
        ids.iter().map(|id| view.seen(id).map(|seen| (seen.master.clone(), seen.slots.clone()))).collect()
    };
    let mut roles = views.iter().map(roles);
    let first = roles.next();
    all_alive && roles.all(|other| Some(other) == first)
}

fn range(slots: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
aa 127.0.0.1:10001@20001 myself,slave bb 0 0 2 connected
bb 127.0.0.1:10002@20002 master - 0 1 2 connected 0-5460 5462 [5461-<-cc]
cc 127.0.0.1:10003@20003 master - 0 1 3 connected 5461 5463-16383
";
    const NEW: &str = "\
aa 127.0.0.1:10001@20001 myself,master - 0 0 7 connected 0-5460 5462
bb 127.0.0.1:10002@20002 master,fail - 0 1 2 disconnected
cc 127.0.0.1:10003@20003 master - 0 1 3 connected 5461 5463-16383
";

    #[test]
    fn the_newest_claim_to_a_slot_counts() {
        let views = [View::parse(OLD), View::parse(NEW)];
        assert_eq!(owner_of(&views[..1], 5462).as_deref(), Some("bb"));
        assert_eq!(owner_of(&views, 5462).as_deref(), Some("aa"));
        assert_eq!(owner_of(&views, 5461).as_deref(), Some("cc"));
    }

    #[test]
    fn nodes_agree_when_nobody_is_doubted_and_all_say_the_same() {
        assert!(agree(&[View::parse(OLD), View::parse(OLD)], &["aa", "bb", "cc"]));
        assert!(!agree(&[View::parse(OLD), View::parse(NEW)], &["aa", "cc"]));
        assert!(agree(&[View::parse(NEW)], &["aa", "cc"]));
        assert!(!agree(&[View::parse(NEW)], &["aa", "bb", "cc"]));
    }
}
