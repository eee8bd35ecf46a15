//! A crowd of buyers who do everything the API offers at once, for as long as the server lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::{CreateEvent, PolicySpec, PoolSpec, SeatSpec};
use leasehold_client::Request;
use tokio::task::JoinSet;

use crate::buyer::Buyer;
use crate::doors::Doors;
use crate::history::{History, Operation, Outcome};
use crate::random::Random;
use crate::recording::RecordingClient;

/// What is for sale: few seats and a small pool, so that everybody wants the same things.
#[derive(Debug, Clone)]
pub struct Shop {
    /// The event.
    pub event: String,
    /// Its seats.
    pub seats: Vec<String>,
    /// Its pool.
    pub pool: String,
    /// How many units the pool has.
    pub pool_capacity: u32,
    /// The longest that a hold is asked for.
    pub hold_ms_max: u64,
}

/// How long a buyer waits for an answer, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// Buyers who keep their holds, bookings and unanswered requests from one life of the server to the next.
#[derive(Debug)]
pub struct Workload {
    pub(crate) shop: Arc<Shop>,
    history: History,
    buyers: Vec<Buyer>,
    patience: Duration,
    round: Option<Round>,
}

/// What happened in a round.
#[derive(Debug, Clone, Copy)]
pub struct RoundCount {
    /// Requests answered with 2xx.
    pub acknowledged: usize,
    /// Requests that were sent and got no answer.
    pub unanswered: usize,
}

#[derive(Debug)]
struct Round {
    tasks: JoinSet<Buyer>,
    stop: Arc<AtomicBool>,
    history_from: usize,
}

impl Shop {
    /// Twelve hot seats and a pool of forty.
    pub fn small() -> Self {
        let seats = (1..=12).map(|number| format!("A-{number}")).collect();
        let (event, pool) = ("hot".to_owned(), "floor".to_owned());
        Self { event, seats, pool, pool_capacity: 40, hold_ms_max: 20_000 }
    }

    /// The request that opens it, with limits that do not get in the way.
    pub fn create_event(&self) -> CreateEvent {
        CreateEvent {
            id: self.event.clone(),
            seats: self.seats.iter().cloned().map(SeatSpec::Id).collect(),
            pools: vec![PoolSpec { id: self.pool.clone(), capacity: self.pool_capacity }],
            policy: Some(PolicySpec {
                hold_total_max_ms: Some(3_600_000),
                extends_max: Some(1_000),
                payment_max_ms: Some(60_000),
                units_per_holder_max: Some(0),
                ..PolicySpec::default()
            }),
            ..CreateEvent::default()
        }
    }
}

impl Workload {
    /// `count` buyers whose choices all follow from `seed`.
    pub fn new(seed: u64, count: usize, shop: Shop, history: &History) -> Self {
        let shop = Arc::new(shop);
        let mut seeds = Random::new(seed);
        let buyer = |number| Buyer::new(number, Random::new(seeds.next_u64()), Arc::clone(&shop));
        let buyers = (1..=count).map(buyer).collect();
        Self { shop, history: history.clone(), buyers, patience: PATIENCE, round: None }
    }

    /// The same with buyers who give up on an answer after this time.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Creates the event; panics when the server refuses.
    pub async fn open_shop(&self, address: &str) {
        let mut client = RecordingClient::new(address, 0, &self.history);
        let key = format!("open-{}", self.shop.event);
        let request = Request::post("/v1/events", &self.shop.create_event()).idempotency_key(key);
        let answer = client.send(request).await.answered("creating the event");
        assert_eq!(answer.status, 201, "the event was refused: {answer:?}");
    }

    /// Lets all buyers loose on the server at `address`.
    pub fn begin_round(&mut self, address: &str) {
        self.begin_round_on(&[address]);
    }

    /// Lets all buyers loose on several servers of one ledger; each goes to another one in every round, and to the
    /// next one when it gets no answer.
    pub fn begin_round_on(&mut self, addresses: &[&str]) {
        assert!(self.round.is_none(), "one round at a time");
        let stop = Arc::new(AtomicBool::new(false));
        let history_from = self.history.len();
        let tasks = self.send_out(addresses, |buyer, doors| buyer.run(doors, Arc::clone(&stop)));
        self.round = Some(Round { tasks, stop, history_from });
    }

    /// Tells the buyers to stop and waits for them. A buyer also stops when its only server is gone.
    pub async fn end_round(&mut self) -> RoundCount {
        let round = self.round.take().expect("a round was begun");
        round.stop.store(true, Ordering::Relaxed);
        self.take_back(round.tasks).await;
        let count = |wanted: fn(&Operation) -> bool| self.history.count_since(round.history_from, wanted);
        RoundCount {
            acknowledged: count(Operation::acknowledged),
            unanswered: count(|operation| matches!(operation.outcome, Outcome::NoAnswer)),
        }
    }

    /// Gives every buyer something to do at these servers, each beginning with another one.
    pub(crate) fn send_out<F>(
        &mut self,
        addresses: &[&str],
        work: impl Fn(Buyer, Doors) -> F,
    ) -> JoinSet<Buyer>
    where
        F: Future<Output = Buyer> + Send + 'static,
    {
        let buyers = std::mem::take(&mut self.buyers);
        let mut tasks = JoinSet::new();
        for (place, buyer) in buyers.into_iter().enumerate() {
            let doors = self.doors(addresses, place, buyer.number());
            tasks.spawn(work(buyer, doors));
        }
        tasks
    }

    /// Waits until every buyer has done it.
    pub(crate) async fn take_back(&mut self, mut tasks: JoinSet<Buyer>) {
        while let Some(buyer) = tasks.join_next().await {
            self.buyers.push(buyer.expect("no buyer panics"));
        }
    }

    /// The servers as buyer `number` sees them, the one at `place` first.
    pub(crate) fn doors(&self, addresses: &[&str], place: usize, number: usize) -> Doors {
        let client =
            |address: &&str| RecordingClient::new(address, number, &self.history).with_timeout(self.patience);
        Doors::new(addresses.iter().map(client).collect(), place)
    }
}
