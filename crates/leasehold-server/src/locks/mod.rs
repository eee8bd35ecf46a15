//! Locks over HTTP: what the server adds to a [`Locker`].
//!
//! The server acquires and lets go of the guard. From then on the lease is the client's: it renews and
//! releases with the owner token, and when it does neither the lease ends by itself. The server remembers
//! what it needs to answer a repeated request again (`answers`), to tell how long locks were held
//! (`tenures`), and who waits (`waiting`). All three are bounded and in memory; what must survive is in the
//! store.

mod answers;
mod meters;
mod tenures;
mod waiting;

use std::time::Duration;

use leasehold_api::{Code, LockGrant, LockRelease, LockRenewal};
use leasehold_engine::{IdempotencyKey, SecretKey};
use leasehold_lock::backend::{Held, ListQuery, Order, Page, Released, Renewed};
use leasehold_lock::{
    Acquired, Advice, Clock, Guarantee, Guard, Label, LeaseView, LockError, LockName, Locker, LostReason,
    Moment, Owner, StoreError, TTL_DEFAULT, TTL_MAX, TTL_MIN, Ttl,
};
use prometheus_client::registry::Registry;

use self::answers::{Answer, Answers, Begin, Effect, Ticket};
use self::meters::{Failure, LockMeters};
use self::tenures::{Tenure, Tenures};
use self::waiting::Waiting;
use crate::problem::ApiError;

/// A release of a lease that this server did not grant, or has forgotten, is repeated for so long. Anybody can make
/// up owners, so it must not be remembered for as long as a lease could last.
const UNKNOWN_LEASE: Duration = TTL_DEFAULT;

/// Locks on one store, as the API offers them.
pub(crate) struct Locks {
    locker: Locker,
    /// Makes the marks on cursors.
    key: SecretKey,
    /// Makes the owner tokens of requests with an idempotency key. No other process makes the same: what one gave up it
    /// goes on releasing for a while, and must not release what another one granted under the same key.
    owners: SecretKey,
    clock: Clock,
    answers: Answers,
    tenures: Tenures,
    waiting: Waiting,
    meters: LockMeters,
}

/// A lock that is asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Duration,
    pub(crate) label: Option<Label>,
    pub(crate) order: Order,
}

/// An answer, and whether it was given before.
#[derive(Debug)]
pub(crate) struct Given<T> {
    pub(crate) answer: T,
    pub(crate) replayed: bool,
}

impl Locks {
    pub(crate) fn new(locker: Locker, key: SecretKey, owners: SecretKey) -> Self {
        let meters = LockMeters::default();
        Self {
            waiting: Waiting::new(meters.waiting.clone()),
            locker,
            key,
            owners,
            clock: Clock::system(),
            answers: Answers::default(),
            tenures: Tenures::default(),
            meters,
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.locker.meters().register(registry);
        self.meters.register(registry);
    }

    /// Leases a name, and waits for it as long as was asked for.
    pub(crate) async fn acquire(
        &self,
        wanted: Wanted,
        key: Option<IdempotencyKey>,
    ) -> Result<Given<LockGrant>, ApiError> {
        let ticket = match self.begin(key, Effect::MayBeLeft)? {
            Some(Begin::Answered(Answer::Granted { mut grant, ends_at })) => {
                grant.expires_in_ms = millis(ends_at.since(self.clock.now()));
                return Ok(Given { answer: grant, replayed: true });
            }
            // One key, one method and one path: an answer of another kind is not under it.
            Some(Begin::Answered(Answer::Released(_))) => {
                return Err(ApiError::new(Code::IdempotencyMismatch));
            }
            Some(Begin::New(ticket)) => Some(ticket),
            None => None,
        };
        let waiter = if wanted.wait.is_zero() { None } else { self.waiting.enter(&wanted.name) };
        let wait = if waiter.is_some() { wanted.wait } else { Duration::ZERO };
        let acquire = self.locker.acquire(wanted.name.clone()).no_renewal();
        let acquire = acquire.ttl(wanted.ttl.length()).wait(wait);
        let owner = ticket.as_ref().map(|ticket| self.owner(ticket, wanted.label.as_ref()));
        let acquire = match (&owner, &wanted.label) {
            (Some(owner), _) => acquire.owner_of_this_process(owner.clone()),
            (None, Some(label)) => acquire.label(label.clone()),
            (None, None) => acquire.no_label(),
        };
        let acquired = match wanted.order {
            Order::Any => acquire.await,
            Order::Fifo => acquire.in_order().await,
        };
        let busy = match acquired.map_err(|error| self.failed(error))? {
            Acquired::Granted(guard) => {
                let answer = self.hand_over(guard, &wanted, ticket);
                return Ok(Given { answer, replayed: false });
            }
            Acquired::Busy(busy) => busy,
        };
        if let (Some(ticket), Some(owner)) = (ticket, &owner)
            && !self.locker.is_giving_back(owner)
        {
            ticket.refused();
        }
        // There was no room to wait, so whether waiting would have helped is not known.
        Err(if wait < wanted.wait { ApiError::new(Code::Overloaded) } else { ApiError::lock_held(&busy) })
    }

    /// Lengthens a lease.
    pub(crate) async fn renew(
        &self,
        name: &LockName,
        owner: Option<Owner>,
        ttl: Ttl,
    ) -> Result<LockRenewal, ApiError> {
        let owner = owner.ok_or_else(|| ApiError::new(Code::LockLost))?;
        let held = held(name, owner, ttl);
        let ends_at = self.clock.now() + ttl.length();
        match self.locker.renew(&held).await.map_err(|error| self.failed(error))? {
            Renewed::Extended => {
                if let Some(key) = self.tenures.extended(name, &held.owner, ends_at) {
                    self.answers.ends_at(key, ends_at);
                }
                let expires_in_ms = millis(ends_at.since(self.clock.now()));
                Ok(LockRenewal { name: name.as_str().to_owned(), expires_in_ms })
            }
            Renewed::Gone => Err(self.lost(name, &held.owner)),
        }
    }

    /// Gives a lock back.
    pub(crate) async fn release(
        &self,
        name: &LockName,
        owner: Option<Owner>,
        key: Option<IdempotencyKey>,
    ) -> Result<Given<LockRelease>, ApiError> {
        let owner = owner.ok_or_else(|| ApiError::new(Code::LockLost))?;
        let ticket = match self.begin(key, Effect::None)? {
            Some(Begin::Answered(Answer::Released(answer))) => return Ok(Given { answer, replayed: true }),
            Some(Begin::Answered(Answer::Granted { .. })) => {
                return Err(ApiError::new(Code::IdempotencyMismatch));
            }
            Some(Begin::New(ticket)) => Some(ticket),
            None => None,
        };
        let held = held(name, owner.clone(), self.time_left(name, &owner));
        match self.locker.release(&held).await.map_err(|error| self.failed(error))? {
            Released::Released => {
                self.note_released(name, &held.owner);
                let answer = LockRelease { name: name.as_str().to_owned(), released: true };
                if let Some(ticket) = ticket {
                    ticket.finish(Answer::Released(answer.clone()));
                }
                Ok(Given { answer, replayed: false })
            }
            Released::NotHeld => Err(self.lost(name, &held.owner)),
        }
    }

    /// Who holds a name now, if anybody does.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, ApiError> {
        let found = self.locker.inspect(name).await.map_err(|error| self.failed(error))?;
        Ok(found.map(|view| self.completed(view)))
    }

    /// A page of the leases.
    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Page, ApiError> {
        let page = self.locker.list(query).await.map_err(|error| {
            self.meters.failed(match &error {
                StoreError::Unknown(_) => Failure::NoAnswer,
                StoreError::Refused(_) => Failure::Refused,
            });
            ApiError::from_lock_store(&error)
        })?;
        Ok(Page { leases: page.leases.into_iter().map(|view| self.completed(view)).collect(), ..page })
    }

    /// How many wait here for a name, whatever the store knows.
    pub(crate) fn waiters(&self, name: &LockName) -> u32 {
        self.waiting.of(name)
    }

    pub(crate) fn advice(&self, name: &LockName) -> Option<Advice> {
        self.locker.advice(name.class())
    }

    pub(crate) fn guarantee(&self) -> Guarantee {
        self.locker.guarantees().level
    }

    pub(crate) fn keeps_order(&self) -> bool {
        self.locker.keeps_order()
    }

    /// A code that only this server can put on a text.
    pub(crate) fn mark(&self, text: &str) -> u64 {
        let code = self.key.code_of(&[b"cursor", text.as_bytes()]);
        u64::from_be_bytes(code[..8].try_into().expect("a code has 32 bytes"))
    }

    /// Forgets leases that are over, and counts those that nobody gave back.
    pub(crate) fn tidy(&self) {
        self.meters.ended_unreleased.inc_by(self.tenures.sweep(self.clock.now()));
    }

    fn begin(&self, key: Option<IdempotencyKey>, effect: Effect) -> Result<Option<Begin<'_>>, ApiError> {
        key.map(|key| self.answers.begin(key, effect)).transpose()
    }

    /// The token of a request with a key: the one it would get again.
    fn owner(&self, ticket: &Ticket<'_>, label: Option<&Label>) -> Owner {
        let (scope, fingerprint) = (ticket.key().scope.to_be_bytes(), ticket.key().fingerprint.to_be_bytes());
        let attempt = ticket.attempt().to_be_bytes();
        let code = self.owners.code_of(&[&scope, &fingerprint, &attempt]);
        let secret = uuid::Uuid::from_slice(&code[..16]).expect("16 bytes are a UUID");
        Owner::derived(secret, label)
    }

    /// From here on the lease is the client's.
    fn hand_over(&self, guard: Guard, wanted: &Wanted, ticket: Option<Ticket<'_>>) -> LockGrant {
        let remaining = guard.time_left() + wanted.ttl.margin();
        let now = self.clock.now();
        let grant = LockGrant {
            name: wanted.name.as_str().to_owned(),
            owner: guard.owner().as_str().to_owned(),
            fence: guard.fence().map(|fence| fence.0),
            guarantee: guard.guarantee().as_str().to_owned(),
            expires_in_ms: millis(remaining),
        };
        let ends_at = now + remaining;
        let owner = guard.detach().owner;
        let key = ticket.as_ref().map(|ticket| ticket.key().scope);
        let tenure = Tenure { owner, since: now, ends_at, key };
        self.meters.ended_unreleased.inc_by(self.tenures.begin(&wanted.name, tenure, now));
        if let Some(ticket) = ticket {
            ticket.finish(Answer::Granted { grant: grant.clone(), ends_at });
        }
        grant
    }

    /// For how long a release that gets no answer is repeated: until the lease would be over, if it is known here.
    fn time_left(&self, name: &LockName, owner: &Owner) -> Ttl {
        let left = self.tenures.time_left(name, owner, self.clock.now()).unwrap_or(UNKNOWN_LEASE);
        Ttl::new(left.clamp(TTL_MIN, TTL_MAX)).expect("it is between the shortest and the longest")
    }

    fn note_released(&self, name: &LockName, owner: &Owner) {
        let now = self.clock.now();
        if let Some(tenure) = self.tenures.end(name, owner) {
            self.locker.note_held(name, now.since(tenure.since));
            self.over(&tenure, now);
        }
    }

    /// The store does not know this owner. If the server does, a holder has lost its lease.
    fn lost(&self, name: &LockName, owner: &Owner) -> ApiError {
        let now = self.clock.now();
        if let Some(tenure) = self.tenures.end(name, owner) {
            let in_time = now < tenure.ends_at;
            self.locker.meters().lost(if in_time { LostReason::Gone } else { LostReason::NotRenewed });
            // It was needed for so long at least: leases of this class should be longer.
            self.locker.note_held(name, now.since(tenure.since));
            self.over(&tenure, now);
        }
        ApiError::new(Code::LockLost)
    }

    /// A repetition of the request that acquired it is not told of time that is not there any more.
    fn over(&self, tenure: &Tenure, now: Moment) {
        if let Some(key) = tenure.key {
            self.answers.ends_at(key, now);
        }
    }

    /// What the server knows better than the store.
    fn completed(&self, mut view: LeaseView) -> LeaseView {
        view.age = view.age.or_else(|| self.tenures.age(&view.name, self.clock.now()));
        view.waiters = Some(view.waiters.unwrap_or(0).max(self.waiting.of(&view.name)));
        view
    }

    fn failed(&self, error: LockError) -> ApiError {
        match &error {
            LockError::Unknown { .. } => self.meters.failed(Failure::NoAnswer),
            LockError::Refused { .. } => self.meters.failed(Failure::Refused),
            _ => {}
        }
        ApiError::from_lock(&error)
    }
}

fn held(name: &LockName, owner: Owner, ttl: Ttl) -> Held {
    Held { names: name.clone().into(), owner, ttl, order: Order::Any }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_release_for_an_owner_that_nobody_knows_is_not_remembered_for_a_day() {
        let locks =
            Locks::new(Locker::new(leasehold_lock::Memory::new()), SecretKey::random(), SecretKey::random());
        let (name, ttl) = (LockName::parse("job").unwrap(), Ttl::new(TTL_MAX).unwrap());
        let wanted = Wanted { name: name.clone(), ttl, wait: Duration::ZERO, label: None, order: Order::Any };
        let grant = locks.acquire(wanted, None).await.unwrap().answer;
        let owner = Owner::parse(&grant.owner).unwrap();
        assert!(locks.time_left(&name, &owner).length() > TTL_MAX / 2, "what is granted here is known");
        assert!(locks.time_left(&name, &Owner::random(None)).length() <= Duration::from_secs(60));
    }
}
