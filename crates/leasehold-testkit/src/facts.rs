//! What a history says for certain: holds and sales that were acknowledged, and what may have ended them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, UNIX_EPOCH};

use leasehold_api::{BlockView, BookingView, CreateEvent, HoldView, ItemView};

use crate::history::{History, Operation};
use crate::route::Route;

/// Microseconds since 1970, on the server's clock or on this machine's wall clock.
pub(crate) type Micros = i64;

/// The whole history, sorted by what it is about.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) operations: Vec<Operation>,
    pub(crate) final_from: Option<usize>,
    pub(crate) holds: BTreeMap<String, HoldFact>,
    pub(crate) bookings: BTreeMap<String, BookingFact>,
    pub(crate) blocks: BTreeMap<String, BlockFact>,
    /// Holds that became an acknowledged booking.
    pub(crate) sold_holds: HashSet<String>,
    on_hold: HashMap<String, Vec<usize>>,
    on_booking: HashMap<String, Vec<usize>>,
    pub(crate) on_event: HashMap<String, Vec<usize>>,
    started_wall: Micros,
}

/// A hold that was granted and acknowledged.
#[derive(Debug)]
pub(crate) struct HoldFact {
    pub(crate) id: String,
    pub(crate) secret: Option<String>,
    pub(crate) event: String,
    pub(crate) created_at: Micros,
    /// The first moment at which a request for it began, answered or not.
    pub(crate) invoked: Duration,
    /// The first moment at which it was known to be granted.
    pub(crate) acknowledged: Duration,
    /// The newest view in which it was alive.
    pub(crate) alive: HoldView,
    pub(crate) grants: Vec<SeatGrant>,
    pub(crate) pools: BTreeMap<String, u64>,
}

/// A seat that was given to a hold.
#[derive(Debug, Clone)]
pub(crate) struct SeatGrant {
    pub(crate) seat: String,
    pub(crate) fence: Option<u64>,
    /// The server's time of the grant, where the answer says it.
    pub(crate) since: Option<Micros>,
    pub(crate) invoked: Duration,
    pub(crate) acknowledged: Duration,
}

/// A sale that was acknowledged.
#[derive(Debug)]
pub(crate) struct BookingFact {
    pub(crate) view: BookingView,
    pub(crate) booked_at: Micros,
    pub(crate) invoked: Duration,
    pub(crate) acknowledged: Duration,
}

/// Seats or units kept back from sale, which was acknowledged.
#[derive(Debug)]
pub(crate) struct BlockFact {
    pub(crate) view: BlockView,
    pub(crate) created_at: Micros,
    pub(crate) invoked: Duration,
    pub(crate) acknowledged: Duration,
}

impl Facts {
    pub(crate) fn of(history: &History) -> Self {
        let since_epoch = history.started_wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut facts = Self {
            operations: history.operations(),
            final_from: history.final_from(),
            holds: BTreeMap::new(),
            bookings: BTreeMap::new(),
            blocks: BTreeMap::new(),
            sold_holds: HashSet::new(),
            on_hold: HashMap::new(),
            on_booking: HashMap::new(),
            on_event: HashMap::new(),
            started_wall: micros(since_epoch),
        };
        facts.sort_by_subject();
        facts.collect_holds();
        facts.collect_bookings();
        facts.collect_blocks();
        facts
    }

    /// The operations about one hold.
    pub(crate) fn about_hold(&self, hold: &str) -> impl Iterator<Item = (usize, &Operation)> {
        self.numbered(self.on_hold.get(hold))
    }

    /// The events whose creation was acknowledged.
    pub(crate) fn created_events(&self) -> BTreeSet<String> {
        let created = self.operations.iter().filter(|operation| {
            operation.acknowledged() && Route::of(&operation.request) == Route::CreateEvent
        });
        let id = |operation: &Operation| {
            serde_json::from_slice::<CreateEvent>(&operation.request.body).ok().map(|event| event.id)
        };
        created.filter_map(id).collect()
    }

    /// The operations about one booking.
    pub(crate) fn about_booking(&self, booking: &str) -> impl Iterator<Item = (usize, &Operation)> {
        self.numbered(self.on_booking.get(booking))
    }

    /// The wall clock at a moment of the history.
    pub(crate) fn wall(&self, moment: Duration) -> Micros {
        self.started_wall + micros(moment)
    }

    /// True for operations of the read-back.
    pub(crate) fn is_final(&self, index: usize) -> bool {
        self.final_from.is_some_and(|from| index >= from)
    }

    pub(crate) fn numbered(&self, indexes: Option<&Vec<usize>>) -> impl Iterator<Item = (usize, &Operation)> {
        let indexes = indexes.map(Vec::as_slice).unwrap_or_default().to_vec();
        indexes.into_iter().map(|index| (index, &self.operations[index]))
    }

    fn sort_by_subject(&mut self) {
        for (index, operation) in self.operations.iter().enumerate() {
            match Route::of(&operation.request) {
                Route::GetHold(hold)
                | Route::PatchHold(hold)
                | Route::ReleaseHold(hold)
                | Route::BeginPayment(hold)
                | Route::PaymentFailed(hold)
                | Route::RevokeHold(hold)
                | Route::ConfirmHold(hold) => self.on_hold.entry(hold.to_owned()).or_default().push(index),
                Route::GetBooking(booking) | Route::CancelBooking(booking) => {
                    self.on_booking.entry(booking.to_owned()).or_default().push(index);
                }
                Route::PatchEvent(event)
                | Route::GetEvent(event)
                | Route::GetAvailability(event)
                | Route::GetRefunds(event)
                | Route::CreateBlock(event)
                | Route::RemoveBlock(event, _) => {
                    self.on_event.entry(event.to_owned()).or_default().push(index);
                }
                Route::CreateEvent | Route::CreateHold(_) | Route::Other => {}
            }
        }
    }

    fn collect_holds(&mut self) {
        let first_invoked = first_invocations(&self.operations);
        for (index, operation) in self.operations.iter().enumerate() {
            let route = Route::of(&operation.request);
            let creates = matches!(route, Route::CreateHold(_));
            let amends = matches!(route, Route::PatchHold(_));
            let shows = matches!(
                route,
                Route::GetHold(_) | Route::BeginPayment(_) | Route::PaymentFailed(_) | Route::ReleaseHold(_)
            );
            if !(creates || amends || shows) || !operation.acknowledged() {
                continue;
            }
            let Some(view) = operation.answer().and_then(|answer| answer.view::<HoldView>()) else {
                continue;
            };
            let Some(acknowledged) = operation.ended else { continue };
            let invoked = first_invoked.get(&index).copied().unwrap_or(operation.started);
            if creates {
                let new = HoldFact::granted(&view, invoked, acknowledged);
                let known = self.holds.entry(view.hold_id.clone()).or_insert(new);
                known.invoked = known.invoked.min(invoked);
                known.acknowledged = known.acknowledged.min(acknowledged);
            }
            let Some(hold) = self.holds.get_mut(&view.hold_id) else { continue };
            if creates || amends {
                let since = creates.then_some(hold.created_at);
                hold.add_grants(&view.items, since, invoked, acknowledged);
            }
            let alive = view.state == "held" || view.state == "confirming";
            if alive && view.version > hold.alive.version {
                hold.alive = view;
            }
        }
    }

    fn collect_bookings(&mut self) {
        let first_invoked = first_invocations(&self.operations);
        for (index, operation) in self.operations.iter().enumerate() {
            if !matches!(Route::of(&operation.request), Route::ConfirmHold(_)) || !operation.acknowledged() {
                continue;
            }
            let Some(view) = operation.answer().and_then(|answer| answer.view::<BookingView>()) else {
                continue;
            };
            let Some(acknowledged) = operation.ended else { continue };
            let invoked = first_invoked.get(&index).copied().unwrap_or(operation.started);
            self.sold_holds.insert(view.hold_id.clone());
            let booked_at = parse_micros(&view.booked_at).unwrap_or_default();
            let new = BookingFact { booked_at, invoked, acknowledged, view };
            let known = self.bookings.entry(new.view.booking_id.clone()).or_insert(new);
            known.invoked = known.invoked.min(invoked);
            known.acknowledged = known.acknowledged.min(acknowledged);
        }
    }

    fn collect_blocks(&mut self) {
        let first_invoked = first_invocations(&self.operations);
        for (index, operation) in self.operations.iter().enumerate() {
            if !matches!(Route::of(&operation.request), Route::CreateBlock(_)) || !operation.acknowledged() {
                continue;
            }
            let view = operation.answer().and_then(|answer| answer.view::<BlockView>());
            let (Some(view), Some(acknowledged)) = (view, operation.ended) else { continue };
            let invoked = first_invoked.get(&index).copied().unwrap_or(operation.started);
            let created_at = parse_micros(&view.created_at).unwrap_or_default();
            let new = BlockFact { created_at, invoked, acknowledged, view };
            let known = self.blocks.entry(new.view.block_id.clone()).or_insert(new);
            known.invoked = known.invoked.min(invoked);
            known.acknowledged = known.acknowledged.min(acknowledged);
        }
    }
}

impl HoldFact {
    fn granted(view: &HoldView, invoked: Duration, acknowledged: Duration) -> Self {
        let mut pools = BTreeMap::new();
        for item in &view.items {
            if let Some(pool) = &item.pool {
                *pools.entry(pool.clone()).or_default() += u64::from(item.quantity.unwrap_or(1));
            }
        }
        Self {
            id: view.hold_id.clone(),
            secret: view.secret.clone(),
            event: view.event.clone(),
            created_at: parse_micros(&view.created_at).unwrap_or_default(),
            invoked,
            acknowledged,
            alive: view.clone(),
            grants: Vec::new(),
            pools,
        }
    }

    /// The server's time until which the hold certainly lives, if nothing is done to end it.
    pub(crate) fn lives_until(&self) -> Micros {
        let deadline = match &self.alive.payment {
            Some(payment) if self.alive.state == "confirming" => &payment.deadline,
            _ => &self.alive.expires_at,
        };
        parse_micros(deadline).unwrap_or_default()
    }

    fn add_grants(
        &mut self,
        items: &[ItemView],
        since: Option<Micros>,
        invoked: Duration,
        acknowledged: Duration,
    ) {
        for item in items {
            let Some(seat) = &item.seat else { continue };
            match self.grants.iter_mut().find(|grant| grant.seat == *seat && grant.fence == item.fence) {
                Some(grant) => {
                    grant.invoked = grant.invoked.min(invoked);
                    grant.acknowledged = grant.acknowledged.min(acknowledged);
                }
                None => self.grants.push(SeatGrant {
                    seat: seat.clone(),
                    fence: item.fence,
                    since,
                    invoked,
                    acknowledged,
                }),
            }
        }
    }
}

/// RFC 3339 as microseconds.
pub(crate) fn parse_micros(text: &str) -> Option<Micros> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
}

/// For each operation with an idempotency key: when the first with that key, path and body began.
pub(crate) fn first_invocations(operations: &[Operation]) -> HashMap<usize, Duration> {
    let identity = |operation: &Operation| {
        let request = &operation.request;
        let key = request.header(leasehold_api::IDEMPOTENCY_KEY)?;
        Some((request.method.clone(), request.path.clone(), key.to_owned(), request.body.clone()))
    };
    let mut first = HashMap::new();
    for operation in operations.iter().filter(|operation| operation.may_have_taken_effect()) {
        if let Some(identity) = identity(operation) {
            let earliest = first.entry(identity).or_insert(operation.started);
            *earliest = operation.started.min(*earliest);
        }
    }
    let of = |(index, operation)| Some((index, *first.get(&identity(operation)?)?));
    operations.iter().enumerate().filter_map(of).collect()
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}
