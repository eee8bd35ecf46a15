//! Which idempotency keys the ledger knows, asked for by all who wait at once.
//!
//! Asked for only where Redis cannot tell repetitions: about units while it may have lost what tells them, and about best seats
//! when there are none.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashSet;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::super::connection::{CALL_TIME_MAX, within};
use super::super::shared::{Reader, Shared};

/// Keys in one question.
const KEYS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Keys {
    waiting: Mutex<Vec<(Uuid, oneshot::Sender<bool>)>>,
    /// Whoever asks.
    turn: tokio::sync::Mutex<()>,
}

impl Keys {
    /// Whether the ledger may have an answer under a key.
    pub(super) async fn may_be_known(&self, shared: &Shared, scope: u128) -> bool {
        let (sender, mut answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((Uuid::from_u128(scope), sender));
        let _turn = self.turn.lock().await;
        // Whoever had the turn before asked for this one too, or this one asks for all.
        loop {
            match answer.try_recv() {
                Ok(is_known) => return is_known,
                Err(oneshot::error::TryRecvError::Empty) => self.ask(shared).await,
                // Whoever asked went away in the middle of it.
                Err(oneshot::error::TryRecvError::Closed) => return true,
            }
        }
    }

    async fn ask(&self, shared: &Shared) {
        let asked: Vec<(Uuid, oneshot::Sender<bool>)> = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let count = waiting.len().min(KEYS_MAX);
            waiting.drain(..count).collect()
        };
        let scopes: &Vec<Uuid> = &asked.iter().map(|(scope, _)| *scope).collect();
        let look = |reader: Arc<Reader>| async move {
            let sql = "SELECT scope FROM leasehold.answers WHERE scope = ANY ($1)";
            within(CALL_TIME_MAX, reader.client.query(sql, &[scopes])).await
        };
        let known: Option<HashSet<Uuid>> =
            shared.read(look).await.ok().map(|rows| rows.iter().map(|row| row.get(0)).collect());
        for (scope, caller) in asked {
            let _ = caller.send(known.as_ref().is_none_or(|known| known.contains(&scope)));
        }
    }
}
