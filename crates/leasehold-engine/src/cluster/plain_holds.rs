//! Plain holds: seats by name and units of pools, decided by the ledger itself, many with one call.
//!
//! This is what a sale is made of while it is hot. The call is a transaction of its own, so a server that stands
//! still has nothing locked. Best seats are plain too: what this server knows of the event proposes some, and they are
//! asked for by name. What is not plain (limits for each holder, a hold that is over in the way, a pool that runs
//! short, a proposal that somebody else was faster with) goes to the [desk](super::desk), where the rules decide on
//! what the ledger has: nobody is told "sold out" because of a proposal.

use std::sync::Arc;

use hashbrown::HashSet;
use leasehold_core::limits::{BEST_COUNT_MAX, BEST_ITEMS_MAX, HOLD_TTL_MIN, ITEMS_PER_HOLD_MAX};
use leasehold_core::{
    Command, CreateHold, EventNo, EventState, Fence, Hold, HoldId, HoldState, Item, ItemRequest, Millis,
    PoolNo, Refusal, SeatNo, SeatStatus, SectionNo, Timestamp, best_seats,
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, Connection, at_commit, within};
use super::desk::{Carried, Job};
use super::follower::{Answer, News};
use super::halls::{Hall, Rules};
use super::remembered::place_in_time;
use super::rows::time;
use super::shared::Shared;
use super::wants::hold_id;
use crate::answer::put_answer;
use crate::{Done, EngineError, Outcome};

/// What a call came to: an answer for some, and those that the desk must decide.
pub(crate) struct Decided {
    pub(crate) carried: Carried,
    pub(crate) undecided: Vec<Job>,
}

/// A job with the hold it asks for, as if it were made at 0 and without fences.
pub(crate) struct PlainHold {
    pub(crate) job: Job,
    hold: Hold,
    rules_version: i64,
    hall: Arc<Hall>,
    /// Some of its seats were chosen here.
    is_proposal: bool,
}

/// What is spoken for in one batch.
#[derive(Default)]
pub(crate) struct SpokenFor {
    /// Seats that were proposed, each with its event.
    proposed: HashSet<(EventNo, SeatNo)>,
    /// Of holds under idempotency keys: only these can be alike.
    ids: HashSet<HoldId>,
}

/// The arguments of `hold_v2`.
#[derive(Default)]
struct Arguments {
    ids: Vec<Uuid>,
    events: Vec<i32>,
    rules_versions: Vec<i64>,
    holders: Vec<Option<String>>,
    ttls: Vec<i64>,
    scopes: Vec<Option<Uuid>>,
    fingerprints: Vec<Option<Uuid>>,
    answers: Vec<Option<Vec<u8>>>,
    seat_places: Vec<i32>,
    seat_nos: Vec<i32>,
    pool_places: Vec<i32>,
    pool_nos: Vec<i32>,
    quantities: Vec<i32>,
}

impl PlainHold {
    /// The job as a plain hold, or the job itself if it is something else.
    pub(crate) fn of(job: Job, shared: &Shared, spoken_for: &mut SpokenFor) -> Result<Self, Job> {
        let Command::CreateHold(create) = &job.request.command else { return Err(job) };
        let Some(hall) = shared.halls.known(create.event.0.cast_signed()) else { return Err(job) };
        if job.request.key.is_some() && !spoken_for.ids.insert(create.id) {
            return Err(job);
        }
        let rules = hall.rules();
        let is_proposal = create.items.iter().any(|item| matches!(item, ItemRequest::Best { .. }));
        match plain(create, &hall, &rules, spoken_for) {
            Some(hold) => {
                let rules_version = rules.version.cast_signed();
                Ok(Self { job, hold, rules_version, hall, is_proposal })
            }
            None => Err(job),
        }
    }
}

/// What a new hold asks for by name.
pub(crate) struct Asked {
    pub(crate) seats: Vec<SeatNo>,
    /// Each pool once.
    pub(crate) pools: Vec<(PoolNo, u32)>,
}

/// What a new hold asks for by name; none when the rules have something to say about the request itself.
pub(crate) fn asked(create: &CreateHold, hall: &Hall, rules: &Rules) -> Option<Asked> {
    let ttl = create.ttl.unwrap_or(rules.policy.hold_ttl);
    let in_range = ttl >= HOLD_TTL_MIN && ttl <= rules.policy.hold_total_max;
    if rules.state == EventState::Closed || !in_range || create.items.len() > ITEMS_PER_HOLD_MAX {
        return None;
    }
    let (mut seats, mut pools): (Vec<SeatNo>, Vec<(PoolNo, u32)>) = (Vec::new(), Vec::new());
    let (mut best, mut best_count) = (0, 0);
    for item in &create.items {
        match *item {
            ItemRequest::Seat(seat) if seat.0 < hall.venue.layout.seat_count() => seats.push(seat),
            ItemRequest::Pool(pool, 1..) if (pool.0 as usize) < hall.venue.pools.len() => {
                let ItemRequest::Pool(_, quantity) = *item else { return None };
                match pools.iter_mut().find(|(known, _)| *known == pool) {
                    Some((_, sum)) => *sum = sum.checked_add(quantity)?,
                    None => pools.push((pool, quantity)),
                }
            }
            ItemRequest::Best { count: count @ 1..=BEST_COUNT_MAX, .. } => {
                (best, best_count) = (best + 1, best_count + count as usize);
            }
            ItemRequest::Seat(_) | ItemRequest::Pool(..) | ItemRequest::Best { .. } => return None,
        }
    }
    let mut sorted = seats.clone();
    sorted.sort_unstable();
    let twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    let too_large = pools.iter().any(|(_, quantity)| i32::try_from(*quantity).is_err());
    let too_many = best > BEST_ITEMS_MAX || seats.len() + pools.len() + best_count > ITEMS_PER_HOLD_MAX;
    (!twice && !too_large && !too_many && !create.items.is_empty()).then_some(Asked { seats, pools })
}

/// The hold as it would be granted by these rules; none when they have more to say about it.
fn plain(create: &CreateHold, hall: &Hall, rules: &Rules, spoken_for: &mut SpokenFor) -> Option<Hold> {
    let policy = &rules.policy;
    let ttl = create.ttl.unwrap_or(policy.hold_ttl);
    let limited = policy.units_per_holder_max > 0 && create.holder.is_some();
    let Asked { mut seats, pools } = asked(create, hall, rules).filter(|_| !limited)?;
    for item in &create.items {
        if let ItemRequest::Best { count, section } = *item {
            seats.extend(spoken_for.propose(hall, count, section, &seats)?);
        }
    }
    let items = seats.into_iter().map(|seat| Item::Seat { seat, fence: Fence(0) });
    let pools = pools.into_iter().map(|(pool, quantity)| Item::Pool { pool, quantity });
    let after = |span: Millis| Timestamp::default().after(span);
    Some(Hold {
        id: create.id,
        number: 0,
        event: create.event,
        state: HoldState::Held,
        version: 1,
        extends: 0,
        items: items.chain(pools).collect(),
        holder: create.holder.clone(),
        created_at: Timestamp::default(),
        expires_at: after(ttl),
        hard_deadline: after(policy.hold_total_max),
        life_end: after(policy.hold_total_max).after(policy.payment_max),
        ended_at: Timestamp::NEVER,
        payment: None,
        booking: None,
    })
}

/// Has the ledger decide all of them with one call.
pub(crate) async fn grant(connection: &Connection, shared: &Shared, holds: Vec<PlainHold>) -> Decided {
    let mut arguments = Arguments::default();
    holds.iter().for_each(|hold| arguments.add(hold));
    let rows = match arguments.send(connection, shared).await {
        Ok(rows) => rows,
        Err(error) => {
            let failure = at_commit(&error);
            tracing::warn!(%error, ?failure, holds = holds.len(), "a call of the ledger failed");
            let jobs = holds.into_iter().map(|hold| hold.job).collect();
            return Decided { carried: Carried::Failed(failure, jobs), undecided: Vec::new() };
        }
    };
    shared.sight.note_up(true);
    let mut versions: Vec<(i32, u64)> = Vec::new();
    let (mut answers, mut undecided): (Vec<Answer>, Vec<Job>) = (Vec::new(), Vec::new());
    let mut holds: Vec<Option<PlainHold>> = holds.into_iter().map(Some).collect();
    for row in &rows {
        let place = usize::try_from(row.get::<_, i32>(0) - 1).unwrap_or(usize::MAX);
        let Some(PlainHold { job, mut hold, hall, is_proposal, .. }) =
            holds.get_mut(place).and_then(Option::take)
        else {
            continue;
        };
        let at = time(row.get(2));
        shared.note_time(at);
        match row.get::<_, i16>(1) {
            0 => {
                let number = row.get::<_, i64>(3).unsigned_abs();
                let fences: Option<Vec<i64>> = row.get(4);
                place_in_time(&mut hold, at, number, fences.as_deref().unwrap_or_default());
                versions.push((hold.event.0.cast_signed(), number));
                shared.meters.granted.inc();
                let venue = Arc::clone(&hall.venue);
                answers
                    .push((job.reply, Ok(Done { outcome: Outcome::Hold(hold), venue, at, replayed: false })));
            }
            1 if !is_proposal => {
                let taken: Option<Vec<i32>> = row.get(5);
                let taken = taken.into_iter().flatten().map(|seat| SeatNo(seat.cast_unsigned()));
                let refusal = Refusal::SeatsTaken(taken.collect());
                shared.meters.refused(&refusal);
                answers.push((job.reply, Err(EngineError::Refused(refusal))));
            }
            _ => undecided.push(job),
        }
    }
    // The readers must know the last version of each event before anyone is told.
    versions.sort_unstable_by(|one, other| other.cmp(one));
    versions.dedup_by_key(|(event, _)| *event);
    Decided { carried: Carried::Out(News { versions, answers }), undecided }
}

impl SpokenFor {
    /// The best seats as far as this server knows, without those that are spoken for.
    fn propose(
        &mut self,
        hall: &Hall,
        count: u32,
        section: Option<SectionNo>,
        without: &[SeatNo],
    ) -> Option<Vec<SeatNo>> {
        let (event, layout) = (hall.venue.number, &hall.venue.layout);
        if section.is_some_and(|section| section.0 as usize >= layout.sections().len()) {
            return None;
        }
        let seats = hall.feed.look(|_, statuses| {
            best_seats(layout, count, section, |seat| {
                statuses[seat.0 as usize] == SeatStatus::Free
                    && !without.contains(&seat)
                    && !self.proposed.contains(&(event, seat))
            })
        })?;
        self.proposed.extend(seats.iter().map(|seat| (event, *seat)));
        Some(seats)
    }
}

impl Arguments {
    fn add(&mut self, plain: &PlainHold) {
        let PlainHold { job, hold, rules_version, .. } = plain;
        self.ids.push(hold_id(hold.id));
        self.events.push(hold.event.0.cast_signed());
        self.rules_versions.push(*rules_version);
        self.holders.push(hold.holder.as_ref().map(|holder| holder.as_str().to_owned()));
        self.ttls.push(hold.expires_at.as_millis().cast_signed());
        self.scopes.push(job.request.key.map(|key| Uuid::from_u128(key.scope)));
        self.fingerprints.push(job.request.key.map(|key| Uuid::from_u128(key.fingerprint)));
        self.answers.push(job.request.key.map(|_| {
            let mut bytes = Vec::with_capacity(128);
            put_answer(&mut bytes, hold.event, &Outcome::Hold(hold.clone()));
            bytes
        }));
        let place = self.ids.len() as i32;
        for item in &hold.items {
            match *item {
                Item::Seat { seat, .. } => {
                    self.seat_places.push(place);
                    self.seat_nos.push(seat.0.cast_signed());
                }
                Item::Pool { pool, quantity } => {
                    self.pool_places.push(place);
                    self.pool_nos.push(pool.0.cast_signed());
                    self.quantities.push(quantity.cast_signed());
                }
            }
        }
    }

    async fn send(
        &self,
        connection: &Connection,
        shared: &Shared,
    ) -> Result<Vec<tokio_postgres::Row>, CallError> {
        let floor = shared.halls.epoch().fence_floor().0.cast_signed();
        let arguments: [&(dyn ToSql + Sync); 14] = [
            &self.ids,
            &self.events,
            &self.rules_versions,
            &self.holders,
            &self.ttls,
            &self.scopes,
            &self.fingerprints,
            &self.answers,
            &self.seat_places,
            &self.seat_nos,
            &self.pool_places,
            &self.pool_nos,
            &self.quantities,
            &floor,
        ];
        within(CALL_TIME_MAX, connection.client.query(&connection.hold, &arguments)).await
    }
}
