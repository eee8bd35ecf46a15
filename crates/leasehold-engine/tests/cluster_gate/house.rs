//! A ledger with a gate in front and two engines, and what the tests ask of them.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{Persistence, Postgres, RedisServer};

pub(crate) async fn open(url: &str, gate: &str, key: &SecretKey) -> Arc<ClusterEngine> {
    let options = ClusterOptions::new(url, key.clone()).gate(gate);
    Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"))
}

/// A ledger and one Redis server, with two engines on them and an event with two sections.
pub(crate) struct House {
    pub(crate) ledger: Postgres,
    pub(crate) redis: RedisServer,
    pub(crate) key: SecretKey,
    pub(crate) one: Arc<ClusterEngine>,
    pub(crate) other: Arc<ClusterEngine>,
    pub(crate) venue: Arc<Venue>,
}

impl House {
    pub(crate) async fn open() -> Self {
        let counts = ["-c", "shared_preload_libraries=pg_stat_statements"];
        let (ledger, key) = (Postgres::start_with(&counts), SecretKey::random());
        let redis = RedisServer::options().persistence(Persistence::None).start();
        let one = open(&ledger.url(), &redis.url(), &key).await;
        let other = open(&ledger.url(), &redis.url(), &key).await;
        let venue = gala(&one).await;
        other.venue("gala").await.unwrap().expect("the event");
        Self { ledger, redis, key, one, other, venue }
    }

    pub(crate) fn seats(&self, seats: &[u32]) -> Request {
        let items = seats.iter().map(|seat| ItemRequest::Seat(SeatNo(*seat))).collect();
        hold_items(&self.venue, items, LONG_MS)
    }

    pub(crate) fn units(&self, quantity: u32) -> Request {
        hold_items(&self.venue, vec![ItemRequest::Pool(PoolNo(0), quantity)], LONG_MS)
    }

    /// Waits until the gate knows what became of every claim: whoever was granted something did not wait for that.
    pub(crate) async fn noted(&self) {
        let is_claimed = |key: &String| {
            let entries: Vec<String> = self.redis.command(&["HVALS", key]);
            entries.iter().any(|entry| entry.contains(" c "))
        };
        until("the claims are ended", async || !keys_of(self, "seats").iter().any(is_claimed)).await;
    }

    pub(crate) fn refused(&self) -> u64 {
        [&self.one, &self.other].iter().map(|engine| gate_of(engine).refused.get()).sum()
    }

    /// How often the ledger was asked how long somebody may be refused.
    pub(crate) async fn doubted(&self) -> i64 {
        let looks = self.ledger.client().await;
        looks.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.unwrap();
        let sql = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
                   WHERE query LIKE '%array_agg(hold.live_until)%' AND query LIKE '%min(live_until)%'";
        looks.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn close(self) {
        self.one.close().await;
        self.other.close().await;
        let report = check_ledger(&self.ledger.url()).await.expect("the ledger can be checked");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

/// An event with two sections of ten seats, and a floor for ten.
pub(crate) async fn gala(engine: &ClusterEngine) -> Arc<Venue> {
    gala_for(engine, 10).await
}

/// The same with another floor.
pub(crate) async fn gala_for(engine: &ClusterEngine, floor: u32) -> Arc<Venue> {
    let section = |name| (Name::parse(name).unwrap(), 2, 5);
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse("gala").unwrap(),
        name: Text::parse("Gala").unwrap(),
        layout: Arc::new(Layout::grid(&[section("A"), section("B")]).unwrap()),
        pools: vec![(Name::parse("floor").unwrap(), floor)],
        policy: Policy::default(),
    });
    engine.execute(Request::new(create)).await.unwrap().venue
}

pub(crate) fn gate_of(engine: &ClusterEngine) -> &GateMeters {
    engine.meters().gate.as_ref().expect("it has a gate")
}

pub(crate) fn key(scope: u128) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { scope, fingerprint: 7 })
}

pub(crate) fn keys_of(house: &House, what: &str) -> Vec<String> {
    keys_named(house, &format!("*:{what}"))
}

pub(crate) fn keys_named(house: &House, pattern: &str) -> Vec<String> {
    house.redis.command(&["KEYS", pattern])
}

pub(crate) fn taken(seats: &[u32]) -> Refusal {
    Refusal::SeatsTaken(seats.iter().map(|seat| SeatNo(*seat)).collect())
}

pub(crate) fn refusal(done: Result<Done, EngineError>) -> Refusal {
    match done {
        Err(EngineError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn hold(engine: &ClusterEngine, request: Request) -> Hold {
    match engine.execute(request).await.expect("granted").outcome {
        Outcome::Hold(hold) => hold,
        other => panic!("{other:?}"),
    }
}

/// Tries in one house, and when the gate was too late there to have a say, in another. A machine that stands still for a
/// moment may be the reason, but not every time.
pub(crate) async fn in_one_house(has_a_say: impl AsyncFn(House) -> bool) {
    const HOUSES: u32 = 3;
    for _ in 0..HOUSES {
        if has_a_say(House::open().await).await {
            return;
        }
    }
    panic!("the gate had no say in {HOUSES} houses");
}

/// What the gate says while the ledger stands still; `None` when it says nothing.
pub(crate) async fn refused_without_the_ledger(engine: &ClusterEngine, request: Request) -> Option<Refusal> {
    let told = tokio::time::timeout(Duration::from_secs(3), engine.execute(request)).await;
    match told {
        Ok(Err(EngineError::Refused(refusal))) => Some(refusal),
        Ok(Ok(done)) => panic!("granted without the ledger: {done:?}"),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Asks until the gate itself has refused. An answer of the gate that is late, as on a machine that stands still for a
/// moment, is not waited for: then the ledger decides, and must say the same.
pub(crate) async fn refused_by_gate(
    engine: &ClusterEngine,
    mut request: impl FnMut() -> Request,
    expected: &Refusal,
) {
    until("the gate refuses", async || {
        let before = gate_of(engine).refused.get();
        assert_eq!(&refusal(engine.execute(request()).await), expected);
        gate_of(engine).refused.get() > before
    })
    .await;
}
