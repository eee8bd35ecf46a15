//! The one thread of this process that touches the file.
//!
//! It takes whatever was asked meanwhile, answers it in one transaction, and looks from time to time whether
//! another process has changed the file, for those who wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::table::Table;
use crate::backend::{Attempt, Held, ListQuery, Page, Released, Renewed};
use crate::bells::Bells;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::lease::LeaseView;
use crate::name::LockName;

/// Commands of one transaction.
const BATCH_MAX: usize = 256;
/// How often to look for changes by others while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How soon somebody new is noticed who waits.
const LOOK_FOR_WAITERS_EVERY: Duration = Duration::from_millis(50);

/// Somebody who wants an answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What can be asked.
pub(super) enum Ask {
    Acquire(Held, Reply<Attempt>),
    Renew(Vec<Held>, Reply<Vec<Renewed>>),
    Release(Held, Reply<Released>),
    Inspect(LockName, Reply<Option<LeaseView>>),
    List(ListQuery, Reply<Page>),
}

/// An answer that is given when the transaction is committed.
type Answer = Box<dyn FnOnce(Result<(), &str>)>;

pub(super) struct Worker {
    pub(super) connection: Connection,
    pub(super) clock: Clock,
    pub(super) bells: Bells,
    pub(super) asked: Receiver<Ask>,
}

impl Worker {
    pub(super) fn run(mut self) {
        let (mut version, mut looked_at) = (self.data_version(), Instant::now());
        loop {
            let patience = if self.bells.is_quiet() { LOOK_FOR_WAITERS_EVERY } else { LOOK_EVERY };
            match self.asked.recv_timeout(patience) {
                Ok(first) => {
                    let mut batch = vec![first];
                    batch.extend(self.asked.try_iter().take(BATCH_MAX - 1));
                    self.answer(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Also when there is always something to do.
            if !self.bells.is_quiet() && looked_at.elapsed() >= LOOK_EVERY {
                (looked_at, version) = (Instant::now(), self.ring_after(version));
            }
        }
    }

    /// Wakes whoever waits if another process has committed something since; returns the version now.
    fn ring_after(&self, version: i64) -> i64 {
        let now = self.data_version();
        if now != version {
            self.bells.ring_all();
        }
        now
    }

    /// Changes whenever another process commits.
    fn data_version(&self) -> i64 {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap_or_default()
    }

    fn answer(&mut self, batch: Vec<Ask>) {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let table = match transaction {
            // It may have waited for another process, and leases end meanwhile.
            Ok(transaction) => Table { transaction, now: self.clock.now() },
            Err(error) => {
                let text = error.to_string();
                return batch.into_iter().for_each(|ask| ask.fail(&text));
            }
        };
        let mut outcome = Outcome::default();
        let answers: Vec<Answer> = batch.into_iter().map(|ask| ask.answer(&table, &mut outcome)).collect();
        // What failed may have done a part: then nothing of this transaction stays.
        let committed = match outcome.failure {
            None => table.transaction.commit().map_err(|error| error.to_string()),
            Some(failure) => Err(failure),
        };
        for answer in answers {
            answer(committed.as_ref().copied().map_err(String::as_str));
        }
        for what in outcome.rings {
            self.bells.ring(&what);
        }
    }
}

/// What came of a batch.
#[derive(Default)]
struct Outcome {
    /// Who is to be woken.
    rings: Vec<String>,
    /// The first failure, if there was one.
    failure: Option<String>,
}

impl Ask {
    fn answer(self, table: &Table<'_>, outcome: &mut Outcome) -> Answer {
        match self {
            Self::Acquire(held, reply) => outcome.answer(reply, table.acquire(&held)),
            Self::Renew(leases, reply) => {
                outcome.answer(reply, leases.iter().map(|held| table.renew(held)).collect())
            }
            Self::Release(held, reply) => {
                let released = table.release(&held).map(|(released, next)| {
                    outcome.rings.extend(next);
                    outcome.rings.extend(held.names.as_slice().iter().map(|name| name.as_str().to_owned()));
                    released
                });
                outcome.answer(reply, released)
            }
            Self::Inspect(name, reply) => outcome.answer(reply, table.view(&name)),
            Self::List(query, reply) => outcome.answer(reply, table.page(&query)),
        }
    }

    fn fail(self, error: &str) {
        match self {
            Self::Acquire(_, reply) => unanswered(reply, error),
            Self::Renew(_, reply) => unanswered(reply, error),
            Self::Release(_, reply) => unanswered(reply, error),
            Self::Inspect(_, reply) => unanswered(reply, error),
            Self::List(_, reply) => unanswered(reply, error),
        }
    }
}

impl Outcome {
    /// Answers when it is known whether the transaction was committed. Nobody may be there any more to hear it.
    fn answer<T: 'static>(&mut self, reply: Reply<T>, result: rusqlite::Result<T>) -> Answer {
        if let Err(error) = &result {
            self.failure.get_or_insert_with(|| error.to_string());
        }
        Box::new(move |committed| match (committed, result) {
            (Ok(()), Ok(value)) => _ = reply.send(Ok(value)),
            (Ok(()), Err(error)) => unanswered(reply, &error.to_string()),
            (Err(error), _) => unanswered(reply, error),
        })
    }
}

fn unanswered<T>(reply: Reply<T>, error: &str) {
    let _ = reply.send(Err(StoreError::Unknown(error.into())));
}
