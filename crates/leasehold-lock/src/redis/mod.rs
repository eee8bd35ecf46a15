//! Locks on Redis: one server, Sentinel, or a cluster.
//!
//! The lock is `SET prefix+name token NX PX ttl`, as the Redlock family does it in every language. Release
//! and renewal compare the token and act in one script. Redis alone grants `lease`; with an epoch authority
//! it grants `fenced`, see `epochs.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

mod batch;
mod cluster;
mod ears;
mod failure;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod link;
pub(crate) mod script;
mod sentry;
pub(crate) mod servers;
pub(crate) mod transport;
pub(crate) mod url;

#[cfg(feature = "postgres")]
mod epochs;

#[cfg(feature = "postgres")]
pub use epochs::Epochs;
pub use url::BadRedisUrl;

use batch::{Ask, Batches, What};
#[cfg(feature = "postgres")]
use epochs::Begun;
use keys::Keys;
use link::{Ears, Link};
use script::Lua;
use servers::Servers;

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::error::StoreError;
use crate::lease::{Busy, Fence, Grant, Guarantee, Guarantees, LeaseView};
use crate::locker::LOOK_AFTER_IN_QUEUE;
use crate::name::LockName;

/// What stands before the name in a lock's key unless it is said otherwise.
pub const PREFIX_DEFAULT: &str = "lock:";
/// A waiter in line to whom the lock is handed over has so long to say that it is there.
const CLAIM_DEFAULT: Duration = Duration::from_millis(250);
const _: () = assert!(LOOK_AFTER_IN_QUEUE.as_millis() < CLAIM_DEFAULT.as_millis());
/// A waiter in line that was not heard of for so long is passed over.
const ALIVE: Duration = Duration::from_secs(1);
/// Most that wait in line for one name.
const QUEUE_LENGTH_MAX: usize = 10_000;
/// Renewals in one slot of a cluster have at most so much time when there are some in others, and at least so much.
const RENEWAL_TIME_MAX: Duration = Duration::from_secs(1);
const RENEWAL_TIME_MIN: Duration = Duration::from_millis(50);
/// Names that are given a new epoch before one acquisition gives up.
const EPOCHS_PER_REQUEST_MAX: usize = 2 * crate::name::NAMES_MAX;

/// Locks on Redis.
#[derive(Debug)]
pub struct Redis {
    link: Arc<Link>,
    bells: Bells,
    keys: Keys,
    /// Tells those who wait in line here from those of other processes.
    process: String,
    claim_ms: String,
    alive_ms: String,
    queue_max: String,
    acquire: Lua,
    release: Lua,
    renew: Lua,
    batches: Option<Batches>,
    #[cfg(feature = "postgres")]
    epochs: Option<Epochs>,
}

/// One name with the keys that belong to it.
#[derive(Debug)]
struct Place<'a> {
    name: &'a LockName,
    lock: String,
    slot: u16,
}

impl Redis {
    /// Locks on the servers of a URL: `redis://`, `redis-cluster://a,b,c` or `redis-sentinel://a,b/master`, or
    /// one of these with `rediss` for TLS. Nothing is connected yet.
    pub fn open(url: &str) -> Result<Self, BadRedisUrl> {
        Ok(Self::on(url::servers(url)?, PREFIX_DEFAULT))
    }

    /// The same, with another prefix of the keys.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.keys = Keys::new(prefix);
        self
    }

    /// Gives waiters in line another time to answer when their turn has come: 250 ms unless said otherwise. With
    /// less than 200 ms, one that misses the message of its turn goes to the end of the line.
    #[must_use]
    pub fn with_claim_time(mut self, claim: Duration) -> Self {
        self.claim_ms = claim.as_millis().max(1).to_string();
        self
    }

    /// Grants `fenced`, with epochs from this authority.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn with_epochs(mut self, epochs: Epochs) -> Self {
        self.epochs = Some(epochs);
        self
    }

    fn on(servers: Servers, prefix: &str) -> Self {
        let bells = Bells::default();
        let link = Arc::new(Link::new(servers, Ears::Bells(bells.clone())).with_sentry());
        Self {
            batches: (!link.is_cluster()).then(|| Batches::new(link.clone())),
            link,
            bells,
            keys: Keys::new(prefix),
            process: format!("{:016x}", fastrand::u64(..)),
            claim_ms: CLAIM_DEFAULT.as_millis().to_string(),
            alive_ms: ALIVE.as_millis().to_string(),
            queue_max: QUEUE_LENGTH_MAX.to_string(),
            acquire: Lua::new(concat!(
                include_str!("scripts/line.lua"),
                include_str!("scripts/tenure.lua"),
                include_str!("scripts/acquire.lua")
            )),
            release: Lua::new(concat!(
                include_str!("scripts/release_one.lua"),
                include_str!("scripts/line.lua"),
                include_str!("scripts/release.lua")
            )),
            renew: Lua::new(include_str!("scripts/renew.lua")),
            #[cfg(feature = "postgres")]
            epochs: None,
        }
    }

    fn is_fenced(&self) -> bool {
        #[cfg(feature = "postgres")]
        return self.epochs.is_some();
        #[cfg(not(feature = "postgres"))]
        false
    }

    /// The same for scripts, which know other tenures in a cluster.
    fn fencing(&self) -> &'static str {
        match (self.is_fenced(), self.link.is_cluster()) {
            (false, _) => "0",
            (true, false) => "1",
            (true, true) => "2",
        }
    }

    /// How the message of a release is sent: in a cluster only to the nodes of the slot.
    fn publish(&self) -> &'static str {
        if self.link.is_cluster() { "SPUBLISH" } else { "PUBLISH" }
    }

    /// How those are counted whom such a message reaches.
    fn count_listeners(&self) -> &'static str {
        if self.link.is_cluster() { "SHARDNUMSUB" } else { "NUMSUB" }
    }

    fn place<'a>(&self, name: &'a LockName) -> Place<'a> {
        let lock = self.keys.lock(name);
        let slot = keys::slot(&lock);
        Place { name, lock, slot }
    }

    /// The names, in groups that one script can take at once.
    fn groups<'a>(&self, names: &'a [LockName]) -> Vec<Vec<Place<'a>>> {
        let mut places: Vec<Place<'a>> = names.iter().map(|name| self.place(name)).collect();
        if !self.link.is_cluster() {
            return vec![places];
        }
        // Every client takes the groups in the same order, so two of them do not wait for each other.
        places.sort_by_key(|place| place.slot);
        let mut groups: Vec<Vec<Place<'a>>> = Vec::new();
        for place in places {
            match groups.last_mut() {
                Some(group) if group[0].slot == place.slot => group.push(place),
                _ => groups.push(vec![place]),
            }
        }
        groups
    }

    /// The plain lock that every client of the family knows, and with nothing around it: most are free.
    async fn set_if_free(&self, request: &Request<'_>, name: &LockName) -> Result<Attempt, StoreError> {
        let lock = self.keys.lock(name);
        let mut set = redis::cmd("SET");
        set.arg(&lock).arg(request.owner.as_str()).arg("NX").arg("PX").arg(request.ttl.as_millis());
        let granted = Attempt::Granted(Grant { fences: None, remaining: request.ttl.length() });
        if self.link.send::<Option<()>>(&set).await?.is_some() {
            return Ok(granted);
        }
        let mut look = redis::Pipeline::new();
        look.get(&lock).pttl(&lock);
        let (holder, remaining): (Option<Vec<u8>>, i64) = self.link.send_all(&look).await?;
        if holder.is_some_and(|holder| holder == request.owner.as_str().as_bytes()) {
            // An answer was lost. What is there gets its full length again.
            if self.renew_one(request, &lock).await? == Renewed::Extended {
                return Ok(granted);
            }
        }
        Ok(self.busy(name, remaining, -1))
    }

    /// Takes a lock with a fence together with what others ask. `None` when it must be asked for alone.
    async fn fence_with_others(
        &self,
        batches: &Batches,
        request: &Request<'_>,
        name: &LockName,
    ) -> Result<Option<Attempt>, StoreError> {
        let Place { lock, slot, .. } = self.place(name);
        let keys = vec![lock, keys::guard(slot), keys::counter(slot)];
        let (owner, last) = (request.owner.as_str().to_owned(), request.ttl.as_millis().to_string());
        Ok(match batches.ask(Ask { keys, what: What::Fence, owner, last }).await? {
            redis::Value::BulkString(fence) => {
                let fence = std::str::from_utf8(&fence).ok().and_then(|fence| fence.parse().ok());
                fence.map(|fence| {
                    let fences = Some(vec![Fence(fence)]);
                    Attempt::Granted(Grant { fences, remaining: request.ttl.length() })
                })
            }
            redis::Value::Int(pttl) => Some(self.busy(name, pttl, -1)),
            _ => None,
        })
    }

    /// Asks for all names; what was taken of several is given back when another is not free.
    async fn try_once(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let names = request.names.as_slice();
        let in_order = request.order == Order::Fifo;
        if in_order && names.len() > 1 {
            return Err(StoreError::Refused("only one name at a time can be waited for in order".into()));
        }
        if let ([name], false, false) = (names, in_order, self.is_fenced()) {
            return self.set_if_free(request, name).await;
        }
        let alone = self.batches.as_ref().and_then(Batches::alone);
        if let (Some(batches), None, [name], false) = (&self.batches, &alone, names, in_order)
            && let Some(attempt) = self.fence_with_others(batches, request, name).await?
        {
            return Ok(attempt);
        }
        let groups = self.groups(names);
        let mut fences: Vec<(&LockName, Fence)> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            match self.take_fenced(request, group).await? {
                Attempt::Granted(grant) => {
                    let granted = group.iter().map(|place| place.name).zip(grant.fences.unwrap_or_default());
                    fences.extend(granted);
                }
                Attempt::Busy(busy) => {
                    let Request { names, owner, ttl, order } = *request;
                    let held = Held { names: names.clone(), owner: owner.clone(), ttl, order };
                    for taken in &groups[..index] {
                        self.release_group(&held, taken).await?;
                    }
                    return Ok(Attempt::Busy(busy));
                }
            }
        }
        fences.sort_unstable();
        let fences = fences.into_iter().map(|(_, fence)| fence).collect();
        let fences = self.is_fenced().then_some(fences);
        Ok(Attempt::Granted(Grant { fences, remaining: request.ttl.length() }))
    }

    /// Releases a lock together with what others ask. `None` when it must be released alone.
    async fn free_with_others(
        &self,
        batches: &Batches,
        held: &Held,
        name: &LockName,
    ) -> Result<Option<Released>, StoreError> {
        let Place { lock, slot, .. } = self.place(name);
        let (owner, last) = (held.owner.as_str().to_owned(), keys::channel(slot));
        let queue = keys::queue(&lock, slot);
        let ask = Ask { keys: vec![lock, queue], what: What::Free, owner, last };
        Ok(match batches.ask(ask).await? {
            redis::Value::Int(1) => Some(Released::Released),
            redis::Value::Int(_) => Some(Released::NotHeld),
            _ => None,
        })
    }

    async fn renew_one(&self, request: &Request<'_>, lock: &str) -> Result<Renewed, StoreError> {
        let ttl = request.ttl.as_millis().to_string();
        let args = [request.owner.as_str(), &ttl];
        let extended: Vec<u8> = self.link.run(&self.renew, &[lock.to_owned()], &args).await?;
        Ok(if extended == [1] { Renewed::Extended } else { Renewed::Gone })
    }

    fn busy(&self, name: &LockName, pttl: i64, ahead: i64) -> Attempt {
        // Whoever is told so may be waiting.
        self.link.hear_again();
        // -1 is a key without an end, set by somebody who does not use leases; -2 is one that just ended.
        let remaining = match pttl {
            -1 => None,
            pttl => Some(Duration::from_millis(u64::try_from(pttl).unwrap_or(0))),
        };
        Attempt::Busy(Busy { name: name.clone(), remaining, ahead: u32::try_from(ahead).ok() })
    }

    /// Takes the names of one group by script.
    async fn take(&self, request: &Request<'_>, group: &[Place<'_>]) -> Result<Taken, StoreError> {
        let mut keys = Vec::with_capacity(group.len() * 5 + 1);
        for Place { lock, slot, .. } in group {
            keys.extend([lock.clone(), keys::guard(*slot), keys::counter(*slot)]);
            keys.extend([keys::queue(lock, *slot), keys::heard(lock, *slot)]);
        }
        let in_order = request.order == Order::Fifo;
        if in_order && !self.link.is_cluster() {
            keys.push(keys::LINES.to_owned());
        }
        let ttl = request.ttl.as_millis().to_string();
        let turns = keys::turns(group[0].slot, &self.process);
        let args = [
            request.owner.as_str(),
            &ttl,
            self.fencing(),
            flag(in_order),
            self.publish(),
            self.count_listeners(),
            &self.claim_ms,
            &self.alive_ms,
            &self.queue_max,
            &turns,
        ];
        let mut connection = self.link.pinned().await?;
        let generation = connection.generation();
        let answer: Vec<redis::Value> = connection.run(&self.acquire, &keys, &args).await?;
        Taken::read(&answer, group, generation, self).ok_or_else(|| {
            StoreError::Refused(format!("the script answered something unheard of: {answer:?}").into())
        })
    }

    /// The same, giving the node a new epoch where it has none.
    async fn take_fenced(&self, request: &Request<'_>, group: &[Place<'_>]) -> Result<Attempt, StoreError> {
        for _ in 0..EPOCHS_PER_REQUEST_MAX {
            match self.take(request, group).await? {
                Taken::Attempt(attempt) => return Ok(attempt),
                Taken::NeedsEpoch(question) => self.begin_epoch(&question).await?,
            }
        }
        Err(StoreError::Unknown("the servers keep changing while they are given an epoch".into()))
    }

    #[cfg(feature = "postgres")]
    async fn begin_epoch(&self, question: &Question) -> Result<(), StoreError> {
        let Some(epochs) = &self.epochs else {
            return Err(StoreError::Refused("no epoch authority is configured".into()));
        };
        match epochs.begin(&self.link, question).await? {
            Begun::Perhaps => Ok(()),
            Begun::Superseded => {
                self.link.look_elsewhere(question.slot, question.generation);
                Err(StoreError::Unknown("another server has taken over from the one that was asked".into()))
            }
        }
    }

    #[cfg(not(feature = "postgres"))]
    async fn begin_epoch(&self, _question: &Question) -> Result<(), StoreError> {
        Err(StoreError::Refused("no epoch authority is configured".into()))
    }

    async fn release_group(&self, held: &Held, group: &[Place<'_>]) -> Result<usize, StoreError> {
        let mut keys = Vec::with_capacity(group.len() * 3);
        for Place { lock, slot, .. } in group {
            keys.extend([lock.clone(), keys::queue(lock, *slot), keys::heard(lock, *slot)]);
        }
        let channels: Vec<String> = group.iter().map(|place| keys::channel(place.slot)).collect();
        let mut args = vec![held.owner.as_str(), self.publish(), &self.claim_ms, &self.alive_ms];
        args.extend(channels.iter().map(String::as_str));
        self.link.run(&self.release, &keys, &args).await
    }

    /// Renews names that one script can take at once. One answer per name.
    async fn renew_group(&self, group: &[(Place<'_>, &Held)]) -> Result<Vec<u8>, StoreError> {
        let keys: Vec<String> = group.iter().map(|(place, _)| place.lock.clone()).collect();
        let lengths: Vec<String> = group.iter().map(|(_, held)| held.ttl.as_millis().to_string()).collect();
        let pairs = group.iter().zip(&lengths);
        let args: Vec<&str> =
            pairs.flat_map(|((_, held), length)| [held.owner.as_str(), length.as_str()]).collect();
        self.link.run(&self.renew, &keys, &args).await
    }
}

/// What a slot without an epoch asks for.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "nobody can be asked"))]
struct Question {
    slot: u16,
    /// The connection that it was asked on.
    generation: u64,
    tenure: Tenure,
    /// In the guard until it is answered.
    text: String,
    /// The replication id of the master that the node was a copy of.
    predecessor: String,
}

/// Which server, for as long as it is what it is.
struct Tenure {
    replid: String,
    /// None outside of a cluster.
    config_epoch: Option<u64>,
}

impl Tenure {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once(' ') {
            Some((replid, epoch)) => {
                Self { replid: replid.to_owned(), config_epoch: Some(epoch.parse().ok()?) }
            }
            None => Self { replid: text.to_owned(), config_epoch: None },
        })
    }
}

impl fmt::Display for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.replid)?;
        self.config_epoch.map_or(Ok(()), |epoch| write!(f, " {epoch}"))
    }
}

/// What the script said.
enum Taken {
    Attempt(Attempt),
    NeedsEpoch(Question),
}

impl Taken {
    fn read(answer: &[redis::Value], group: &[Place<'_>], generation: u64, redis: &Redis) -> Option<Self> {
        let text = |at: usize| match answer.get(at)? {
            redis::Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        };
        let number = |at: usize| match answer.get(at)? {
            redis::Value::Int(number) => Some(*number),
            _ => None,
        };
        let place = || group.get(usize::try_from(number(1)?).ok()?.checked_sub(1)?);
        match text(0)? {
            "granted" => {
                let fences = (1..answer.len()).map(|at| text(at)?.parse().ok().map(Fence));
                let fences = fences.collect::<Option<Vec<Fence>>>()?;
                let fences = (!fences.is_empty()).then_some(fences);
                Some(Self::Attempt(Attempt::Granted(Grant { fences, remaining: Duration::MAX })))
            }
            "busy" => Some(Self::Attempt(redis.busy(place()?.name, number(2)?, number(3)?))),
            "epoch" => {
                let (slot, tenure) = (place()?.slot, Tenure::parse(text(2)?)?);
                let [text, predecessor] = [text(3)?, text(4)?].map(str::to_owned);
                Some(Self::NeedsEpoch(Question { slot, generation, tenure, text, predecessor }))
            }
            _ => None,
        }
    }
}

#[async_trait]
impl Backend for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn guarantees(&self) -> Guarantees {
        if self.is_fenced() {
            return Guarantees {
                level: Guarantee::Fenced,
                because: "No fence is given out twice, and they only grow, also over failovers, restarts and \
                          flushes, as long as the epoch authority keeps its memory. Two owners at a time are \
                          possible after a failover, while a master that was cut off goes on with its lower \
                          fences, and after a jump of the server's clock; the resource's check of the fence decides.",
            };
        }
        Guarantees {
            level: Guarantee::Lease,
            because: "One owner at a time as long as no server fails over, restarts without its data, evicts \
                      keys or has its clock set. No fence: a counter in Redis is given out twice after a \
                      failover.",
        }
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        self.keys.check()?;
        let sent = self.link.moment().await?;
        let attempt = self.try_once(request).await?;
        // What was sent first may arrive later, and take the names when its owner is done.
        if self.link.may_be_repeated(sent) {
            return Err(StoreError::Unknown("asked more than once, which is not over yet".into()));
        }
        Ok(attempt)
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        let of_lease = |(index, held)| {
            let Held { names, .. }: &Held = held;
            names.as_slice().iter().map(move |name| (index, self.place(name), held))
        };
        let mut places: Vec<(usize, Place<'_>, &Held)> =
            leases.iter().enumerate().flat_map(of_lease).collect();
        if self.link.is_cluster() {
            places.sort_by_key(|(_, place, _)| place.slot);
        }
        let mut results: Vec<Result<Renewed, StoreError>> =
            leases.iter().map(|_| Ok(Renewed::Extended)).collect();
        // The keeper waits for all slots together: one whose server is silent must not take the others' time.
        let shortest = leases.iter().map(|held| held.ttl.length()).min().unwrap_or_default();
        let slot_of = |place: Option<&(usize, Place<'_>, &Held)>| place.map(|(_, place, _)| place.slot);
        let time_max = match self.link.is_cluster() && slot_of(places.first()) != slot_of(places.last()) {
            true => (shortest / 6).clamp(RENEWAL_TIME_MIN, RENEWAL_TIME_MAX),
            false => Duration::MAX,
        };
        let mut calls = Vec::new();
        let mut places = places.into_iter().peekable();
        while let Some((index, place, held)) = places.next() {
            let (mut indexes, mut group) = (vec![index], vec![(place, held)]);
            while let Some((index, place, held)) =
                places.next_if(|(_, place, _)| !self.link.is_cluster() || place.slot == group[0].0.slot)
            {
                indexes.push(index);
                group.push((place, held));
            }
            calls.push(async move {
                let renewed = tokio::time::timeout(time_max, self.renew_group(&group)).await;
                (indexes, renewed.unwrap_or_else(|elapsed| Err(StoreError::Unknown(elapsed.into()))))
            });
        }
        for (indexes, answer) in futures_util::future::join_all(calls).await {
            match answer {
                Ok(extended) => {
                    for (index, extended) in indexes.into_iter().zip(extended) {
                        if extended == 0 {
                            results[index] = Ok(Renewed::Gone);
                        }
                    }
                }
                Err(error) => {
                    for index in indexes {
                        // What is gone in one slot is gone, whatever another says.
                        if !matches!(results[index], Ok(Renewed::Gone)) {
                            results[index] = Err(error.to_another());
                        }
                    }
                }
            }
        }
        results
    }

    async fn release(&self, held: &Held) -> Result<Released, StoreError> {
        let alone = self.batches.as_ref().and_then(Batches::alone);
        if let (Some(batches), None, Some(name)) = (&self.batches, &alone, held.names.single())
            && let Some(released) = self.free_with_others(batches, held, name).await?
        {
            return Ok(released);
        }
        let sent = self.link.moment().await?;
        // All at once: a slot that cannot be reached does not keep the others.
        let groups = self.groups(held.names.as_slice());
        let releases = groups.iter().map(|group| self.release_group(held, group));
        let mut released = 0;
        for answer in futures_util::future::join_all(releases).await {
            released += answer?;
        }
        match released == held.names.as_slice().len() {
            true => Ok(Released::Released),
            // The first time it may have been there.
            false if self.link.may_be_repeated(sent) => {
                Err(StoreError::Unknown("not held any more, or released by the same request before".into()))
            }
            false => Ok(Released::NotHeld),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        self.view(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.page(query).await
    }

    async fn watch(&self, request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        let place = self.place(name);
        let (channel, what) = match request.order {
            Order::Any => (keys::channel(place.slot), place.lock.as_str()),
            Order::Fifo => (keys::turns(place.slot, &self.process), request.owner.as_str()),
        };
        let channel: Arc<str> = channel.into();
        let watch = self.bells.watch_on(Some(channel.clone()), what);
        self.link.listen(channel).await?;
        Ok(watch)
    }
}

fn flag(set: bool) -> &'static str {
    if set { "1" } else { "0" }
}
