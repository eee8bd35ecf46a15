//! Redlock: one lock over several independent Redis servers, held by whoever has it on most of them. With
//! fences.
//!
//! All servers are asked at the same time. A lock counts when most of the *configured* servers gave it, and
//! enough of its time is left. A second round then agrees on fences: each server accepts only a number that
//! is strictly higher than all it has accepted, and most must accept. Two acquisitions that succeed share a
//! server, so their fences differ, and the later one's is higher: no clock is needed for that. A server that
//! may have forgotten what it agreed to does not vote until its counters were copied from the others, see
//! `admission.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::AbortHandle;

mod admission;
mod inspect;
mod node;
mod tally;

pub(crate) use node::STATE;
use node::{Counted, Node, Said};
pub(crate) use tally::Tally;

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::lease::{Busy, Fence, Grant, Guarantee, Guarantees, LeaseView, Ttl};
use crate::name::LockName;
use crate::owner::Owner;
use crate::redis::keys::{self, Keys};
use crate::redis::link::{Ears, Lua};
use crate::redis::{BadRedisUrl, PREFIX_DEFAULT, url};

/// One acquisition takes no longer than this, whatever its length. A quarantine lasts longer.
const ACQUIRE_TIME_MAX: Duration = Duration::from_secs(2);
/// How often new fences are proposed when others were faster.
const PROPOSALS_MAX: u32 = 8;
/// Counters per server: names share them, so their number does not grow with the names.
const COUNTERS: u16 = 1_024;
/// More servers make no sense, and one word has room for their votes.
const SERVERS_MAX: usize = 63;
/// Owners whose releases wait to be repeated; beyond that their locks end by themselves.
const REPEATS_MAX: usize = 10_000;
/// A server that did not answer a release is told again after this.
const RELEASE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Locks over several independent Redis servers.
#[derive(Debug)]
pub struct Redlock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<Arc<Node>>,
    keys: Keys,
    clock: Clock,
    bells: Bells,
    release: Lua,
    renew: Lua,
    /// One look at the set at a time.
    admission: tokio::sync::Mutex<()>,
    /// Releases that are to be repeated, by owner.
    repeats: Mutex<HashMap<Owner, Vec<AbortHandle>>>,
}

/// Why a URL names no set of servers.
#[derive(Debug, thiserror::Error)]
pub enum BadRedlock {
    /// One of the addresses.
    #[error("not the addresses of Redis servers")]
    Address(#[source] BadRedisUrl),
    /// The same server twice would have two votes.
    #[error("the server {0} is named twice")]
    Twice(String),
    /// Too many.
    #[error("at most {SERVERS_MAX} servers")]
    TooMany,
}

/// What most of the servers made of a request.
struct Votes {
    voted: Vec<Vec<Counted>>,
    held: Option<Busy>,
    failed: Option<StoreError>,
}

impl Redlock {
    /// Locks over the servers of `redlock://h1:6379,h2:6379,h3:6379`. Nothing is connected yet.
    pub fn open(url: &str) -> Result<Self, BadRedlock> {
        let (servers, _) = url::several(url).map_err(BadRedlock::Address)?;
        if servers.len() > SERVERS_MAX {
            return Err(BadRedlock::TooMany);
        }
        let count = servers.len();
        let bells = Bells::default();
        let tally = Arc::new(Tally::new(bells.clone(), quorum_of(count)));
        let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(count);
        for (index, server) in servers.into_iter().enumerate() {
            let ears = Ears::Tally { tally: tally.clone(), node: index };
            let node = Node::new(server, count, ears);
            if nodes.iter().any(|other| other.address == node.address) {
                return Err(BadRedlock::Twice(node.address));
            }
            nodes.push(Arc::new(node));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                nodes,
                keys: Keys::new(PREFIX_DEFAULT),
                clock: Clock::system(),
                bells,
                release: Lua::new(include_str!("../redis/scripts/release.lua")),
                renew: Lua::new(include_str!("../redis/scripts/renew.lua")),
                admission: tokio::sync::Mutex::default(),
                repeats: Mutex::default(),
            }),
        })
    }

    /// The same, with another prefix of the keys.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.keys = Keys::new(prefix);
        }
        self
    }
}

/// More than half of the servers that were configured, reachable or not.
fn quorum_of(servers: usize) -> usize {
    servers / 2 + 1
}

/// How long one server may take to answer.
fn node_time_max(ttl: Ttl) -> Duration {
    (ttl.length() / 4).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// The counter that a name shares with others.
fn counter(lock: &str) -> String {
    format!("c:{}", keys::slot(lock) % COUNTERS)
}

impl Inner {
    fn quorum(&self) -> usize {
        quorum_of(self.nodes.len())
    }

    /// First phase, on all servers at once. Returns as soon as the outcome cannot change any more, but gives
    /// servers that are about to answer the chance to count.
    async fn votes(&self, request: &Request<'_>, keys: &[String], args: &[&str]) -> Votes {
        let time_max = node_time_max(request.ttl);
        let mut answers: FuturesUnordered<_> =
            self.nodes.iter().map(|node| tokio::time::timeout(time_max, node.vote(keys, args))).collect();
        let mut votes = Votes { voted: Vec::new(), held: None, failed: None };
        let mut against = 0;
        while let Some(answer) = answers.next().await {
            let said = answer.unwrap_or_else(|late| Err(StoreError::Unknown(late.into())));
            against += usize::from(!matches!(said, Ok(Said::Voted(_))));
            match said {
                Ok(Said::Voted(counters)) => votes.voted.push(counters),
                Ok(Said::Held { index, remaining }) => {
                    let name = request.names.as_slice().get(index).unwrap_or(request.names.first());
                    let longest = votes.held.as_ref().and_then(|busy| busy.remaining).max(remaining);
                    votes.held = Some(Busy { name: name.clone(), remaining: longest, ahead: None });
                }
                Ok(Said::OtherMembers(number)) => {
                    let text = format!("this server belongs to a set of {number}");
                    votes.failed = Some(StoreError::Refused(text.into()));
                }
                Ok(Said::Out | Said::Agreed | Said::TooLow(_) | Said::Lost) => {}
                Err(error) => votes.failed = Some(error),
            }
            if votes.voted.len() >= self.quorum() || against > self.nodes.len() - self.quorum() {
                break;
            }
        }
        votes
    }

    async fn acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let began = self.clock.now();
        let locks: Vec<String> = request.names.as_slice().iter().map(|name| self.keys.lock(name)).collect();
        let mut keys = vec![STATE.to_owned()];
        keys.extend_from_slice(&locks);
        let counters: Vec<String> = locks.iter().map(|lock| counter(lock)).collect();
        let ttl = request.ttl.as_millis().to_string();
        let mut args = vec![request.owner.as_str(), &ttl, self.nodes[0].members()];
        args.extend(counters.iter().map(String::as_str));

        let votes = self.votes(request, &keys, &args).await;
        if votes.voted.len() < self.quorum() {
            return self.outvoted(votes);
        }
        let proposed = match known_fences(&votes, self.quorum()) {
            Some(fences) => fences,
            None => {
                let highest = highest(&votes.voted);
                self.agree(request, &keys, &counters, highest, began).await?
            }
        };
        // Whoever is granted less than a tenth of what it asked for has nothing.
        let used = self.clock.now().since(began) + request.ttl.margin();
        if used + request.ttl.length() / 10 > request.ttl.length() {
            return Err(StoreError::Unknown("most servers agreed, but too late".into()));
        }
        let fences = proposed.into_iter().map(Fence).collect();
        Ok(Attempt::Granted(Grant { fences: Some(fences), remaining: request.ttl.length() }))
    }

    fn outvoted(&self, votes: Votes) -> Result<Attempt, StoreError> {
        match (votes.held, votes.failed) {
            (Some(busy), _) => Ok(Attempt::Busy(busy)),
            (None, Some(error)) => Err(error),
            (None, None) => Err(StoreError::Unknown("most servers are in quarantine".into())),
        }
    }

    /// Second phase: proposes fences until most servers agree.
    async fn agree(
        &self,
        request: &Request<'_>,
        keys: &[String],
        counters: &[String],
        mut highest: Vec<u64>,
        began: Moment,
    ) -> Result<Vec<u64>, StoreError> {
        let time_max = node_time_max(request.ttl);
        for proposal in 0..PROPOSALS_MAX {
            if self.clock.now().since(began) > ACQUIRE_TIME_MAX.min(request.ttl.length()) {
                break;
            }
            let fences: Vec<u64> = highest.iter().map(|counter| counter + 1).collect();
            let texts: Vec<String> = fences.iter().map(u64::to_string).collect();
            let mut args = vec![request.owner.as_str(), self.nodes[0].members()];
            args.extend(counters.iter().zip(&texts).flat_map(|(field, fence)| [field.as_str(), fence]));
            let args = &args;
            let raise = |node: &Arc<Node>| {
                let node = node.clone();
                async move { tokio::time::timeout(time_max, node.raise(keys, args)).await }
            };
            let mut answers: FuturesUnordered<_> = self.nodes.iter().map(raise).collect();
            let (mut agreed, mut against) = (0, 0);
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(Ok(Said::Agreed)) => agreed += 1,
                    Ok(Ok(Said::TooLow(counters))) => {
                        against += 1;
                        let pairs = highest.iter_mut().zip(counters);
                        pairs.for_each(|(highest, counter)| *highest = (*highest).max(counter));
                    }
                    Ok(Ok(_) | Err(_)) | Err(_) => against += 1,
                }
                if agreed >= self.quorum() {
                    return Ok(fences);
                }
                if against > self.nodes.len() - self.quorum() {
                    break;
                }
            }
            // What this round left behind on some servers must be outbid, too.
            highest.iter_mut().zip(&fences).for_each(|(highest, fence)| *highest = (*highest).max(*fence));
            let pause = Duration::from_millis(1 << proposal.min(5)).mul_f64(fastrand::f64());
            tokio::time::sleep(pause).await;
        }
        Err(StoreError::Unknown("the servers did not agree on a fence in time".into()))
    }

    /// Releases on one server; tells how many of the names were the owner's there.
    async fn release_on(&self, node: &Node, held: &Held) -> Result<usize, StoreError> {
        let keys: Vec<String> = held.names.as_slice().iter().map(|name| self.keys.lock(name)).collect();
        let channels: Vec<String> = keys.iter().map(|lock| keys::channel(keys::slot(lock))).collect();
        let mut args = vec![held.owner.as_str(), "PUBLISH", "", ""];
        args.extend(channels.iter().map(String::as_str));
        node.link.run(&self.release, &keys, &args).await
    }

    /// Tells a server again, unless the owner asks for the lock once more before that.
    fn release_again_later(self: &Arc<Self>, node: Arc<Node>, held: Held) {
        let inner = self.clone();
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        if repeats.len() >= REPEATS_MAX {
            return;
        }
        let owner = held.owner.clone();
        let repeat = tokio::spawn(async move {
            tokio::time::sleep(RELEASE_AGAIN_AFTER).await;
            let _ = tokio::time::timeout(RELEASE_AGAIN_AFTER, inner.release_on(&node, &held)).await;
            inner.repeats.lock().unwrap_or_else(PoisonError::into_inner).remove(&held.owner);
        });
        repeats.entry(owner).or_default().push(repeat.abort_handle());
    }

    /// A repeated release must not meet a new grant of the same owner.
    fn stop_repeats(&self, owner: &Owner) {
        let repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
        for repeat in repeats.into_iter().flatten() {
            repeat.abort();
        }
    }

    async fn renew_on(&self, node: &Node, leases: &[Held]) -> Result<Vec<u8>, StoreError> {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        let lengths: Vec<String> = leases.iter().map(|held| held.ttl.as_millis().to_string()).collect();
        for (held, length) in leases.iter().zip(&lengths) {
            for name in held.names.as_slice() {
                keys.push(self.keys.lock(name));
                args.extend([held.owner.as_str(), length]);
            }
        }
        node.link.run(&self.renew, &keys, &args).await
    }
}

/// The fences of an owner that asks again, if most servers remember the same ones.
fn known_fences(votes: &Votes, quorum: usize) -> Option<Vec<u64>> {
    let of_node = |counters: &Vec<Counted>| counters.iter().map(|counted| counted.fence).collect();
    let known: Vec<Option<Vec<u64>>> = votes.voted.iter().map(of_node).collect();
    let first = known.iter().flatten().next()?;
    let same = known.iter().flatten().filter(|fences| *fences == first).count();
    (same >= quorum).then(|| first.clone())
}

/// The highest counter per name.
fn highest(voted: &[Vec<Counted>]) -> Vec<u64> {
    let mut highest: Vec<u64> = Vec::new();
    for counters in voted {
        highest.resize(counters.len(), 0);
        let pairs = highest.iter_mut().zip(counters);
        pairs.for_each(|(highest, counted)| *highest = (*highest).max(counted.counter));
    }
    highest
}

#[async_trait]
impl Backend for Redlock {
    fn kind(&self) -> &'static str {
        "redlock"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            level: Guarantee::Fenced,
            because: "Fences differ and grow with time as long as the set of servers stays the same and every \
                      server remembers what it agreed to, or is quarantined. This needs no clock. That only one \
                      owner has the lock at a time does need clocks that run evenly and are not set.",
        }
    }

    fn keeps_order(&self) -> bool {
        false
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        if request.order == Order::Fifo {
            return Err(StoreError::Refused("independent servers keep no queue".into()));
        }
        self.inner.stop_repeats(request.owner);
        self.inner.admit_outsiders().await?;
        let attempt = match tokio::time::timeout(ACQUIRE_TIME_MAX, self.inner.acquire(request)).await {
            Ok(attempt) => attempt,
            Err(late) => Err(StoreError::Unknown(late.into())),
        };
        if !matches!(attempt, Ok(Attempt::Granted(_))) {
            // Whatever some of the servers gave, also those that have not answered yet.
            let Request { names, owner, ttl, order } = *request;
            let held = Held { names: names.clone(), owner: owner.clone(), ttl, order };
            let _ = self.release(&held).await;
        }
        attempt
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        let inner = &self.inner;
        let shortest = leases.iter().map(|held| held.ttl).min();
        let time_max = shortest.map_or(Duration::ZERO, node_time_max);
        let calls =
            inner.nodes.iter().map(|node| tokio::time::timeout(time_max, inner.renew_on(node, leases)));
        let answers: Vec<_> = join_all(calls).await;
        let mut at = 0;
        let mut results = Vec::with_capacity(leases.len());
        for held in leases {
            let names = at..at + held.names.as_slice().len();
            at = names.end;
            let (mut extended, mut gone) = (0, 0);
            for answer in answers.iter().filter_map(|answer| answer.as_ref().ok()?.as_ref().ok()) {
                let all = answer.get(names.clone()).is_some_and(|names| names.iter().all(|name| *name == 1));
                *(if all { &mut extended } else { &mut gone }) += 1;
            }
            results.push(if extended >= inner.quorum() {
                Ok(Renewed::Extended)
            } else if gone > inner.nodes.len() - inner.quorum() {
                Ok(Renewed::Gone)
            } else {
                Err(StoreError::Unknown("too few servers answered".into()))
            });
        }
        results
    }

    async fn release(&self, held: &Held) -> Result<Released, StoreError> {
        let inner = &self.inner;
        let time_max = node_time_max(held.ttl);
        let calls =
            inner.nodes.iter().map(|node| tokio::time::timeout(time_max, inner.release_on(node, held)));
        let (mut released, mut answered) = (0, 0);
        for (node, answer) in inner.nodes.iter().zip(join_all(calls).await) {
            if let Ok(Ok(names)) = answer {
                answered += 1;
                released += usize::from(names == held.names.as_slice().len());
                continue;
            }
            // What it was asked before may still reach it.
            inner.release_again_later(node.clone(), held.clone());
        }
        if released >= inner.quorum() {
            Ok(Released::Released)
        } else if answered - released > inner.nodes.len() - inner.quorum() {
            Ok(Released::NotHeld)
        } else {
            Err(StoreError::Unknown("too few servers answered".into()))
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        self.inner.view(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.inner.page(query).await
    }

    async fn watch(&self, _request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        let lock = self.inner.keys.lock(name);
        let slot = keys::slot(&lock);
        let watch = self.inner.bells.watch(&lock);
        let listening = join_all(self.inner.nodes.iter().map(|node| node.link.listen(slot))).await;
        if listening.iter().filter(|listening| listening.is_ok()).count() < self.inner.quorum() {
            return Err(StoreError::Unknown("too few servers tell of releases".into()));
        }
        Ok(watch)
    }
}
