//! Lanes: what many callers ask about one key at the same time goes to Redis as one script.
//!
//! Whoever comes while a script is under way is in the next one. Nobody waits on purpose, and the more callers there
//! are, the less each of them costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use leasehold_lock::link::{Link, Lua};
use tokio::sync::oneshot;

use super::breaker::Breaker;
use super::meters::GateMeters;

/// An answer that is not there by then is not waited for.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);
/// Asks in one script. Redis does nothing else while it runs.
const ASKS_MAX: usize = 128;
/// Asks that wait for one key; whoever comes then goes straight to the ledger.
const WAITING_MAX: usize = 8_192;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Script {
    Claim,
    Note,
    Units,
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
    breaker: Breaker,
    meters: GateMeters,
    /// The asks that wait, for each key that a task is sending for.
    waiting: Mutex<HashMap<Lane, Vec<Ask>>>,
}

type Lane = (Script, Arc<str>);

#[derive(Debug)]
struct Ask {
    args: Vec<String>,
    answer: oneshot::Sender<Vec<i64>>,
}

impl Lanes {
    pub(super) fn new(link: Link, meters: GateMeters) -> Self {
        Self {
            link,
            claim: Lua::new(include_str!("scripts/claim.lua")),
            note: Lua::new(include_str!("scripts/note.lua")),
            units: Lua::new(include_str!("scripts/units.lua")),
            is_marked: Lua::new("return {{redis.call('EXISTS', KEYS[1])}}"),
            mark: Lua::new("redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) return {}"),
            breaker: Breaker::new(),
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
        if !self.breaker.allows() {
            return Err(Away);
        }
        let (sender, answer) = oneshot::channel();
        let ask = Ask { args, answer: sender };
        let lane: Lane = (script, key.into());
        let is_first = match self.waiting().entry(lane.clone()) {
            Entry::Occupied(waiting) if waiting.get().len() >= WAITING_MAX => return Err(Away),
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push(ask);
                false
            }
            Entry::Vacant(place) => {
                place.insert(vec![ask]);
                true
            }
        };
        if is_first {
            tokio::spawn(Arc::clone(self).send(lane));
        }
        match tokio::time::timeout(ANSWER_TIME_MAX, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            // Whoever sent it has counted the failure.
            Ok(Err(_)) | Err(_) => Err(Away),
        }
    }

    /// Whether Redis is not asked at the moment.
    pub(super) fn is_away(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether a key is marked.
    pub(super) async fn is_marked(&self, key: &str) -> Result<bool, Away> {
        let answers = self.run(&self.is_marked, key, &[]).await?;
        Ok(answers.first().is_some_and(|answer| answer == &[1]))
    }

    /// Marks a key for a while.
    pub(super) async fn mark(&self, key: &str, time: Duration) -> Result<(), Away> {
        self.run(&self.mark, key, &[&time.as_millis().to_string()]).await.map(drop)
    }

    /// Sends batch after batch until nothing waits.
    async fn send(self: Arc<Self>, lane: Lane) {
        let (script, key) = &lane;
        loop {
            // Everybody who is about to ask gets the chance to be in it.
            tokio::task::yield_now().await;
            let Some(asks) = self.next(&lane) else { return };
            let args: Vec<&str> = asks.iter().flat_map(|ask| &ask.args).map(String::as_str).collect();
            let script = match script {
                Script::Claim => &self.claim,
                Script::Note => &self.note,
                Script::Units => &self.units,
            };
            let answers = self.run(script, key, &args).await.unwrap_or_default();
            // Those without an answer learn it from the sender that is dropped.
            for (ask, answer) in asks.into_iter().zip(answers) {
                let _ = ask.answer.send(answer);
            }
        }
    }

    /// The next asks of a lane, without those whose callers have gone; none when the lane has ended.
    fn next(&self, lane: &Lane) -> Option<Vec<Ask>> {
        let mut lanes = self.waiting();
        let waiting = lanes.get_mut(lane)?;
        waiting.retain(|ask| !ask.answer.is_closed());
        if waiting.is_empty() {
            lanes.remove(lane);
            return None;
        }
        let count = waiting.len().min(ASKS_MAX);
        Some(waiting.drain(..count).collect())
    }

    async fn run(&self, script: &Lua, key: &str, args: &[&str]) -> Result<Vec<Vec<i64>>, Away> {
        let keys = [key];
        let running = self.link.run(script, &keys, args);
        let result = match tokio::time::timeout(ANSWER_TIME_MAX, running).await {
            Ok(Ok(answer)) => {
                self.breaker.succeeded();
                Ok(answer)
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the gate failed");
                Err(Away)
            }
            Err(_) => Err(Away),
        };
        if result.is_err() {
            self.meters.failures.inc();
            self.breaker.failed();
        }
        self.meters.up.set(i64::from(!self.breaker.is_open()));
        result
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Lane, Vec<Ask>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
