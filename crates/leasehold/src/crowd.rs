//! Simulated buyers for the demonstration: they look, hold, hesitate, pay, are declined, give up, and cancel later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api::{
    BeginPayment, BestSpec, BookingView, ConfirmHold, CreateHold, EventView, HoldView, ItemSpec,
    PaymentFailed,
};
use leasehold_client::{Client, Method, Request};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::rush::Random;

/// The crowd leaves about this part of the seats to others, in percent: a venue that is sold out is dull to look at.
const LEFT_FREE_PERCENT: usize = 45;
/// Seats of a purchase on average, for that.
const SEATS_PER_PURCHASE: usize = 2;

/// Buyers that run until they are told to stop.
pub(crate) struct Crowd {
    buyers: JoinSet<()>,
}

/// What all of them want to go to.
struct Show {
    event: String,
    sections: Vec<String>,
    /// Each as what its seats' ids begin with, and how many they are.
    rows: Vec<(String, usize)>,
    pools: Vec<String>,
    /// Purchases that one buyer keeps; it cancels its oldest one when it has more.
    purchases_max: usize,
}

impl Crowd {
    pub(crate) fn start(url: &str, event: &EventView, count: u32, stop: &CancellationToken) -> Self {
        let seats = event.seats.total as usize * (100 - LEFT_FREE_PERCENT) / 100;
        let rows = event.sections.iter().flat_map(|section| {
            section.rows.iter().map(|row| (format!("{}-{}-", section.name, row.name), row.count as usize))
        });
        let show = Arc::new(Show {
            event: event.id.clone(),
            sections: event.sections.iter().map(|section| section.name.clone()).collect(),
            rows: rows.collect(),
            pools: event.pools.iter().map(|pool| pool.id.clone()).collect(),
            purchases_max: (seats / SEATS_PER_PURCHASE / count.max(1) as usize).max(1),
        });
        let mut buyers = JoinSet::new();
        for number in 0..count {
            let buyer = Buyer {
                client: Client::new(url),
                show: Arc::clone(&show),
                name: format!("crowd-{number}"),
                random: Random::fresh(u64::from(number)),
                visits: 0,
                purchases: VecDeque::new(),
            };
            let stop = stop.clone();
            buyers.spawn(async move {
                tokio::select! {
                    () = buyer.live() => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        Self { buyers }
    }

    pub(crate) async fn ended(mut self) {
        while self.buyers.join_next().await.is_some() {}
    }
}

struct Buyer {
    client: Client,
    show: Arc<Show>,
    name: String,
    random: Random,
    visits: u64,
    /// Its bookings, oldest first.
    purchases: VecDeque<String>,
}

impl Buyer {
    /// Shops for ever. A failed request is only a bad day: the next visit starts anew.
    async fn live(mut self) {
        self.come_early().await;
        loop {
            self.pause(300, 5_000).await;
            self.visits += 1;
            if let Some(hold) = self.hold().await {
                self.pause(1_000, 9_000).await;
                self.decide(&hold).await;
            }
            if self.purchases.len() > self.show.purchases_max
                && let Some(booking) = self.purchases.pop_front()
            {
                let path = format!("/v1/bookings/{booking}/cancel");
                let _ = self.client.send(Request::new(Method::POST, path)).await;
            }
        }
    }

    /// Buys a part of what it will have at once: nobody wants to watch an empty hall fill up.
    async fn come_early(&mut self) {
        for _ in 0..self.show.purchases_max / 2 {
            self.visits += 1;
            if let Some(hold) = self.hold().await {
                let secret = hold.secret.unwrap_or_default();
                let path = format!("/v1/holds/{}", hold.hold_id);
                self.confirm(&path, &secret, format!("{}-early", hold.hold_id)).await;
            }
        }
    }

    async fn hold(&mut self) -> Option<HoldView> {
        let items = match self.random.below(6) {
            0 if !self.show.pools.is_empty() => {
                let pool = self.random.below(self.show.pools.len());
                vec![ItemSpec::pool(self.show.pools[pool].clone(), 1 + self.random.below(3) as u32)]
            }
            1 | 2 if !self.show.rows.is_empty() => self.neighbours(),
            _ => {
                let section = self.show.sections.get(self.random.below(self.show.sections.len().max(1)));
                let best = BestSpec { count: 1 + self.random.below(4) as u32, section: section.cloned() };
                vec![ItemSpec { best: Some(best), ..ItemSpec::default() }]
            }
        };
        let ttl_ms = Some(20_000 + self.random.below(20_000) as u64);
        // Everybody who comes is somebody else: a limit on tickets is one on people.
        let holder = Some(format!("{}-{}", self.name, self.visits));
        let body = CreateHold { items, holder, ttl_ms };
        let path = format!("/v1/events/{}/holds", self.show.event);
        let response = self.client.send(Request::post(path, &body)).await.ok()?;
        if response.status == 201 { response.json().ok() } else { None }
    }

    /// Seats next to each other that it likes for reasons of its own. Somebody else may have them already.
    fn neighbours(&mut self) -> Vec<ItemSpec> {
        let row = self.random.below(self.show.rows.len());
        let (begin, seats) = &self.show.rows[row];
        let count = (1 + self.random.below(4)).min(*seats);
        let first = 1 + self.random.below(seats - count + 1);
        (first..first + count).map(|seat| ItemSpec::seat(format!("{begin}{seat}"))).collect()
    }

    async fn decide(&mut self, hold: &HoldView) {
        let secret = hold.secret.clone().unwrap_or_default();
        let path = format!("/v1/holds/{}", hold.hold_id);
        match self.random.below(10) {
            0..=6 => self.pay(hold, &path, &secret).await,
            7..=8 => {
                let _ = self.client.send(Request::delete(path).secret(secret)).await;
            }
            // Walks away: the hold ends by itself.
            _ => {}
        }
    }

    /// As a shop does it: the payment begins before the money moves, and one in twelve is declined.
    async fn pay(&mut self, hold: &HoldView, path: &str, secret: &str) {
        let payment_ref = format!("{}-pay", hold.hold_id);
        let begin = BeginPayment { payment_ref: payment_ref.clone(), max_wait_ms: None };
        let begin = Request::post(format!("{path}/payment"), &begin).secret(secret.to_owned());
        let begun = self.client.send(begin).await;
        if !begun.is_ok_and(|answer| answer.status == 200) {
            return;
        }
        self.pause(400, 3_000).await;
        if self.random.below(12) == 0 {
            let failed = Request::post(format!("{path}/payment/failed"), &PaymentFailed { payment_ref });
            let _ = self.client.send(failed.secret(secret.to_owned())).await;
            return;
        }
        self.confirm(path, secret, payment_ref).await;
    }

    async fn confirm(&mut self, path: &str, secret: &str, payment_ref: String) {
        let order_ref = Some(format!("order-{}-{}", self.name, self.visits));
        let body = ConfirmHold { payment_ref: Some(payment_ref), order_ref, ..ConfirmHold::default() };
        let request = Request::post(format!("{path}/confirm"), &body).secret(secret.to_owned());
        let booked = self.client.send(request).await.ok().filter(|response| response.status == 201);
        if let Some(booking) = booked.and_then(|response| response.json::<BookingView>().ok()) {
            self.purchases.push_back(booking.booking_id);
        }
    }

    async fn pause(&mut self, min_ms: u64, max_ms: u64) {
        let ms = min_ms + self.random.below((max_ms - min_ms) as usize) as u64;
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
