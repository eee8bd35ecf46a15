//! One user: holds, pays, and goes on trying until the time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_api::{BookingView, Code, ConfirmHold, CreateHold, HoldView, ItemSpec};
use leasehold_client::{Client, Request, Response};
use tokio::time::Instant;

use super::args::{Confirming, Shape};
use super::event::Offer;
use super::pace::Pace;
use super::random::Random;
use super::tally::{Kind, Outcome, Tally};
use super::told::{Ending, Grant, Told, surely_until};

/// How often one request is sent until its outcome is known.
const TRIES_MAX: u32 = 12;
/// The pause before the first repeat; it doubles with each, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What all users have in common.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Tells this run's keys and payments from those of other runs.
    pub(crate) run: String,
    /// What they fight for.
    pub(crate) offer: Offer,
    /// How they choose.
    pub(crate) shape: Shape,
    /// Whether they buy what they hold.
    pub(crate) confirming: Confirming,
    /// How long they ask to hold.
    pub(crate) hold_ttl_ms: Option<u64>,
    /// When they send.
    pub(crate) pace: Pace,
    /// For the progress bar.
    pub(crate) live: Live,
}

/// Counters to watch while the run goes on.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Requests sent.
    pub(crate) requests: AtomicU64,
    /// Sales acknowledged.
    pub(crate) sold: AtomicU64,
}

/// What one user did and was told.
#[derive(Debug)]
pub(crate) struct Account {
    /// Its requests.
    pub(crate) tally: Tally,
    /// Its holds and sales.
    pub(crate) told: Told,
    /// Attempts to hold, each one request and its repeats.
    pub(crate) attempts: u64,
}

/// A user with its connection.
#[derive(Debug)]
pub(crate) struct User {
    plan: Arc<Plan>,
    name: String,
    client: Client,
    random: Random,
    keys: u64,
    seat_attempts: u64,
    seats_decided_in_a_row: usize,
    account: Account,
}

/// How a request and its repeats ended.
enum Settled {
    /// With this answer.
    Answered(Response),
    /// It took no effect: it never left, or the server was too busy each time.
    NotDone,
    /// Without an answer that says whether it took effect.
    Unresolved,
}

/// What an outcome says about a request.
enum Effect {
    /// It was decided.
    Decided,
    /// This try did nothing; an earlier one may have.
    None,
    /// It may have taken effect.
    Possible,
}

impl User {
    /// A user with its number and its connection.
    pub(crate) fn new(plan: Arc<Plan>, number: u32, client: Client) -> Self {
        Self {
            plan,
            name: format!("user-{number}"),
            client,
            random: Random::fresh(number.into()),
            keys: 0,
            seat_attempts: 0,
            seats_decided_in_a_row: 0,
            account: Account { tally: Tally::new(), told: Told::default(), attempts: 0 },
        }
    }

    /// Tries until the time is over. What was begun is finished.
    pub(crate) async fn run(mut self) -> Account {
        while let Some(due) = self.plan.pace.next().await {
            self.account.attempts += 1;
            self.attempt(due).await;
        }
        self.account
    }

    async fn attempt(&mut self, due: Instant) {
        let item = self.choose();
        let is_seat = item.pool.is_none();
        let body =
            CreateHold { items: vec![item], holder: Some(self.name.clone()), ttl_ms: self.plan.hold_ttl_ms };
        let key = self.next_key();
        let path = format!("/v1/events/{}/holds", self.plan.offer.event);
        let request = Request::post(path, &body).idempotency_key(key);
        let asked = self.plan.pace.start().elapsed();
        let settled = self.settle(Kind::Hold, request, due).await;
        if is_seat {
            let decided =
                matches!(&settled, Settled::Answered(answer) if matches!(answer.status, 200..300 | 409));
            self.seats_decided_in_a_row = if decided { self.seats_decided_in_a_row + 1 } else { 0 };
            let all = self.seats_decided_in_a_row >= self.plan.offer.seats.len();
            self.account.told.every_seat_decided |= all;
        }
        match settled {
            Settled::Answered(answer) if (200..300).contains(&answer.status) => match answer.json() {
                Ok(hold) => self.finish(hold, asked).await,
                Err(_) => self.account.told.unreadable += 1,
            },
            Settled::Answered(_) => {}
            // Without this, users of a server that is down would spin.
            Settled::NotDone => tokio::time::sleep(PAUSE_FIRST).await,
            Settled::Unresolved => self.account.told.holds_unresolved += 1,
        }
    }

    /// Buys what is held since it was asked for, unless holds are to be left alone.
    async fn finish(&mut self, hold: HoldView, asked: Duration) {
        let told = self.plan.pace.start().elapsed();
        let lives_until = surely_until(asked, hold.expires_in_ms);
        let ending = match self.plan.confirming {
            Confirming::Never => Ending::Kept,
            Confirming::Always => self.confirm(&hold).await,
        };
        let HoldView { hold_id, items, .. } = hold;
        self.account.told.grants.push(Grant { hold_id, items, told, lives_until, ending });
    }

    async fn confirm(&mut self, hold: &HoldView) -> Ending {
        let Some(secret) = &hold.secret else {
            self.account.told.unreadable += 1;
            return Ending::Kept;
        };
        let key = self.next_key();
        let body = ConfirmHold { payment_ref: Some(format!("pay-{key}")), ..ConfirmHold::default() };
        let request = Request::post(format!("/v1/holds/{}/confirm", hold.hold_id), &body)
            .idempotency_key(key)
            .secret(secret.as_str());
        match self.settle(Kind::Confirm, request, Instant::now()).await {
            Settled::Answered(answer) if (200..300).contains(&answer.status) => {
                self.plan.live.sold.fetch_add(1, Ordering::Relaxed);
                match answer.json::<BookingView>() {
                    Ok(booking) => Ending::Sold(booking.items),
                    Err(_) => {
                        self.account.told.unreadable += 1;
                        Ending::Sold(hold.items.clone())
                    }
                }
            }
            Settled::Answered(_) => Ending::Refused { told: self.plan.pace.start().elapsed() },
            Settled::NotDone => Ending::Kept,
            Settled::Unresolved => Ending::Unresolved,
        }
    }

    /// Sends a request, and repeats it with the same key while its outcome is unknown.
    ///
    /// A confirm is also repeated when the server was too busy: a buyer who has paid does not walk away.
    async fn settle(&mut self, kind: Kind, request: Request, due: Instant) -> Settled {
        let mut counts_from = due;
        let mut may_have_happened = false;
        let mut pause = PAUSE_FIRST;
        for tries in 1..=TRIES_MAX {
            let (outcome, answer) = self.send(kind, request.clone(), counts_from).await;
            match effect_of(outcome) {
                Effect::Decided => match answer {
                    Some(answer) => return Settled::Answered(answer),
                    None => unreachable!("only an answer decides"),
                },
                Effect::Possible => may_have_happened = true,
                Effect::None if may_have_happened || kind == Kind::Confirm => {}
                Effect::None => return answer.map_or(Settled::NotDone, Settled::Answered),
            }
            if tries < TRIES_MAX {
                tokio::time::sleep(pause.max(retry_after(answer.as_ref()))).await;
                pause = PAUSE_MAX.min(pause * 2);
                self.account.tally.repeats += 1;
                counts_from = Instant::now();
            }
        }
        if may_have_happened { Settled::Unresolved } else { Settled::NotDone }
    }

    async fn send(
        &mut self,
        kind: Kind,
        request: Request,
        counts_from: Instant,
    ) -> (Outcome, Option<Response>) {
        self.account.tally.sent += 1;
        self.plan.live.requests.fetch_add(1, Ordering::Relaxed);
        let result = self.client.send(request).await;
        let now = Instant::now();
        let outcome = Outcome::of(&result);
        self.account.tally.record(kind, outcome, now - self.plan.pace.start(), now - counts_from);
        (outcome, result.ok())
    }

    /// What to ask for next. With seats and a pool, it is their turn one after the other.
    fn choose(&mut self) -> ItemSpec {
        let seats = &self.plan.offer.seats;
        if let Some(pool) = &self.plan.offer.pool
            && (seats.is_empty() || self.account.attempts.is_multiple_of(2))
        {
            return ItemSpec::pool(pool.as_str(), 1);
        }
        let turn = (self.seat_attempts % seats.len() as u64) as usize;
        self.seat_attempts += 1;
        match self.plan.shape {
            Shape::Hot => ItemSpec::seat(seats[turn].as_str()),
            Shape::Spread => ItemSpec::seat(seats[self.random.below(seats.len())].as_str()),
            Shape::Best => ItemSpec::best(1),
        }
    }

    fn next_key(&mut self) -> String {
        self.keys += 1;
        format!("{}-{}-{}", self.plan.run, self.name, self.keys)
    }
}

fn effect_of(outcome: Outcome) -> Effect {
    match outcome {
        Outcome::Unreachable => Effect::None,
        Outcome::Unknown => Effect::Possible,
        Outcome::Answered { code: Some(Code::Overloaded | Code::QuotaExceeded), .. } => Effect::None,
        Outcome::Answered { status: 429, .. } => Effect::None,
        Outcome::Answered { code: Some(Code::IdempotencyInFlight), .. } => Effect::Possible,
        Outcome::Answered { status, .. } if status >= 500 => Effect::Possible,
        Outcome::Answered { .. } => Effect::Decided,
    }
}

/// How long the server asks to wait, up to the longest pause.
fn retry_after(answer: Option<&Response>) -> Duration {
    let header = answer.and_then(|answer| answer.headers.get("retry-after"));
    let seconds = header.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_decision_ends_the_repeats_of_an_unknown_request() {
        let answered = |status, code| effect_of(Outcome::Answered { status, code });
        assert!(matches!(answered(201, None), Effect::Decided));
        assert!(matches!(answered(409, Some(Code::SeatTaken)), Effect::Decided));
        assert!(matches!(answered(410, Some(Code::HoldExpired)), Effect::Decided));
        assert!(matches!(answered(429, Some(Code::QuotaExceeded)), Effect::None));
        assert!(matches!(answered(503, Some(Code::Overloaded)), Effect::None));
        assert!(matches!(answered(503, Some(Code::OutcomeUnknown)), Effect::Possible));
        assert!(matches!(answered(500, None), Effect::Possible));
        assert!(matches!(effect_of(Outcome::Unknown), Effect::Possible));
        assert!(matches!(effect_of(Outcome::Unreachable), Effect::None));
    }
}
