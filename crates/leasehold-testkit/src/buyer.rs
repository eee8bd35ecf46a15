//! One buyer of the workload: holds, pays, gives back, asks again, and sometimes cheats.

mod closing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::{
    BeginPayment, BlockView, BlockedUnits, BookingView, CancelBooking, ConfirmHold, CreateBlock, CreateHold,
    HoldView, ItemSpec, ItemView, PatchEvent, PatchHold, PaymentFailed, PoolCapacity, RevokeHold,
};
use leasehold_client::Request;

use crate::doors::Doors;
use crate::history::{Answer, Outcome, SentRequest};
use crate::random::Random;
use crate::route::Route;
use crate::workload::Shop;

/// More holds than this a buyer does not collect.
const HOLDS_MAX: usize = 4;
/// One buyer in so many is also an operator.
const OPERATORS_EVERY: usize = 8;

/// A buyer with what it knows.
#[derive(Debug)]
pub(crate) struct Buyer {
    number: usize,
    random: Random,
    shop: Arc<Shop>,
    holds: Vec<Held>,
    bookings: Vec<String>,
    /// What it keeps back as an operator.
    blocks: Vec<String>,
    /// Requests that are sent again under the same key: those without an answer, and some that have one.
    again: VecDeque<Request>,
    keys_used: u64,
}

#[derive(Debug)]
struct Held {
    id: String,
    secret: String,
    items: Vec<ItemSpec>,
    payment_ref: Option<String>,
}

impl Buyer {
    pub(crate) fn new(number: usize, random: Random, shop: Arc<Shop>) -> Self {
        Self {
            number,
            random,
            shop,
            holds: Vec::new(),
            bookings: Vec::new(),
            blocks: Vec::new(),
            again: VecDeque::new(),
            keys_used: 0,
        }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Buys until told to stop, or until the only server is gone.
    pub(crate) async fn run(mut self, mut doors: Doors, stop: Arc<AtomicBool>) -> Self {
        while !stop.load(Ordering::Relaxed) {
            let request = self.choose();
            match doors.send(request.clone()).await {
                Outcome::Answer(answer) => self.learn(&request, &answer),
                Outcome::NoAnswer => self.remember(request),
                Outcome::NotSent => {
                    self.remember(request);
                    if doors.is_only_one() {
                        break;
                    }
                }
            }
            let pause_ms = self.random.within(0..4);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        self
    }

    fn choose(&mut self) -> Request {
        if self.random.percent(40)
            && let Some(request) = self.again.pop_front()
        {
            return request;
        }
        if self.number.is_multiple_of(OPERATORS_EVERY) && self.random.percent(10) {
            return self.operate();
        }
        if !self.bookings.is_empty() && self.random.percent(20) {
            let booking = self.random.pick(&self.bookings).clone();
            let body = CancelBooking { reason: Some("changed my mind".to_owned()) };
            return self.keyed(Request::post(format!("/v1/bookings/{booking}/cancel"), &body));
        }
        if self.holds.is_empty() || (self.holds.len() < HOLDS_MAX && self.random.percent(40)) {
            return self.create_hold();
        }
        self.use_hold()
    }

    /// Takes a hold away, keeps something back, puts it on sale again, or changes how much there is.
    fn operate(&mut self) -> Request {
        let event = format!("/v1/events/{}", self.shop.event);
        if let Some(hold) = self.holds.first().filter(|_| self.random.percent(20)) {
            let revoke = RevokeHold { reason: Some("by mistake".to_owned()) };
            let revoke = Request::post(format!("/v1/holds/{}/revoke", hold.id), &revoke);
            return self.keyed(revoke);
        }
        if let Some(block) = self.blocks.first() {
            let removal = Request::delete(format!("{event}/blocks/{block}"));
            return self.keyed(removal);
        }
        if self.random.percent(70) {
            let seat = self.random.pick(&self.shop.seats).clone();
            let units = BlockedUnits { id: self.shop.pool.clone(), quantity: 1 };
            let (seats, pools) =
                if self.random.percent(50) { (vec![seat], vec![]) } else { (vec![], vec![units]) };
            let block = CreateBlock { seats, pools, reason: None };
            // Always with a key: what nobody knows of is never put on sale again.
            return Request::post(format!("{event}/blocks"), &block).idempotency_key(self.next_key());
        }
        let (id, usual) = (self.shop.pool.clone(), u64::from(self.shop.pool_capacity));
        let capacity = u32::try_from(self.random.within(usual * 3 / 4..usual * 5 / 4)).unwrap_or(1);
        let patch = PatchEvent { pools: vec![PoolCapacity { id, capacity }], ..PatchEvent::default() };
        self.keyed(Request::patch(event, &patch))
    }

    fn create_hold(&mut self) -> Request {
        let mut items = Vec::new();
        if self.random.percent(5) {
            items.push(ItemSpec::best(2));
        }
        if self.random.percent(30) {
            let quantity = u32::try_from(self.random.within(1..4)).unwrap_or(1);
            items.push(ItemSpec::pool(&self.shop.pool, quantity));
        }
        if items.is_empty() || self.random.percent(30) {
            let first = self.random.index(self.shop.seats.len());
            items.push(ItemSpec::seat(&self.shop.seats[first]));
            let second = self.random.index(self.shop.seats.len());
            if second != first && self.random.percent(25) {
                items.push(ItemSpec::seat(&self.shop.seats[second]));
            }
        }
        let short = self.random.percent(60);
        let ttl_ms = if short { self.random.within(1_000..3_000) } else { self.random.within(5_000..20_000) };
        let ttl_ms = Some(ttl_ms.min(self.shop.hold_ms_max));
        let body = CreateHold { items, holder: Some(format!("buyer-{}", self.number)), ttl_ms };
        // Without a key, a server may refuse it by what it remembers.
        self.keyed(Request::post(format!("/v1/events/{}/holds", self.shop.event), &body))
    }

    fn use_hold(&mut self) -> Request {
        let place = self.random.index(self.holds.len());
        let chance = self.random.within(0..100);
        let payment_ref = format!("pay-{}-{}", self.number, self.keys_used);
        let hold = &mut self.holds[place];
        let path = format!("/v1/holds/{}", hold.id);
        let request = match chance {
            0..10 => {
                let extend_ms = Some(1_000 + chance * 200);
                Request::patch(path, &PatchHold { extend_ms, ..PatchHold::default() })
            }
            10..20 => {
                let seat = ItemSpec::seat(self.random.pick(&self.shop.seats));
                let unit = ItemSpec::pool(&self.shop.pool, 1);
                let first = hold.items.first().cloned();
                // More, something else, or less. Units are mostly free where seats are not: some of these are granted.
                let (add, remove) = match chance {
                    10..12 => (Some(unit), None),
                    12..14 => (Some(seat), None),
                    14 => (Some(seat), first),
                    _ if hold.items.len() > 1 => (None, first),
                    _ => (Some(unit), first),
                };
                let (add, remove) = (Vec::from_iter(add), Vec::from_iter(remove));
                Request::patch(path, &PatchHold { add, remove, ..PatchHold::default() })
            }
            20..35 => {
                hold.payment_ref = Some(payment_ref.clone());
                let body = BeginPayment { payment_ref, max_wait_ms: Some(1_000 + chance * 100) };
                Request::post(format!("{path}/payment"), &body)
            }
            35..45 => {
                let payment_ref = hold.payment_ref.clone().unwrap_or(payment_ref);
                Request::post(format!("{path}/payment/failed"), &PaymentFailed { payment_ref })
            }
            45..80 => {
                let part = hold.items.first().filter(|_| chance < 52).map(|item| vec![item.clone()]);
                let payment_ref = hold.payment_ref.clone();
                let body = ConfirmHold { payment_ref, items: part, ..ConfirmHold::default() };
                Request::post(format!("{path}/confirm"), &body)
            }
            _ => Request::delete(path),
        };
        let honest = hold.secret.clone();
        let secret = if self.random.percent(10) { self.wrong_secret(place) } else { honest };
        self.keyed(request.secret(secret))
    }

    /// The secret of another hold, or no secret at all.
    fn wrong_secret(&self, place: usize) -> String {
        let other = self.holds.iter().enumerate().find(|(index, _)| *index != place);
        other.map_or_else(|| "not-a-secret".to_owned(), |(_, hold)| hold.secret.clone())
    }

    fn learn(&mut self, request: &Request, answer: &Answer) {
        let sent = SentRequest {
            method: request.method.to_string(),
            path: request.path.clone(),
            ..SentRequest::default()
        };
        if is_undecided(answer) {
            return self.remember(request.clone());
        }
        if answer.is_success() && self.random.percent(10) {
            self.remember(request.clone());
        }
        match Route::of(&sent) {
            Route::CreateHold(_) => {
                if let Some(view) = answer.view::<HoldView>().filter(|_| answer.is_success())
                    && let Some(secret) = view.secret
                    && self.holds.iter().all(|known| known.id != view.hold_id)
                {
                    let items = specs(&view.items);
                    self.holds.push(Held { id: view.hold_id, secret, items, payment_ref: None });
                }
            }
            Route::PatchHold(hold) if answer.is_success() => {
                let known = self.holds.iter_mut().find(|known| known.id == hold);
                if let (Some(known), Some(view)) = (known, answer.view::<HoldView>()) {
                    known.items = specs(&view.items);
                }
            }
            Route::CreateBlock(_) if answer.is_success() => {
                self.blocks.extend(answer.view::<BlockView>().map(|view| view.block_id));
            }
            Route::RemoveBlock(_, block) if answer.is_success() || answer.status == 404 => {
                self.blocks.retain(|known| known != block);
            }
            Route::ConfirmHold(hold) => {
                if let Some(booking) = answer.view::<BookingView>().filter(|_| answer.is_success()) {
                    self.bookings.push(booking.booking_id);
                    self.forget(hold);
                } else if self.is_over(request, answer) {
                    self.forget(hold);
                }
            }
            Route::ReleaseHold(hold) | Route::RevokeHold(hold) if answer.is_success() => self.forget(hold),
            Route::ReleaseHold(hold) | Route::PatchHold(hold) | Route::BeginPayment(hold)
                if self.is_over(request, answer) =>
            {
                self.forget(hold);
            }
            Route::CancelBooking(booking) => self.bookings.retain(|known| known != booking),
            _ => {}
        }
    }

    /// True when the owner was told that the hold is over; a wrong secret says nothing about it.
    fn is_over(&self, request: &Request, answer: &Answer) -> bool {
        let carried = request.headers.iter().find(|(name, _)| name == leasehold_api::HOLD_SECRET);
        let owner = carried.is_some_and(|(_, value)| self.holds.iter().any(|hold| hold.secret == *value));
        owner && (answer.status == 410 || answer.code().as_deref() == Some("hold-state"))
    }

    fn forget(&mut self, hold: &str) {
        self.holds.retain(|known| known.id != hold);
    }

    /// Only a request with a key can be repeated without harm.
    fn remember(&mut self, request: Request) {
        if request.headers.iter().any(|(name, _)| name == leasehold_api::IDEMPOTENCY_KEY) {
            self.again.push_back(request);
        }
    }

    fn keyed(&mut self, request: Request) -> Request {
        if self.random.percent(85) { request.idempotency_key(self.next_key()) } else { request }
    }

    fn next_key(&mut self) -> String {
        self.keys_used += 1;
        format!("buyer-{}-key-{}", self.number, self.keys_used)
    }
}

/// True when the answer does not say what became of the request: ask again.
fn is_undecided(answer: &Answer) -> bool {
    answer.code().as_deref() == Some("idempotency-in-flight") || answer.status >= 500
}

/// The same items, to be asked for or given back.
fn specs(items: &[ItemView]) -> Vec<ItemSpec> {
    let spec = |item: &ItemView| match (&item.seat, &item.pool) {
        (Some(seat), _) => Some(ItemSpec::seat(seat)),
        (None, Some(pool)) => Some(ItemSpec::pool(pool, item.quantity.unwrap_or(1))),
        (None, None) => None,
    };
    items.iter().filter_map(spec).collect()
}
