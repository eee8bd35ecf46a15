//! Marks: what tells Redis that an attempt under an idempotency key goes to the ledger, so that a repetition is recognised.
//!
//! Marks are in a few slots, and each slot says from when on it has all of them. Redis may lose marks, but what is in one
//! slot is lost together; and a server that could not write a mark says so later. Where marks may be missing, whoever would
//! be refused is looked up in the ledger first, until they have been written again.

mod restoring;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hashbrown::HashMap;
use uuid::Uuid;

use super::super::connection::{CALL_TIME_MAX, within};
use super::super::shared::{Reader, Shared};
use super::keys::Keys;
use super::lanes::{Away, Lanes, Script};

/// Slots that marks are in. The fewer there are, the more callers share a script; the more, the more evenly a cluster's
/// masters share the marks.
const SLOTS: u8 = 32;
/// As long as the ledger remembers an answer at most. It forgets the oldest sooner if there are more than it keeps, and Redis
/// keeps their marks: whoever asks again then is let through, and asks for the first time.
const MARK_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a slot is told that marks are missing until it has heard.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// An attempt under a key.
#[derive(Debug)]
pub(super) struct Mark {
    slot: u8,
    scope: u128,
    /// A number of its own, so that whoever takes it back, also twice or late, takes back nobody else's.
    attempt: i64,
}

/// What Redis knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// There was an attempt.
    Marked,
    /// There was none.
    Unmarked,
    /// There may have been one.
    Perhaps,
}

/// What a slot is told about the marks before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Before {
    /// There were none. Said once.
    None,
    /// Nobody knows. Said where nothing is known.
    Unknown,
    /// One is missing.
    Missing,
}

/// What a slot is to be told.
type Telling = (u8, Before);

#[derive(Debug)]
pub(super) struct Marks {
    lanes: Arc<Lanes>,
    shared: Arc<Shared>,
    /// What the keys of this ledger begin with, up to the slot.
    ledger: String,
    keys: Keys,
    /// What slots have not been told yet, and how often that was found out.
    untold: Mutex<HashMap<Telling, u64>>,
    /// Somebody sees to it that marks which may be missing are written again.
    restores: AtomicBool,
}

impl Mark {
    /// Of a new attempt.
    pub(super) fn new(scope: u128) -> Self {
        Self::of(scope, Uuid::new_v4().as_u128() as i64)
    }

    fn of(scope: u128, attempt: i64) -> Self {
        let slot = u8::try_from(scope % u128::from(SLOTS)).expect("there are few slots");
        Self { slot, scope, attempt }
    }
}

impl Before {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "n",
            Self::Unknown => "u",
            Self::Missing => "m",
        }
    }
}

impl Marks {
    pub(super) fn new(lanes: Arc<Lanes>, shared: Arc<Shared>, ledger: String) -> Self {
        let (keys, untold, restores) = (Keys::default(), Mutex::default(), AtomicBool::default());
        Self { lanes, shared, ledger, keys, untold, restores }
    }

    /// Before the first request: tells slots of which nothing is known that there were no marks, if nobody has had an answer
    /// under a key from this ledger.
    pub(super) async fn begin(&self) {
        let look = |reader: Arc<Reader>| async move {
            let sql = "SELECT EXISTS (SELECT FROM leasehold.answers)";
            within(CALL_TIME_MAX, reader.client.query_one(sql, &[])).await
        };
        let has_answers = self.shared.read(look).await.map_or(true, |row| row.get(0));
        let before = if has_answers { Before::Unknown } else { Before::None };
        for slot in 0..SLOTS {
            if self.ask(Script::Know, slot, None, vec![before.as_str().to_owned()]).await.is_err() {
                return;
            }
        }
    }

    /// Whether there was an attempt under a key before this one.
    pub(super) async fn find(self: &Arc<Self>, mark: &Mark) -> Result<Found, Away> {
        match self.ask(Script::IsMarked, mark.slot, Some(mark), Vec::new()).await?[..] {
            [1] => Ok(Found::Marked),
            [0] => Ok(Found::Unmarked),
            [2] => {
                self.restore();
                Ok(Found::Perhaps)
            }
            _ => {
                self.tell(mark.slot, Before::Unknown);
                Ok(Found::Perhaps)
            }
        }
    }

    /// Whether the ledger may have an answer under the key.
    pub(super) async fn may_be_known(&self, mark: &Mark) -> bool {
        self.keys.may_be_known(&self.shared, mark.scope).await
    }

    /// Says that there is this attempt.
    pub(super) async fn set(self: &Arc<Self>, mark: &Mark) {
        if self.write(mark).await.is_err() {
            self.tell(mark.slot, Before::Missing);
        }
    }

    async fn write(&self, mark: &Mark) -> Result<(), Away> {
        let args = vec![mark.attempt.to_string(), MARK_TIME.as_millis().to_string()];
        self.ask(Script::Mark, mark.slot, Some(mark), args).await.map(drop)
    }

    /// Says that it did nothing.
    pub(super) async fn take_back(&self, mark: &Mark) {
        let _ = self.ask(Script::Unmark, mark.slot, Some(mark), vec![mark.attempt.to_string()]).await;
    }

    /// Has a slot told, as soon as Redis hears it.
    fn tell(self: &Arc<Self>, slot: u8, before: Before) {
        let telling = (slot, before);
        let found_out = {
            let mut untold = self.untold();
            let times = untold.entry(telling).or_insert(0);
            *times += 1;
            *times
        };
        if found_out > 1 {
            return;
        }
        let marks = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(marks) = marks.upgrade() {
                let _ = marks.tell_now(telling).await;
                if !marks.untold().contains_key(&telling) {
                    return;
                }
                drop(marks);
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
    }

    /// Tells slots what they have not been told, before anything is asked of Redis that rests on it.
    pub(super) async fn tell_all(&self) {
        let untold: Vec<Telling> = self.untold().keys().copied().collect();
        // One that cannot be told, because its server is away, does not keep others from it.
        join_all(untold.into_iter().map(|telling| self.tell_now(telling))).await;
    }

    async fn tell_now(&self, telling: Telling) -> Result<(), Away> {
        let Some(times) = self.untold().get(&telling).copied() else { return Ok(()) };
        let (slot, before) = telling;
        self.ask(Script::Know, slot, None, vec![before.as_str().to_owned()]).await?;
        // Unless it was found out once more meanwhile.
        let mut untold = self.untold();
        if untold.get(&telling) == Some(&times) {
            untold.remove(&telling);
        }
        Ok(())
    }

    fn untold(&self) -> MutexGuard<'_, HashMap<Telling, u64>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(
        &self,
        script: Script,
        slot: u8,
        mark: Option<&Mark>,
        args: Vec<String>,
    ) -> Result<Vec<i64>, Away> {
        let slot_key = format!("leasehold:gate:{{{}.k{slot}}}", self.ledger);
        let key = mark.map(|mark| format!("{slot_key}.{:032x}", mark.scope));
        self.lanes.ask_in(script, slot_key, key, args).await
    }
}
