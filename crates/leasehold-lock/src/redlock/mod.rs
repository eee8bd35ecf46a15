//! Redlock: one lock over several independent Redis servers, held by whoever has it on most of them. With
//! fences.
//!
//! All servers are asked at the same time. A lock counts when most of the *configured* servers gave it, and
//! enough of its time is left. A second round then agrees on fences: each server accepts only a number that
//! is strictly higher than all it has accepted, and most must accept. Two acquisitions that succeed share a
//! server, so their fences differ, and the later one's is higher: no clock is needed for that. A server that
//! may have forgotten what it agreed to does not vote until its counters were copied from the others, see
//! `admission.rs`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::task::JoinSet;

mod admission;
mod debts;
mod healing;
mod inspect;
mod node;
mod tally;
mod under_way;

use admission::Roll;
use debts::Debts;
use healing::{Renewing, Round};
pub(crate) use node::STATE;
use node::{Counted, GivenBack, Node, Said};
pub(crate) use tally::Tally;

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::lease::{Busy, Fence, Grant, Guarantee, Guarantees, LeaseView, Ttl};
use crate::name::LockName;
use crate::owner::Owner;
use crate::redis::keys::{self, Keys};
use crate::redis::link::Ears;
use crate::redis::script::Lua;
use crate::redis::{BadRedisUrl, PREFIX_DEFAULT, url};

/// One acquisition takes no longer than this, whatever its length. A quarantine lasts longer.
const ACQUIRE_TIME_MAX: Duration = Duration::from_secs(2);
/// How often new fences are proposed when others were faster.
const PROPOSALS_MAX: u32 = 8;
/// Counters per server: names share them, so their number does not grow with the names.
const COUNTERS: u16 = 1_024;
/// More servers make no sense, and one word has room for their votes.
const SERVERS_MAX: usize = 63;

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
    renew: Lua,
    /// One look at the set at a time; when the last one began.
    admission: tokio::sync::Mutex<Option<Moment>>,
    roll: Mutex<Roll>,
    /// Told whenever a server was looked at.
    looked: Notify,
    debts: Debts,
    renewing: Renewing,
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
    /// Locks over the servers of `redlock://h1:6379,h2:6379,h3:6379`, or of `redlocks://` for TLS. Nothing is
    /// connected yet.
    pub fn open(url: &str) -> Result<Self, BadRedlock> {
        let servers = url::independent(url).map_err(BadRedlock::Address)?;
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
                renew: Lua::new(include_str!("../redis/scripts/renew.lua")),
                admission: tokio::sync::Mutex::default(),
                roll: Mutex::default(),
                looked: Notify::new(),
                debts: Debts::default(),
                renewing: Renewing::default(),
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

impl Redlock {
    /// Asks all servers once, and leaves nothing behind unless most of them agreed.
    async fn attempt(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
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

    /// What most servers say, once no other answer can change it.
    fn decided(&self, count: Count) -> Option<bool> {
        if count.for_it >= self.quorum() {
            Some(true)
        } else if count.against > self.nodes.len() - self.quorum() {
            Some(false)
        } else {
            None
        }
    }

    /// The servers that count for this owner: those that may vote, and do not owe it an answer.
    fn voters(&self, owner: &Owner) -> Vec<&Node> {
        let nodes = self.nodes.iter().enumerate();
        let counts =
            |(index, node): &(usize, &Arc<Node>)| node.may_vote() && !self.debts.is_owed(*index, owner);
        nodes.filter(counts).map(|(_, node)| &**node).collect()
    }

    /// First phase, on all servers at once. Returns as soon as the outcome cannot change any more, but gives
    /// servers that are about to answer the chance to count.
    async fn votes(&self, request: &Request<'_>, locks: &[String], args: &[&str]) -> Votes {
        let time_max = node_time_max(request.ttl);
        let voters = self.voters(request.owner);
        let mut against = self.nodes.len() - voters.len();
        let vote = |node| tokio::time::timeout(time_max, Node::vote(node, request.owner, locks, args));
        let mut answers: FuturesUnordered<_> = voters.into_iter().map(vote).collect();
        let mut votes = Votes { voted: Vec::new(), held: None, failed: None };
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
            // An owner that asks again may have its fences on servers that answer later.
            let asks_again = votes.voted.iter().flatten().any(|counted| counted.fence.is_some());
            let enough = votes.voted.len() >= self.quorum()
                && (!asks_again || known_fences(&votes, self.quorum()).is_some());
            if enough || against > self.nodes.len() - self.quorum() {
                break;
            }
        }
        votes
    }

    async fn acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let began = self.clock.now();
        let locks: Vec<String> = request.names.as_slice().iter().map(|name| self.keys.lock(name)).collect();
        let counters: Vec<String> = locks.iter().map(|lock| counter(lock)).collect();
        let ttl = request.ttl.as_millis().to_string();
        let mut args = vec![request.owner.as_str(), &ttl, self.nodes[0].members()];
        args.extend(counters.iter().map(String::as_str));

        let votes = self.votes(request, &locks, &args).await;
        if votes.voted.len() < self.quorum() {
            return self.outvoted(votes);
        }
        let proposed = match known_fences(&votes, self.quorum()) {
            Some(fences) => fences,
            None => {
                let highest = highest(&votes.voted);
                self.agree(request, &locks, &counters, highest, began).await?
            }
        };
        // Whoever is granted less than a tenth of what it asked for has nothing. Nor has whoever was held up
        // for longer than a quarantine is sure to outlast.
        let took = self.clock.now().since(began);
        let used = took + request.ttl.margin();
        if used + request.ttl.length() / 10 > request.ttl.length() || took > ACQUIRE_TIME_MAX {
            return Err(StoreError::Unknown("most servers agreed, but too late".into()));
        }
        let fences = proposed.into_iter().map(Fence).collect();
        Ok(Attempt::Granted(Grant { fences: Some(fences), remaining: request.ttl.length() }))
    }

    fn outvoted(&self, votes: Votes) -> Result<Attempt, StoreError> {
        match (votes.held, votes.failed) {
            (Some(busy), _) => Ok(Attempt::Busy(busy)),
            (None, Some(error)) => Err(error),
            (None, None) => Err(StoreError::Unknown("too few servers may vote now".into())),
        }
    }

    /// Second phase: proposes fences until most servers agree.
    async fn agree(
        &self,
        request: &Request<'_>,
        locks: &[String],
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
            let voters = self.voters(request.owner);
            let (mut agreed, mut against) = (0, self.nodes.len() - voters.len());
            let raise = |node| tokio::time::timeout(time_max, Node::raise(node, locks, args));
            let mut answers: FuturesUnordered<_> = voters.into_iter().map(raise).collect();
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

    /// Releases on one server. It is owed nothing any more, unless something may still arrive there.
    async fn release_on(&self, node: usize, held: &Held) -> Result<GivenBack, StoreError> {
        let locks: Vec<String> = held.names.as_slice().iter().map(|name| self.keys.lock(name)).collect();
        let channels: Vec<String> = locks.iter().map(|lock| keys::channel(keys::slot(lock))).collect();
        let mut args = vec![held.owner.as_str(), "PUBLISH", "", ""];
        args.extend(channels.iter().map(String::as_str));
        let given_back = self.nodes[node].release(&held.owner, &locks, &args).await?;
        if given_back.is_final {
            self.debts.paid(node, &held.owner, self.clock.now());
        }
        Ok(given_back)
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

/// How many servers said yes and how many no.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    for_it: usize,
    against: usize,
}

/// The fences of an owner that asks again, if most servers remember the same ones.
fn known_fences(votes: &Votes, quorum: usize) -> Option<Vec<u64>> {
    let of_node = |counters: &Vec<Counted>| counters.iter().map(|counted| counted.fence).collect();
    let known: Vec<Vec<u64>> = votes.voted.iter().filter_map(of_node).collect();
    let is_most = |fences: &&Vec<u64>| known.iter().filter(|other| other == fences).count() >= quorum;
    known.iter().find(is_most).cloned()
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

    fn hears_late(&self) -> bool {
        // Such requests are called off, see `under_way.rs`.
        false
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            level: Guarantee::Fenced,
            because: "Fences differ and grow with time as long as the set of servers stays the same and every \
                      server remembers what it agreed to, or is quarantined. This needs no clock. That only one \
                      owner has the lock at a time does need clocks that run evenly and are not set, and \
                      servers that do not lose their memory while the lock is held.",
        }
    }

    fn keeps_order(&self) -> bool {
        false
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        self.inner.keys.check()?;
        if request.order == Order::Fifo {
            return Err(StoreError::Refused("independent servers keep no queue".into()));
        }
        let attempt = self.attempt(request).await;
        match attempt {
            // They have forgotten the scripts: after a look at them they may vote, perhaps.
            Err(StoreError::Unknown(_)) if self.inner.nodes.iter().any(|node| node.is_found_out()) => {
                self.attempt(request).await
            }
            attempt => attempt,
        }
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        let inner = &self.inner;
        inner.look_again();
        let shortest = leases.iter().map(|held| held.ttl).min();
        let time_max = shortest.map_or(Duration::ZERO, node_time_max);
        let mut round = Round::begin(inner, leases);
        let shared: Arc<[Held]> = leases.into();
        let on_node = |node: usize| {
            let (inner, leases) = (inner.clone(), shared.clone());
            async move {
                let answer =
                    tokio::time::timeout(time_max, inner.renew_on(&inner.nodes[node], &leases)).await;
                (node, answer.ok().and_then(Result::ok))
            }
        };
        let mut answers: FuturesUnordered<_> = (0..inner.nodes.len()).map(on_node).collect();
        while let Some((node, answer)) = answers.next().await {
            let Some(extended) = answer else { continue };
            round.note(node, &extended);
            if round.counts().iter().all(|count| inner.decided(*count).is_some()) {
                break;
            }
        }
        let renewed = |count: &Count| match inner.decided(*count) {
            Some(true) => Ok(Renewed::Extended),
            Some(false) => Ok(Renewed::Gone),
            None => Err(StoreError::Unknown("too few servers answered".into())),
        };
        let renewed = round.counts().iter().map(renewed).collect();
        round.heal(answers, time_max);
        renewed
    }

    async fn release(&self, held: &Held) -> Result<Released, StoreError> {
        let inner = &self.inner;
        let time_max = node_time_max(held.ttl);
        // First of all: after this nothing is set again that the release would not find, see `healing.rs`.
        inner.renewing.released(&held.owner);
        inner.debts.owe(inner.nodes.len(), held, inner.clock.now());
        inner.collect_debts();
        let on_node = |node: usize| {
            let (inner, held) = (inner.clone(), held.clone());
            async move { tokio::time::timeout(time_max, inner.release_on(node, &held)).await.ok()?.ok() }
        };
        let mut answers: FuturesUnordered<_> = (0..inner.nodes.len()).map(on_node).collect();
        let mut count = Count::default();
        while let Some(answer) = answers.next().await {
            let Some(GivenBack { names, .. }) = answer else { continue };
            *(if names == held.names.as_slice().len() { &mut count.for_it } else { &mut count.against }) += 1;
            if inner.decided(count).is_some() {
                break;
            }
        }
        if !answers.is_empty() {
            // Nobody waits for the others; it ends when they have answered or their time is up.
            tokio::spawn(async move { while answers.next().await.is_some() {} });
        }
        match inner.decided(count) {
            Some(true) => Ok(Released::Released),
            Some(false) => Ok(Released::NotHeld),
            None => Err(StoreError::Unknown("too few servers answered".into())),
        }
    }

    fn is_settling(&self) -> bool {
        self.inner.debts.is_any()
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        self.inner.view(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.inner.page(query).await
    }

    async fn watch(&self, _request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        let lock = self.inner.keys.lock(name);
        let channel: Arc<str> = keys::channel(keys::slot(&lock)).into();
        let watch = self.inner.bells.watch_on(Some(channel.clone()), &lock);
        // Tasks of their own: a server that stands still is waited for by nobody, and heard when it goes on.
        let mut listening = JoinSet::new();
        for node in &self.inner.nodes {
            let (link, channel) = (Arc::clone(&node.link), channel.clone());
            listening.spawn(async move { link.listen(channel).await });
        }
        let mut heard = 0;
        while let Some(answer) = listening.join_next().await {
            heard += usize::from(matches!(answer, Ok(Ok(()))));
            if heard >= self.inner.quorum() {
                listening.detach_all();
                return Ok(watch);
            }
        }
        Err(StoreError::Unknown("too few servers tell of releases".into()))
    }
}
