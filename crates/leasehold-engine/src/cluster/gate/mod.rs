//! The gate: turns away, in Redis, whoever asks for what is plainly taken, so that losers cost the ledger nothing.
//!
//! It decides nothing. Before a new hold goes to the ledger it claims its seats here, for a few seconds: of many who
//! want one seat, one goes on. What the ledger said is noted with the event's version, and a note of a lower
//! version never replaces one of a higher. Every entry may be doubted now and then: when a hold should be over, and
//! after a minute in any case, one caller is let through to ask the ledger again. And who asks says
//! what its server has read in the log, so an entry that is older than that does not count.
//!
//! So Redis may lose everything, or something, or be away: only speed suffers.

mod breaker;
mod buckets;
mod claim;
mod doubts;
mod keys;
mod lanes;
mod marks;
mod meters;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hashbrown::HashSet;
use leasehold_core::{CreateHold, Item, ItemRequest, PoolNo, Refusal, SeatNo, SeatStatus};
use leasehold_lock::link::Link;
use tokio::time::Instant;
use uuid::Uuid;

use self::buckets::Bucket;
pub(crate) use self::claim::Claim;
use self::claim::{Stock, Units, sections};
pub(crate) use self::doubts::Questions;
use self::doubts::{DOUBT_AFTER, Doubts, Owner, UNITS_DOUBT_AFTER};
use self::lanes::{Away, Lanes, Script};
use self::marks::{Found, Mark, Marks};
pub use self::meters::GateMeters;
use super::halls::Hall;
use super::plain_holds::asked;
use super::shared::Shared;
use crate::{Done, EngineError, IdempotencyKey, Outcome};

/// How long to wait for units that others have claimed, before asking the ledger all the same.
const CLAIMED_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often to look meanwhile.
const CLAIMED_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Seats in one note, so that a script is short.
const SEATS_PER_NOTE: usize = 512;

/// See this module's documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    lanes: Arc<Lanes>,
    /// What the keys of this ledger begin with, up to the tag.
    ledger: String,
    shared: Arc<Shared>,
    meters: GateMeters,
    marks: Arc<Marks>,
    /// Sections that are being written anew, each with its event.
    rebuilding: Mutex<HashSet<(u32, u32)>>,
}

impl Gate {
    pub(crate) fn new(link: Link, ledger: Uuid, meters: GateMeters, shared: &Arc<Shared>) -> Self {
        meters.up.set(1);
        let lanes = Arc::new(Lanes::new(link, meters.clone()));
        let ledger = format!("{}.{}", ledger.simple(), shared.halls.epoch().0);
        let marks = Marks::new(Arc::clone(&lanes), Arc::clone(shared), ledger.clone());
        let (marks, shared) = (Arc::new(marks), Arc::clone(shared));
        Self { lanes, ledger, shared, meters, marks, rebuilding: Mutex::default() }
    }

    /// Before the first request.
    pub(crate) async fn begin(&self) {
        self.marks.begin().await;
    }

    /// Claims what a new hold asks for, or says why it cannot be had. None: the gate has nothing to say about it.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        hall: &Arc<Hall>,
        create: &CreateHold,
        key: Option<IdempotencyKey>,
    ) -> Result<Option<Claim>, Refusal> {
        let Some(wanted) = asked(create, hall, &hall.rules()) else {
            return Ok(self.mark_alone(hall, create, key).await);
        };
        let best = create.items.iter().filter_map(|item| match item {
            ItemRequest::Best { section, .. } => Some(*section),
            ItemRequest::Seat(_) | ItemRequest::Pool(..) => None,
        });
        let mut entering = Entering { gate: self, claim: None };
        let claim = entering.claim.insert(Claim {
            sections: sections(&hall.venue.layout, wanted.seats),
            pools: wanted.pools.into_iter().map(Stock::wanted).collect(),
            best: best.collect(),
            ..Claim::of_nothing(hall, Owner::of(create.id))
        });
        self.marks.tell_all().await;
        let mark = key.map(|key| Mark::new(key.scope));
        let entered = self.claim_unless_marked(claim, create, mark.as_ref()).await;
        match entered {
            Ok(Err(refusal)) => {
                entering.claim = None;
                self.meters.refused.inc();
                if let Refusal::SeatsTaken(seats) = &refusal {
                    hall.note_taken(seats);
                }
                return Err(refusal);
            }
            // Without Redis the ledger decides alone, and slower.
            Ok(Ok(())) | Err(Away) => self.meters.admitted.inc(),
        };
        if let Some(mark) = mark {
            // Before the ledger can have granted it.
            self.marks.set(claim.mark.insert(mark)).await;
        }
        Ok(entering.claim.take())
    }

    /// For a request that the rules do not allow as this server has read them. The ledger may have newer ones and grant it, and must be
    /// recognised by a repetition all the same.
    async fn mark_alone(
        self: &Arc<Self>,
        hall: &Arc<Hall>,
        create: &CreateHold,
        key: Option<IdempotencyKey>,
    ) -> Option<Claim> {
        let mark = Mark::new(key?.scope);
        let mut entering = Entering { gate: self, claim: None };
        let claim = entering.claim.insert(Claim::of_nothing(hall, Owner::of(create.id)));
        self.marks.set(claim.mark.insert(mark)).await;
        entering.claim.take()
    }

    /// Claims. A repetition is recognised before its own hold can be in its way, and then claims nothing more.
    async fn claim_unless_marked(
        self: &Arc<Self>,
        claim: &mut Claim,
        create: &CreateHold,
        mark: Option<&Mark>,
    ) -> Result<Result<(), Refusal>, Away> {
        let is_let_through = AtomicBool::new(false);
        let looking = async {
            let Some(mark) = mark else { return Ok(Found::Unmarked) };
            let found = self.marks.find(mark).await;
            is_let_through.store(matches!(found, Ok(Found::Marked) | Err(Away)), Ordering::Relaxed);
            found
        };
        let (found, entered) = tokio::join!(looking, self.claim_all(claim, create, &is_let_through));
        match (found, mark) {
            (Ok(Found::Marked) | Err(Away), _) => Ok(Ok(())),
            // Whoever is let through need not have been here before: that is for the ledger to say.
            (Ok(Found::Perhaps), Some(mark))
                if entered.as_ref().is_ok_and(Result::is_err) && self.marks.may_be_known(mark).await =>
            {
                Ok(Ok(()))
            }
            _ => entered,
        }
    }

    /// What is to be noted of what the ledger said. None: nobody knows what it was, and the claim ends by itself.
    pub(crate) fn settlement(
        &self,
        hall: &Arc<Hall>,
        claim: Option<Claim>,
        done: Result<&Done, &EngineError>,
    ) -> Option<Settlement> {
        let (items, life, owner) = match done {
            Ok(done) => outcome_items(done),
            Err(EngineError::Unknown) => return None,
            Err(_) => (&[][..], DOUBT_AFTER, Owner::Unknown),
        };
        let (mut seats, mut units): (Vec<SeatNo>, Vec<Stock>) = (Vec::new(), Vec::new());
        for item in items {
            match *item {
                Item::Seat { seat, .. } => seats.push(seat),
                Item::Pool { pool, .. } => units.push(Stock::wanted((pool, 0))),
            }
        }
        let (mut who, mut unmark) = (Owner::Nobody, None);
        if let Some(claim) = claim {
            seats.extend(claim.sections.iter().flat_map(|(_, seats)| seats));
            units = claim.pools_claimed().collect();
            who = claim.who;
            // Else every repetition of a refused request would go past the gate for a day.
            unmark = claim.mark.filter(|_| done.is_err());
            if matches!(done, Err(EngineError::Refused(Refusal::NotTogether { .. }))) {
                let until = Instant::now() + UNITS_DOUBT_AFTER;
                claim.best.iter().for_each(|section| hall.note_no_best(*section, until));
            }
        }
        let is_taken = matches!(
            done,
            Err(EngineError::Refused(
                Refusal::SeatsTaken(_) | Refusal::PoolShort { .. } | Refusal::NotTogether { .. }
            ) | EngineError::KeyMismatch)
        );
        let sections = sections(&hall.venue.layout, seats);
        Some(Settlement {
            hall: Arc::clone(hall),
            who,
            sections,
            units,
            doubt: (life, owner),
            is_taken,
            unmark,
        })
    }

    /// Notes it, and ends the claim.
    pub(crate) async fn settle(self: &Arc<Self>, mut settlement: Settlement) {
        let mark = settlement.unmark.take();
        let unmarking = async {
            if let Some(mark) = &mark {
                self.marks.take_back(mark).await;
            }
        };
        tokio::join!(unmarking, self.note_settled(settlement));
    }

    async fn note_settled(self: &Arc<Self>, settlement: Settlement) {
        let Settlement { hall, who, sections, units, doubt: (life, owner), is_taken, unmark: _ } = settlement;
        let keys = sections.iter().map(|(section, _)| self.section_key(&hall, *section));
        let mut keys = keys.chain(units.iter().map(|stock| self.pools_key(&hall, stock.bucket)));
        let looks = is_taken && keys.any(|key| !self.lanes.is_away(&key));
        let doubts = match looks {
            true => {
                let seats: Vec<SeatNo> = sections.iter().flat_map(|(_, seats)| seats).copied().collect();
                hall.questions.ask(&self.shared, &hall.venue, seats).await
            }
            false => Arc::new(Doubts::after(life, owner)),
        };
        for (section, seats) in sections {
            self.note(&hall, section, who, &seats, &doubts).await;
        }
        let what = if is_taken { Units::NoteRefusal } else { Units::NoteGrant };
        for claimed in units {
            let _ = self.units(&hall, what, claimed, doubts.units).await;
        }
    }

    /// Claims section after section, and then the pools; gives back what it has when one of them cannot be had. Ends with what
    /// it has when it is let through all the same.
    async fn claim_all(
        self: &Arc<Self>,
        claim: &mut Claim,
        create: &CreateHold,
        is_let_through: &AtomicBool,
    ) -> Result<Result<(), Refusal>, Away> {
        let mut taken = Vec::new();
        for (section, seats) in &claim.sections {
            if is_let_through.load(Ordering::Relaxed) {
                return Ok(Ok(()));
            }
            // When one is taken the others are only looked at, to name all of them.
            let found = self.claim(claim, *section, seats, taken.is_empty()).await?;
            if taken.is_empty() && found.is_empty() {
                claim.claimed += 1;
            }
            taken.extend(found);
        }
        let mut refusal = match taken.is_empty() {
            true if claim.sections.is_empty() => claim.hall.no_best(&create.items, Instant::now()),
            true => None,
            false => Some(Refusal::SeatsTaken(taken)),
        };
        if refusal.is_none() && !is_let_through.load(Ordering::Relaxed) {
            // One of the seats may only have been doubted, and what is said of seats comes first.
            refusal = self.claim_pools(claim, is_let_through).await?.filter(|_| claim.sections.is_empty());
        }
        let Some(refusal) = refusal else { return Ok(Ok(())) };
        self.give_back(claim).await;
        Ok(Err(refusal))
    }

    /// Claims the units of all pools at once: they are in one slot, so it takes one script. Says which is short.
    async fn claim_pools(
        &self,
        claim: &mut Claim,
        is_let_through: &AtomicBool,
    ) -> Result<Option<Refusal>, Away> {
        let Claim { hall, who, pools, .. } = claim;
        let (hall, who) = (&*hall, *who);
        let claims = pools.iter_mut().map(|stock| async move {
            stock.bucket = self.bucket(hall, who, stock.pool);
            let found = self.claim_units(hall, stock, is_let_through).await;
            if !matches!(found, Ok(None)) {
                stock.quantity = 0;
            }
            found
        });
        let found = join_all(claims).await;
        claim.claimed += claim.pools.len();
        let found: Vec<Option<Refusal>> = found.into_iter().collect::<Result<_, Away>>()?;
        Ok(found.into_iter().flatten().next())
    }

    async fn give_back(self: &Arc<Self>, claim: &mut Claim) {
        let pools: Vec<Stock> = claim.pools_claimed().filter(|stock| stock.quantity > 0).collect();
        let claimed = std::mem::take(&mut claim.claimed);
        for (section, seats) in claim.sections.iter().take(claimed) {
            self.end_claims(&claim.hall, *section, claim.who, seats).await;
        }
        for stock in pools {
            let _ = self.units(&claim.hall, Units::NoteGrant, stock, UNITS_DOUBT_AFTER).await;
        }
    }

    /// Claims the seats of one section, or only looks; those that are taken.
    async fn claim(
        self: &Arc<Self>,
        claim: &Claim,
        section: u32,
        seats: &[SeatNo],
        claims: bool,
    ) -> Result<Vec<SeatNo>, Away> {
        let mut args = vec![claim.who.to_string(), flag(claims)];
        claim.hall.feed.look(|summary, statuses| {
            args.extend([summary.version.number.to_string(), seats.len().to_string()]);
            for seat in seats {
                let is_free = statuses[seat.0 as usize] == SeatStatus::Free;
                args.extend([seat.0.to_string(), flag(is_free)]);
            }
        });
        let answer = self.lanes.ask(Script::Claim, self.section_key(&claim.hall, section), args).await?;
        let [is_built, taken @ ..] = &answer[..] else { return Err(Away) };
        if *is_built == 0 {
            self.rebuild(&claim.hall, section);
        }
        let taken = taken.iter().filter_map(|seat| u32::try_from(*seat).ok().map(SeatNo));
        Ok(taken.collect())
    }

    /// Where units of a pool are claimed: in a bucket only if more is asked of the whole than one script takes.
    fn bucket(&self, hall: &Hall, who: Owner, pool: PoolNo) -> Bucket {
        if !self.lanes.are_spread()
            || !self.lanes.is_crowded(Script::Units, &self.pools_key(hall, Bucket::Whole))
        {
            return Bucket::Whole;
        }
        let bucket = Bucket::of(who, hall.feed.look(|summary, _| summary.pools[pool.0 as usize].free()));
        self.meters.spread.inc_by(u64::from(bucket != Bucket::Whole));
        bucket
    }

    /// Claims units, or says that there are too few. Nobody is told so because of a claim: that is waited for; nor because
    /// of a share: who finds one used up asks the whole pool. Who goes on to the ledger without a claim has none to end.
    async fn claim_units(
        &self,
        hall: &Hall,
        stock: &mut Stock,
        is_let_through: &AtomicBool,
    ) -> Result<Option<Refusal>, Away> {
        let (begun, pool) = (Instant::now(), stock.pool);
        let waits = || begun.elapsed() < CLAIMED_WAIT_MAX && !is_let_through.load(Ordering::Relaxed);
        let unclaimed = |stock: &mut Stock| {
            stock.quantity = 0;
            Ok(None)
        };
        loop {
            let answer = self.units(hall, Units::Claim, *stock, UNITS_DOUBT_AFTER).await;
            match answer.as_deref() {
                Ok([0]) => return Ok(None),
                _ if stock.bucket != Bucket::Whole => {
                    stock.bucket = Bucket::Whole;
                    continue;
                }
                _ => {}
            }
            match answer?[..] {
                [1, available, returning] => {
                    let count = |number: i64| u32::try_from(number).unwrap_or(0);
                    let (available, returning) = (count(available), count(returning));
                    return Ok(Some(Refusal::PoolShort { pool, available, returning }));
                }
                [2] if waits() => tokio::time::sleep(CLAIMED_LOOK_EVERY).await,
                _ => return unclaimed(stock),
            }
        }
    }

    async fn units(
        &self,
        hall: &Hall,
        what: Units,
        Stock { pool, quantity, bucket }: Stock,
        doubt_after: Duration,
    ) -> Result<Vec<i64>, Away> {
        let (version, counts) =
            hall.feed.look(|summary, _| (summary.version.number, summary.pools[pool.0 as usize]));
        // What nobody holds does not come back by itself.
        let doubt_after = if counts.held == 0 { DOUBT_AFTER } else { doubt_after };
        let args = vec![
            what.as_str().to_owned(),
            pool.0.to_string(),
            quantity.to_string(),
            version.to_string(),
            bucket.share_of(counts.free()).to_string(),
            counts.held.to_string(),
            doubt_after.as_millis().to_string(),
        ];
        self.lanes.ask(Script::Units, self.pools_key(hall, bucket), args).await
    }

    /// Notes how seats of a section stand, as far as this server has read the log.
    async fn note(&self, hall: &Hall, section: u32, who: Owner, seats: &[SeatNo], doubts: &Doubts) {
        for seats in seats.chunks(SEATS_PER_NOTE) {
            let mut args = vec![who.to_string(), flag(false)];
            hall.feed.look(|summary, statuses| {
                args.extend([summary.version.number.to_string(), seats.len().to_string()]);
                for seat in seats {
                    let is_free = statuses[seat.0 as usize] == SeatStatus::Free;
                    let (time, owner) = doubts.of(*seat);
                    let taken_ms = if is_free { 0 } else { time.as_millis().max(1) };
                    args.extend([seat.0.to_string(), taken_ms.to_string(), owner.to_string()]);
                }
            });
            let _ = self.lanes.ask(Script::Note, self.section_key(hall, section), args).await;
        }
    }

    /// Frees what this caller has claimed, and says nothing of how seats stand: a note of no version changes no other entry.
    async fn end_claims(&self, hall: &Hall, section: u32, who: Owner, seats: &[SeatNo]) {
        for seats in seats.chunks(SEATS_PER_NOTE) {
            let mut args = vec![who.to_string(), flag(false), "0".to_owned(), seats.len().to_string()];
            args.extend(seats.iter().flat_map(|seat| [seat.0.to_string(), "0".to_owned(), "?".to_owned()]));
            let _ = self.lanes.ask(Script::Note, self.section_key(hall, section), args).await;
        }
    }

    /// Writes a section anew that Redis does not know, from what this server has read.
    fn rebuild(self: &Arc<Self>, hall: &Arc<Hall>, section: u32) {
        let place = (hall.venue.number.0, section);
        if !self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            return;
        }
        let (gate, hall) = (Arc::clone(self), Arc::clone(hall));
        tokio::spawn(async move {
            let seats = claim::seats_of(&hall.venue.layout, section);
            let taken: Vec<SeatNo> = hall.feed.look(|_, statuses| {
                seats.filter(|seat| statuses[*seat as usize] != SeatStatus::Free).map(SeatNo).collect()
            });
            if !taken.is_empty() {
                let doubts = hall.questions.ask(&gate.shared, &hall.venue, taken.clone()).await;
                gate.note(&hall, section, Owner::Nobody, &taken, &doubts).await;
            }
            let args = ["-", "1", "0", "0"].map(str::to_owned).to_vec();
            if gate.lanes.ask(Script::Note, gate.section_key(&hall, section), args).await.is_ok() {
                gate.meters.rebuilt.inc();
            }
            gate.rebuilding.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
        });
    }

    /// Everything about a section is in one slot.
    fn section_key(&self, hall: &Hall, section: u32) -> String {
        format!("leasehold:gate:{{{}.{}.{section}}}:seats", self.ledger, hall.venue.number.0)
    }

    /// And everything about an event's pools, or about their shares in one bucket.
    fn pools_key(&self, hall: &Hall, bucket: Bucket) -> String {
        format!("leasehold:gate:{{{}.{}{}}}:pools", self.ledger, hall.venue.number.0, bucket.tag())
    }
}

/// A claim whose caller may go away before the ledger is asked: then it is given back.
struct Entering<'a> {
    gate: &'a Arc<Gate>,
    claim: Option<Claim>,
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        let Some(mut claim) = self.claim.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let gate = Arc::clone(self.gate);
        // What was asked last may have been claimed, too. Of units it is not known, and those end by themselves.
        claim.claimed = claim.claimed.max(claim.sections.len());
        runtime.spawn(async move {
            gate.give_back(&mut claim).await;
            if let Some(mark) = &claim.mark {
                gate.marks.take_back(mark).await;
            }
        });
    }
}

/// What is to be noted after an answer of the ledger.
#[derive(Debug)]
pub(crate) struct Settlement {
    hall: Arc<Hall>,
    /// Whose claims end.
    who: Owner,
    sections: Vec<(u32, Vec<SeatNo>)>,
    /// Each with the units that were claimed.
    units: Vec<Stock>,
    /// How long what was given is taken for certain, and by whom.
    doubt: (Duration, Owner),
    /// The ledger said that something was taken, and is to be asked by whom and for how long.
    is_taken: bool,
    /// The mark of an attempt that did nothing.
    unmark: Option<Mark>,
}

/// What an outcome is about, how long its hold lives, and which hold that is.
fn outcome_items(done: &Done) -> (&[Item], Duration, Owner) {
    match &done.outcome {
        Outcome::Hold(hold) => {
            let life = hold.live_until().as_millis().saturating_sub(done.at.as_millis());
            (&hold.items, Duration::from_millis(life), Owner::of(hold.id))
        }
        Outcome::Booking(booking) => (&booking.items, DOUBT_AFTER, Owner::of(booking.hold)),
        Outcome::Block(block) => (&block.items, DOUBT_AFTER, Owner::Nobody),
        Outcome::Event(_) | Outcome::BlockGone | Outcome::RefundDue(_) => (&[], DOUBT_AFTER, Owner::Unknown),
    }
}

fn flag(is_so: bool) -> String {
    if is_so { "1" } else { "0" }.to_owned()
}
