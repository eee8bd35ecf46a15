//! What many callers ask of one server at the same time goes there as one script.
//!
//! A caller that is alone is served with a command of its own. Those who come meanwhile are put together: one
//! script takes all of them, each decided for itself, and whoever comes while it is under way is in the next.
//! So nobody waits on purpose, and the more callers there are, the less each of them costs the server and
//! this process. Not in a cluster, where a script may touch one slot only; and not for a lock without a fence, which is
//! one plain command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tokio::sync::oneshot;

use super::keys;
use super::link::Link;
use super::script::Lua;
use crate::error::StoreError;

/// Asks in one script. The server does nothing else while it runs.
const ASKS_MAX: usize = 128;
/// Scripts under way at the same time, so that this process prepares one while the server works on another.
const SENDERS_MAX: usize = 2;
/// Asks that wait to be sent; beyond that each goes alone.
const WAITING_MAX: usize = 10_000;

/// Puts asks together.
#[derive(Debug)]
pub(super) struct Batches {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    script: Lua,
    /// A caller is being served with a command of its own.
    is_one_alone: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    asks: VecDeque<(Ask, oneshot::Sender<Answer>)>,
    /// Tasks that send them.
    senders: usize,
    /// One of these tasks is about to take what waits.
    is_collected: bool,
}

/// What one caller wants.
#[derive(Debug)]
pub(super) struct Ask {
    /// The lock, and its queue to free it, or the guard and the counter for a fence.
    pub(super) keys: Vec<String>,
    pub(super) what: What,
    pub(super) owner: String,
    /// How long, in milliseconds; or on which channel to tell of the release.
    pub(super) last: String,
}

/// In the order in which they stand in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Free,
    Fence,
}

type Answer = Result<Value, StoreError>;

/// The right to be served with a command of one's own.
#[derive(Debug)]
pub(super) struct Alone<'a>(&'a AtomicBool);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A task that sends what waits. The accounts are right also when the runtime drops it.
struct Sender {
    inner: Arc<Inner>,
    collects: bool,
    is_counted: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let mut waiting = self.inner.waiting();
        waiting.senders -= 1;
        if self.collects {
            waiting.is_collected = false;
        }
        if waiting.senders == 0 {
            // Nobody is left to send them; whoever waits is told.
            waiting.asks.clear();
        }
    }
}

impl Batches {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let script = Lua::new(include_str!("scripts/batch.lua"));
        let (is_one_alone, waiting) = (AtomicBool::new(false), Mutex::default());
        Self { inner: Arc::new(Inner { link, script, is_one_alone, waiting }) }
    }

    /// `None` when somebody else is served, so that it is better to ask together with others.
    pub(super) fn alone(&self) -> Option<Alone<'_>> {
        if self.inner.waiting().senders > 0 {
            return None;
        }
        let is_one_alone = &self.inner.is_one_alone;
        // Not `then_some`: an `Alone` that is made and thrown away ends somebody else's.
        (!is_one_alone.swap(true, Ordering::Acquire)).then(|| Alone(is_one_alone))
    }

    /// Asks together with others; nil when it must be asked alone.
    pub(super) async fn ask(&self, ask: Ask) -> Answer {
        let (sender, answer) = oneshot::channel();
        let is_collected = {
            let mut waiting = self.inner.waiting();
            if waiting.asks.len() >= WAITING_MAX {
                return Ok(Value::Nil);
            }
            waiting.asks.push_back((ask, sender));
            let is_collected = waiting.is_collected || waiting.senders == SENDERS_MAX;
            if !is_collected {
                (waiting.is_collected, waiting.senders) = (true, waiting.senders + 1);
            }
            is_collected
        };
        if !is_collected {
            // Not under the lock: a runtime that shuts down drops the task at once.
            tokio::spawn(Sender { inner: self.inner.clone(), collects: true, is_counted: true }.run());
        }
        answer.await.unwrap_or_else(|ended| Err(StoreError::Unknown(ended.into())))
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Sends batch after batch, until nothing waits that another task does not take.
    async fn run(mut self) {
        loop {
            // Everybody who is about to ask gets the chance to be in it.
            tokio::task::yield_now().await;
            let (asks, callers) = self.collect();
            if !asks.is_empty() {
                self.send(&asks, callers).await;
            }
            let mut waiting = self.inner.waiting();
            if waiting.asks.is_empty() || waiting.is_collected {
                // Before anybody else can ask, who would rely on it.
                waiting.senders -= 1;
                self.is_counted = false;
                return;
            }
            (waiting.is_collected, self.collects) = (true, true);
        }
    }

    /// The next asks in the order of the script, without those whose callers have gone.
    fn collect(&mut self) -> (Vec<Ask>, Vec<oneshot::Sender<Answer>>) {
        let mut waiting = self.inner.waiting();
        (waiting.is_collected, self.collects) = (false, false);
        let count = waiting.asks.len().min(ASKS_MAX);
        let asks = waiting.asks.drain(..count).filter(|(_, answer)| !answer.is_closed());
        let mut asks: Vec<_> = asks.collect();
        drop(waiting);
        asks.sort_by_key(|(ask, _)| ask.what);
        asks.into_iter().unzip()
    }

    async fn send(&self, asks: &[Ask], callers: Vec<oneshot::Sender<Answer>>) {
        let (freed, taken) = asks.split_at(asks.partition_point(|ask| ask.what == What::Free));
        let mut keys = vec![keys::LINES];
        keys.extend(freed.iter().map(|ask| ask.keys[0].as_str()));
        keys.extend(freed.iter().map(|ask| ask.keys[1].as_str()));
        keys.extend(taken.iter().flat_map(|ask| &ask.keys).map(String::as_str));
        let frees = freed.len().to_string();
        let mut args = vec![frees.as_str()];
        args.extend(freed.iter().map(|ask| ask.owner.as_str()));
        args.extend(freed.iter().map(|ask| ask.last.as_str()));
        args.extend(taken.iter().flat_map(|ask| [ask.owner.as_str(), &ask.last]));
        let answers = self.inner.link.run::<Vec<Value>>(&self.inner.script, &keys, &args).await;
        match answers {
            Ok(answers) if answers.len() == callers.len() => {
                for (caller, answer) in callers.into_iter().zip(answers) {
                    // Whoever has gone meanwhile gives back what it may have got.
                    let _ = caller.send(Ok(answer));
                }
            }
            Ok(answers) => {
                let odd = format!("{} answers to {} asks", answers.len(), callers.len());
                tell_all(callers, &StoreError::Refused(odd.into()));
            }
            Err(error) => tell_all(callers, &error),
        }
    }
}

fn tell_all(callers: Vec<oneshot::Sender<Answer>>, error: &StoreError) {
    for caller in callers {
        let _ = caller.send(Err(error.to_another()));
    }
}
