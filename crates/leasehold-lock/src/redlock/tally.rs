//! Ringing when most servers have told of a release, not at the first: before that the lock is not free.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::bells::Bells;

/// Which servers have told of the release of what.
#[derive(Debug)]
pub(crate) struct Tally {
    bells: Bells,
    quorum: usize,
    heard: Mutex<HashMap<String, u64>>,
}

impl Tally {
    pub(super) fn new(bells: Bells, quorum: usize) -> Self {
        Self { bells, quorum, heard: Mutex::default() }
    }

    /// A server told of a release.
    pub(crate) fn heard(&self, node: usize, what: &str) {
        if self.bells.watchers(what) == 0 {
            return;
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody waits for any more need not be remembered.
        heard.retain(|other, _| self.bells.watchers(other) > 0);
        let nodes = heard.entry(what.to_owned()).or_default();
        *nodes |= 1 << node;
        if nodes.count_ones() as usize >= self.quorum {
            heard.remove(what);
            self.bells.ring(what);
        }
    }

    pub(crate) fn bells(&self) -> &Bells {
        &self.bells
    }

    /// A server's messages may have been missed.
    pub(crate) fn missed(&self) {
        self.bells.ring_all();
    }
}
