//! Lanes: what many callers ask about one key at the same time goes to Redis as one script.
//!
//! Whoever comes while a script is under way is in the next one. Only where several come at a time is a moment waited
//! for more of them, so the more callers there are, the less each of them costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::hash_map::Entry;
use hashbrown::{Equivalent, HashMap};
use leasehold_lock::link::{Link, Lua, SLOTS, slot};
use tokio::sync::{Notify, oneshot};

use super::breaker::Breaker;
use super::meters::GateMeters;

/// An answer that is not there by then is not waited for.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);
/// Asks in one script. Redis does nothing else while it runs.
const ASKS_MAX: usize = 128;
/// Where several ask about a key at a time, as many as this are waited for, and this long: a script has a price of its own,
/// which is several times that of what is asked in it.
const GATHERED: usize = 8;
const GATHER_TIME: Duration = Duration::from_millis(1);
/// Asks that wait for one key; whoever comes then goes straight to the ledger.
const WAITING_MAX: usize = 8_192;
/// Parts of a cluster's slots, each with a breaker of its own: a master that is away concerns its own slots.
const PARTS: usize = 16;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Script {
    Claim,
    Note,
    Units,
    IsMarked,
    Mark,
    Unmark,
    Know,
}

/// Redis did not answer, or is not asked at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Away;

#[derive(Debug)]
pub(super) struct Lanes {
    link: Link,
    claim: Lua,
    note: Lua,
    units: Lua,
    is_marked: Lua,
    mark: Lua,
    unmark: Lua,
    know: Lua,
    breakers: Vec<Breaker>,
    meters: GateMeters,
    /// The asks that wait, for each key that a task is sending for.
    waiting: Mutex<HashMap<Lane, Waiting>>,
}

type Lane = (Script, Arc<str>);

/// A lane by its name, to look for.
#[derive(Hash)]
struct Named<'a>(Script, &'a str);

impl Equivalent<Lane> for Named<'_> {
    fn equivalent(&self, (script, key): &Lane) -> bool {
        self.0 == *script && *self.1 == **key
    }
}

#[derive(Debug)]
struct Waiting {
    asks: Vec<Ask>,
    /// Told when enough have gathered.
    enough: Arc<Notify>,
}

#[derive(Debug)]
struct Ask {
    /// What it is about besides the lane's own key: another one in its slot.
    about: Option<String>,
    args: Vec<String>,
    answer: oneshot::Sender<Vec<i64>>,
}

impl Lanes {
    pub(super) fn new(link: Link, meters: GateMeters) -> Self {
        let parts = if link.is_cluster() { PARTS } else { 1 };
        Self {
            link,
            claim: Lua::new(concat!(include_str!("scripts/section.lua"), include_str!("scripts/claim.lua"))),
            note: Lua::new(concat!(include_str!("scripts/section.lua"), include_str!("scripts/note.lua"))),
            units: Lua::new(include_str!("scripts/units.lua")),
            is_marked: Lua::new(include_str!("scripts/is_marked.lua")),
            mark: Lua::new(include_str!("scripts/mark.lua")),
            unmark: Lua::new(include_str!("scripts/unmark.lua")),
            know: Lua::new(include_str!("scripts/know.lua")),
            breakers: std::iter::repeat_with(Breaker::new).take(parts).collect(),
            meters,
            waiting: Mutex::default(),
        }
    }

    /// Asks together with whoever else asks this about the key.
    pub(super) async fn ask(
        self: &Arc<Self>,
        script: Script,
        key: String,
        args: Vec<String>,
    ) -> Result<Vec<i64>, Away> {
        self.ask_in(script, key, None, args).await
    }

    /// The same about one more key of the same slot.
    pub(super) async fn ask_in(
        self: &Arc<Self>,
        script: Script,
        key: String,
        about: Option<String>,
        args: Vec<String>,
    ) -> Result<Vec<i64>, Away> {
        if !self.breaker(&key).allows() {
            return Err(Away);
        }
        let (sender, answer) = oneshot::channel();
        let ask = Ask { about, args, answer: sender };
        let lane: Lane = (script, key.into());
        match self.waiting().entry(lane.clone()) {
            Entry::Occupied(waiting) if waiting.get().asks.len() >= WAITING_MAX => return Err(Away),
            Entry::Occupied(mut waiting) => {
                let waiting = waiting.get_mut();
                waiting.asks.push(ask);
                if waiting.asks.len() == GATHERED {
                    waiting.enough.notify_one();
                }
            }
            Entry::Vacant(place) => {
                let waiting = place.insert(Waiting { asks: vec![ask], enough: Arc::default() });
                tokio::spawn(Arc::clone(self).send(lane, Arc::clone(&waiting.enough)));
            }
        }
        match tokio::time::timeout(ANSWER_TIME_MAX, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            // Whoever sent it has counted the failure.
            Ok(Err(_)) | Err(_) => Err(Away),
        }
    }

    /// Whether keys are on several servers.
    pub(super) fn are_spread(&self) -> bool {
        self.link.is_cluster()
    }

    /// Whether more ask about a key than the next script takes.
    pub(super) fn is_crowded(&self, script: Script, key: &str) -> bool {
        self.waiting().get(&Named(script, key)).is_some_and(|waiting| waiting.asks.len() >= ASKS_MAX)
    }

    /// Whether Redis is not asked about this key at the moment.
    pub(super) fn is_away(&self, key: &str) -> bool {
        self.breaker(key).is_open()
    }

    /// Sends batch after batch until nothing waits.
    async fn send(self: Arc<Self>, lane: Lane, enough: Arc<Notify>) {
        let (script, key) = lane.clone();
        let mut several = false;
        loop {
            if several {
                let _ = tokio::time::timeout(GATHER_TIME, enough.notified()).await;
            } else {
                // Everybody who is about to ask gets the chance to be in it.
                tokio::task::yield_now().await;
            }
            let Some(mut asks) = self.next(&lane) else { return };
            several = asks.len() > 1;
            let about = asks.iter_mut().filter_map(|ask| ask.about.take());
            let keys = std::iter::once(key.to_string()).chain(about).collect();
            let args = asks.iter_mut().flat_map(|ask| std::mem::take(&mut ask.args)).collect();
            let answers = self.run(script, keys, args).await.unwrap_or_default();
            // Those without an answer learn it from the sender that is dropped.
            for (ask, answer) in asks.into_iter().zip(answers) {
                let _ = ask.answer.send(answer);
            }
        }
    }

    /// The next asks of a lane, without those whose callers have gone; none when the lane has ended.
    fn next(&self, lane: &Lane) -> Option<Vec<Ask>> {
        let mut lanes = self.waiting();
        let Waiting { asks, enough } = lanes.get_mut(lane)?;
        asks.retain(|ask| !ask.answer.is_closed());
        if asks.is_empty() {
            lanes.remove(lane);
            return None;
        }
        let next = asks.drain(..asks.len().min(ASKS_MAX)).collect();
        if asks.len() >= GATHERED {
            enough.notify_one();
        }
        Some(next)
    }

    /// Runs a script about keys of one slot. A call that takes too long is not waited for, but goes on: its end tells the link what is wrong, and
    /// a connection that is slow to come does come. A cluster's client would go on with every call that nobody waits for,
    /// so these end, which tells the link.
    async fn run(
        self: &Arc<Self>,
        script: Script,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> Result<Vec<Vec<i64>>, Away> {
        let (lanes, breaker) = (Arc::clone(self), self.breaker(&keys[0]));
        let mut running = tokio::spawn(async move { lanes.link.run(lanes.text(script), &keys, &args).await });
        let result = match tokio::time::timeout(ANSWER_TIME_MAX, &mut running).await {
            Ok(Ok(Ok(answer))) => {
                breaker.succeeded();
                Ok(answer)
            }
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "the gate failed");
                Err(Away)
            }
            Ok(Err(_)) | Err(_) => Err(Away),
        };
        if result.is_err() {
            if self.link.is_cluster() && self.link.is_connected() {
                running.abort();
            }
            self.meters.failures.inc();
            breaker.failed();
        }
        self.meters.up.set(i64::from(!self.breakers.iter().any(Breaker::is_open)));
        result
    }

    fn text(&self, script: Script) -> &Lua {
        match script {
            Script::Claim => &self.claim,
            Script::Note => &self.note,
            Script::Units => &self.units,
            Script::IsMarked => &self.is_marked,
            Script::Mark => &self.mark,
            Script::Unmark => &self.unmark,
            Script::Know => &self.know,
        }
    }

    fn breaker(&self, key: &str) -> &Breaker {
        &self.breakers[usize::from(slot(key)) * self.breakers.len() / usize::from(SLOTS)]
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Lane, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
