//! Simulated buyers for the demonstration: they look, hold, hesitate, pay, give up, and now and then cancel.

use std::time::Duration;

use leasehold_api::{BookingView, ConfirmHold, CreateHold, HoldView, ItemSpec};
use leasehold_client::{Client, Request};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::rush::Random;

/// Buyers that run until they are told to stop.
pub(crate) struct Crowd {
    buyers: JoinSet<()>,
}

impl Crowd {
    pub(crate) fn start(url: &str, event: &str, count: u32, stop: CancellationToken) -> Self {
        let mut buyers = JoinSet::new();
        for number in 0..count {
            let buyer = Buyer {
                client: Client::new(url),
                event: event.to_owned(),
                name: format!("buyer-{number}"),
                random: Random::fresh(u64::from(number)),
                purchases: 0,
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
    event: String,
    name: String,
    random: Random,
    purchases: u64,
}

impl Buyer {
    /// Shops for ever. A failed request is only a bad day: the next visit starts anew.
    async fn live(mut self) {
        loop {
            self.pause(500, 6_000).await;
            if let Some(hold) = self.hold().await {
                self.pause(1_000, 9_000).await;
                self.decide(&hold).await;
            }
        }
    }

    async fn hold(&mut self) -> Option<HoldView> {
        let item = match self.random.below(4) {
            0 => ItemSpec::pool("floor", 1 + self.random.below(3) as u32),
            _ => ItemSpec::best(1 + self.random.below(4) as u32),
        };
        let ttl_ms = Some(20_000 + self.random.below(20_000) as u64);
        let body = CreateHold { items: vec![item], holder: Some(self.name.clone()), ttl_ms };
        let path = format!("/v1/events/{}/holds", self.event);
        let response = self.client.send(Request::post(path, &body)).await.ok()?;
        if response.status == 201 { response.json().ok() } else { None }
    }

    async fn decide(&mut self, hold: &HoldView) {
        let secret = hold.secret.clone().unwrap_or_default();
        let path = format!("/v1/holds/{}", hold.hold_id);
        match self.random.below(10) {
            0..=6 => {
                self.purchases += 1;
                let payment_ref = Some(format!("{}-{}", hold.hold_id, self.purchases));
                let body = ConfirmHold { payment_ref, ..ConfirmHold::default() };
                let request = Request::post(format!("{path}/confirm"), &body).secret(secret);
                let booked = self.client.send(request).await.ok().filter(|response| response.status == 201);
                if let Some(booking) = booked.and_then(|response| response.json::<BookingView>().ok())
                    && self.random.below(3) == 0
                {
                    self.pause(5_000, 30_000).await;
                    let path = format!("/v1/bookings/{}/cancel", booking.booking_id);
                    let _ = self.client.send(Request::new(leasehold_client::Method::POST, path)).await;
                }
            }
            7..=8 => {
                let _ = self.client.send(Request::delete(path).secret(secret)).await;
            }
            // Walks away: the hold ends by itself.
            _ => {}
        }
    }

    async fn pause(&mut self, least_ms: u64, most_ms: usize) {
        let millis = least_ms + self.random.below(most_ms) as u64;
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}
