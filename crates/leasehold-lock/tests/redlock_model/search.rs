//! Breadth-first search over all states, each stored as one number.

use crate::world::{Rules, World};

/// A search that needs more than this is not exhaustive, and fails.
const STATES_MAX: usize = 8_000_000;

/// What a search came to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// All states were seen, and none is bad.
    Holds { states: usize },
    /// A bad state can be reached.
    Broken {
        #[expect(dead_code, reason = "shown with the verdict")]
        states: usize,
        #[expect(dead_code, reason = "shown with the verdict")]
        fences: (u8, u8),
    },
}

pub(crate) fn explore(rules: Rules) -> Verdict {
    let first = World::start(rules).canonical();
    let mut seen = Seen::new();
    seen.insert(first);
    let mut queue = vec![first];
    let (mut at, mut next) = (0, Vec::new());
    while let Some(&state) = queue.get(at) {
        at += 1;
        next.clear();
        World::new(state).steps(rules, &mut next);
        for world in &next {
            if let Some(fences) = world.broken() {
                return Verdict::Broken { states: queue.len(), fences };
            }
            let state = world.canonical();
            if seen.insert(state) {
                queue.push(state);
            }
        }
        assert!(queue.len() < STATES_MAX, "too many states to see them all: {rules:?}");
    }
    Verdict::Holds { states: queue.len() }
}

/// A set of numbers other than 0, without the cost that the standard set has in a debug build.
struct Seen {
    table: Vec<u128>,
    count: usize,
}

impl Seen {
    fn new() -> Self {
        Self { table: vec![0; 1 << 16], count: 0 }
    }

    /// True when it was not there before.
    fn insert(&mut self, state: u128) -> bool {
        if 2 * self.count >= self.table.len() {
            let bigger = vec![0; 4 * self.table.len()];
            let old = std::mem::replace(&mut self.table, bigger);
            for state in old {
                if state != 0 {
                    let at = self.place_of(state);
                    self.table[at] = state;
                }
            }
        }
        let at = self.place_of(state);
        let is_new = self.table[at] == 0;
        self.table[at] = state;
        self.count += usize::from(is_new);
        is_new
    }

    /// Where it is, or would be.
    fn place_of(&self, state: u128) -> usize {
        let mixed =
            ((state >> 64) as u64 ^ (state as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.table.len() - 1;
        let mut at = (mixed ^ mixed >> 32) as usize & mask;
        while self.table[at] != 0 && self.table[at] != state {
            at = (at + 1) & mask;
        }
        at
    }
}
