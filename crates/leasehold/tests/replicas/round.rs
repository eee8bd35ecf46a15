//! One sale around one fault: 64 buyers before, during and after it, and the judgement.

use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_api::{Code, CreateHold, ItemSpec, PoolSpec};
use leasehold_client::Request;
use leasehold_testkit::servers::Postgres;
use leasehold_testkit::{
    Answer, Desk, Granted, History, Operation, Outcome, Random, RecordingClient, RoundCount, Shop, Workload,
    check, read_back,
};

use crate::replicas::Replicas;

const BUYERS: usize = 64;
const SEATS: u32 = 3;
/// How long the buyers work before the fault, and after it.
const WORK: Duration = Duration::from_millis(1_000);
/// How long after a fault every server grants again.
const SERVICE_BACK_MAX: Duration = Duration::from_secs(15);
/// How long after that it may take to find out what became of everything, to give it back, and to sell it again.
const SOLD_OUT_MAX: Duration = Duration::from_secs(40);
/// The longest hold of hurried buyers, and how long they wait for an answer.
pub(crate) const SHORT_HOLD: Duration = Duration::from_secs(3);
pub(crate) const LITTLE_PATIENCE: Duration = Duration::from_millis(1_500);
/// A pool that only the judgement asks for, to see whether a server grants what the buyers want: they may have all the rest.
const PROBED: &str = "probed";
const ACKNOWLEDGED_MIN: usize = 100;
/// How many sales the buyers must have been able to make at the end; more than 30 units were given back before.
const SALES_MIN: usize = 20;

/// A sale that goes on.
pub(crate) struct Round {
    pub(crate) history: History,
    pub(crate) event: String,
    addresses: Vec<String>,
    workload: Workload,
}

impl Round {
    /// Opens a sale and lets the buyers work for a moment.
    pub(crate) async fn begin(name: &str, replicas: &Replicas) -> Self {
        Self::open(replicas.addresses(), shop(name), Duration::from_secs(10)).await
    }

    /// The same with buyers who soon ask another server when no answer comes, and hold nothing for long.
    pub(crate) async fn begin_hurried(name: &str, replicas: &Replicas) -> Self {
        Self::begin_hurried_at(name, replicas.addresses()).await
    }

    /// The same with buyers who find the servers at other addresses.
    pub(crate) async fn begin_hurried_at(name: &str, addresses: Vec<String>) -> Self {
        let hold_ms_max = SHORT_HOLD.as_millis() as u64;
        Self::open(addresses, Shop { hold_ms_max, ..shop(name) }, LITTLE_PATIENCE).await
    }

    /// The same with buyers who wait for every answer, however long it takes.
    pub(crate) async fn begin_patient(name: &str, replicas: &Replicas) -> Self {
        Self::open(replicas.addresses(), shop(name), Duration::from_secs(120)).await
    }

    async fn open(addresses: Vec<String>, shop: Shop, patience: Duration) -> Self {
        let history = History::new();
        let seed = Random::seed_of_this_run(&shop.event);
        let workload = Workload::new(seed, BUYERS, shop.clone(), &history).with_patience(patience);
        let mut event = shop.create_event();
        event.pools.push(PoolSpec { id: PROBED.to_owned(), capacity: 100 });
        Desk::new(&addresses[0], 0, &history).create_event(&event).await;
        let mut round = Self { history, event: shop.event, addresses, workload };
        let addresses: Vec<&str> = round.addresses.iter().map(String::as_str).collect();
        round.workload.begin_round_on(&addresses);
        tokio::time::sleep(WORK).await;
        round
    }

    /// The present moment of the history; panics when nothing is in flight that a fault could hit.
    pub(crate) fn moment(&self) -> usize {
        assert!(self.history.in_flight() > 0, "{}: no request is in flight", self.event);
        self.history.len()
    }

    /// How many requests that were begun since `moment` have been done.
    pub(crate) fn done_since(&self, moment: usize) -> usize {
        self.history.count_since(moment, Operation::acknowledged)
    }

    /// Waits until one that was begun since `moment` has been done.
    pub(crate) async fn something_is_done_since(&self, moment: usize, otherwise: &str) {
        until(otherwise, || self.done_since(moment) > 0).await;
    }

    /// Waits until more requests than these were given up on without an answer, whenever they were begun.
    pub(crate) async fn more_are_given_up_than(&self, given_up: usize, otherwise: &str) {
        until(otherwise, || self.history.given_up() > given_up).await;
    }

    /// How many requests that were begun since `moment` were told to come back.
    pub(crate) fn turned_away_since(&self, moment: usize) -> usize {
        self.history
            .count_since(moment, |operation| operation.answer().is_some_and(|answer| answer.status == 503))
    }

    /// How many requests that were begun since `moment` were told that nobody knows what became of them.
    pub(crate) fn unknown_since(&self, moment: usize) -> usize {
        let is_unknown = |answer: &Answer| answer.code().as_deref() == Some("outcome-unknown");
        self.history.count_since(moment, |operation| operation.answer().is_some_and(is_unknown))
    }

    /// The fault was over at `over`: every server serves again, everything is sold exactly, and nothing shows a broken
    /// promise. Returns what the buyers got until they stopped.
    pub(crate) async fn judge(mut self, over: Instant, replicas: &Replicas, ledger: &Postgres) -> RoundCount {
        for number in 0..self.addresses.len() {
            self.wait_for_service(number, over).await;
        }
        let back = over.elapsed();
        tokio::time::sleep(WORK).await;
        let count = self.workload.end_round().await;
        let addresses: Vec<&str> = self.addresses.iter().map(String::as_str).collect();
        let (selling, earlier) = (Instant::now(), self.history.len());
        let view = self.workload.sell_out(&addresses, SOLD_OUT_MAX).await;
        let sold = selling.elapsed();
        assert_eq!((view.seats.sold, view.seats.total), (SEATS, SEATS), "{view:?}");
        let mut pools = view.pools.iter().filter(|pool| pool.id != PROBED);
        assert!(pools.all(|pool| pool.sold == pool.capacity), "{view:?}");
        let is_sale =
            |operation: &Operation| operation.request.path.ends_with("/confirm") && operation.acknowledged();
        let sales = self.history.count_since(earlier, is_sale);
        assert!(sales >= SALES_MIN, "{}: only {sales} sales were left to make", self.event);

        read_back(addresses[addresses.len() - 1], &self.history).await;
        let checked = check(&self.history);
        println!(
            "{}: service back after {back:?}, sold out after {sold:?}, {count:?}, {} requests",
            self.event, checked.operations
        );
        checked.assert_clean();
        checked.assert_meaningful(ACKNOWLEDGED_MIN);
        assert_eq!(undocumented(&self.history), Vec::<String>::new(), "{}", self.event);
        for server in &replicas.servers {
            assert!(!server.log().contains("panicked"), "{}", server.log());
        }
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let recomputed = Command::new(binary).args(["check", &ledger.url()]).output().unwrap();
        let said = String::from_utf8_lossy(&recomputed.stdout);
        assert!(recomputed.status.success() && said.contains("all invariants hold"), "{said}");
        count
    }

    /// Waits until this server grants a hold.
    async fn wait_for_service(&self, number: usize, since: Instant) {
        let mut client = RecordingClient::new(&self.addresses[number], 1_000 + number, &self.history);
        let path = format!("/v1/events/{}/holds", self.event);
        let body = CreateHold { items: vec![ItemSpec::pool(PROBED, 1)], ..CreateHold::default() };
        let request = Request::post(path, &body).idempotency_key(format!("probe-{number}"));
        let mut said = None;
        while since.elapsed() < SERVICE_BACK_MAX {
            let asking = tokio::time::timeout(
                SERVICE_BACK_MAX.saturating_sub(since.elapsed()),
                client.send(request.clone()),
            );
            match asking.await {
                Ok(Outcome::Answer(answer)) if Granted::of(&answer).is_some() => return,
                outcome => said = outcome.ok(),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "{}: server {number} does not serve {SERVICE_BACK_MAX:?} after the fault: {said:?}",
            self.event
        );
    }
}

async fn until(otherwise: &str, is_so: impl Fn() -> bool) {
    const TIME_MAX: Duration = Duration::from_secs(15);
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIME_MAX, "{otherwise}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn shop(event: &str) -> Shop {
    let seats = (1..=SEATS).map(|number| format!("A-{number}")).collect();
    Shop { event: event.to_owned(), seats, ..Shop::small() }
}

/// Answers that the API does not have: other codes, other statuses, and 5xx that do not say when to come back.
fn undocumented(history: &History) -> Vec<String> {
    let is_documented = |answer: &Answer| {
        let code = answer.code().and_then(|code| Code::ALL.into_iter().find(|known| known.as_str() == code));
        match code {
            None => answer.status < 400,
            Some(Code::Overloaded | Code::OutcomeUnknown) => {
                answer.status == 503 && answer.header("retry-after").is_some()
            }
            Some(code) => answer.status == code.status() && answer.status < 500,
        }
    };
    let operations = history.operations();
    let answered = operations.iter().filter_map(|operation| Some((operation, operation.answer()?)));
    let bad = answered.filter(|(_, answer)| !is_documented(answer));
    bad.map(|(operation, answer)| {
        format!("{} {}: {answer:?}", operation.request.method, operation.request.path)
    })
    .collect()
}
