//! Who is told what servers say on their own, and on which channels they are heard.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};

use crate::bells::Bells;
use crate::redlock::Tally;

/// Who is told what the servers say on their own.
#[derive(Debug, Clone)]
pub(crate) enum Ears {
    Bells(Bells),
    Tally { tally: Arc<Tally>, node: usize },
}

/// The channels that this process hears.
#[derive(Debug, Default)]
pub(super) struct Channels {
    names: Mutex<HashSet<Arc<str>>>,
    /// One of them is not heard any more, although somebody may wait for what is said there.
    pub(super) is_one_lost: AtomicBool,
}

impl Channels {
    pub(super) fn names(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes on what the server says on its own. After a broken connection something may be lost, and a slot
/// that moved to another node is not told of any more.
pub(super) fn pushes(
    ears: Ears,
    channels: Arc<Channels>,
) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + Send + Sync + 'static {
    move |push| {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(what), ..]) => {
                ears.heard(&String::from_utf8_lossy(what));
            }
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                let channel = String::from_utf8_lossy(channel);
                // Also said when this process left it, because nobody waits for it.
                if channels.names().remove(&*channel) | ears.bells().channels().contains(&*channel) {
                    channels.is_one_lost.store(true, Ordering::Relaxed);
                }
                ears.missed();
            }
            (PushKind::Disconnection, _) => {
                channels.is_one_lost.store(true, Ordering::Relaxed);
                ears.missed();
            }
            _ => {}
        }
        Ok(())
    }
}

impl Ears {
    fn heard(&self, what: &str) {
        match self {
            Self::Bells(bells) => bells.ring(what),
            Self::Tally { tally, node } => tally.heard(*node, what),
        }
    }

    pub(super) fn missed(&self) {
        match self {
            Self::Bells(bells) => bells.ring_all(),
            Self::Tally { tally, .. } => tally.missed(),
        }
    }

    pub(super) fn bells(&self) -> &Bells {
        match self {
            Self::Bells(bells) => bells,
            Self::Tally { tally, .. } => tally.bells(),
        }
    }
}
