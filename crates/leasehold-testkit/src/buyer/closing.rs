//! What a buyer does when the turmoil is over: it finds out what became of its requests, gives back what it has, and
//! buys what is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::{CancelBooking, ConfirmHold, CreateHold, ItemSpec};
use leasehold_client::Request;

use super::{Buyer, is_undecided};
use crate::desk::Granted;
use crate::doors::Doors;
use crate::history::{Answer, Outcome};

/// How long it has to pay for what it got.
const TTL_MS: u64 = 5_000;
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl Buyer {
    /// Sends again what is to be sent again, above all what has no answer yet, then puts on sale again what it has bought.
    pub(crate) async fn settle(mut self, mut doors: Doors) -> Self {
        while let Some(request) = self.again.pop_front() {
            let answer = ask(&mut doors, request.clone()).await;
            self.learn(&request, &answer);
        }
        while let Some(booking) = self.bookings.first() {
            let path = format!("/v1/bookings/{booking}/cancel");
            let cancel = Request::post(path, &CancelBooking::default()).idempotency_key(self.next_key());
            let answer = ask(&mut doors, cancel.clone()).await;
            self.learn(&cancel, &answer);
        }
        self
    }

    /// Buys one thing after the other until told to stop.
    pub(crate) async fn buy_what_is_left(mut self, mut doors: Doors, stop: Arc<AtomicBool>) -> Self {
        while !stop.load(Ordering::Relaxed) {
            let is_seat = self.random.percent(30);
            let item = match is_seat {
                true => ItemSpec::seat(self.random.pick(&self.shop.seats)),
                false => ItemSpec::pool(&self.shop.pool, 1),
            };
            let holder = Some(format!("buyer-{}", self.number));
            let body = CreateHold { items: vec![item], holder, ttl_ms: Some(TTL_MS) };
            let path = format!("/v1/events/{}/holds", self.shop.event);
            let request = Request::post(path, &body);
            // A server refuses seats by what it remembers, where there is no key; then these would never be sold.
            let request = if is_seat { request } else { request.idempotency_key(self.next_key()) };
            let answer = ask(&mut doors, request).await;
            if let Some(hold) = Granted::of(&answer) {
                let confirm =
                    Request::post(format!("/v1/holds/{}/confirm", hold.id), &ConfirmHold::default());
                ask(&mut doors, confirm.secret(&hold.secret).idempotency_key(self.next_key())).await;
            }
            let pause_ms = self.random.within(10..60);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        self
    }
}

/// Asks until an answer says what became of the request. Whoever waits for this bounds it.
async fn ask(doors: &mut Doors, request: Request) -> Answer {
    loop {
        match doors.send(request.clone()).await {
            Outcome::Answer(answer) if !is_undecided(&answer) => return answer,
            Outcome::Answer(_) | Outcome::NoAnswer | Outcome::NotSent => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}
