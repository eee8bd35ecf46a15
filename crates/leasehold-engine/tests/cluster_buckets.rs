//! A pool that so many want at once that it is claimed in buckets over a Redis Cluster: sold to the last unit, and never
//! more than that, also while the masters of buckets fail, forget and move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{Postgres, RedisCluster};
use tokio::task::JoinSet;

const UNITS: u32 = 6_000;
const CALLERS: u128 = 1_200;
/// The life of every fourth hold while somebody gives back: it ends by itself.
const SHORT_MS: u64 = 1_500;

/// Two servers on one ledger behind one cluster, with a pool for everybody.
struct House {
    ledger: Postgres,
    cluster: RedisCluster,
    engines: [Arc<ClusterEngine>; 2],
}

impl House {
    async fn open() -> Self {
        let (ledger, cluster, key) = (Postgres::start(), RedisCluster::start(), SecretKey::random());
        let open = async || {
            let options = ClusterOptions::new(ledger.url(), key.clone()).gate(cluster.url());
            Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"))
        };
        let engines = [open().await, open().await];
        let create = Command::CreateEvent(CreateEvent {
            id: Name::parse("gala").unwrap(),
            name: Text::parse("Gala").unwrap(),
            layout: Arc::new(Layout::grid(&[]).unwrap()),
            pools: vec![(Name::parse("floor").unwrap(), UNITS)],
            policy: Policy::default(),
        });
        engines[0].execute(Request::new(create)).await.unwrap();
        Self { ledger, cluster, engines }
    }

    /// How many claims went to a bucket so far.
    fn spread(&self) -> u64 {
        self.engines.iter().map(|engine| gate_of(engine).spread.get()).sum()
    }

    /// Waits until claims go to buckets, and all parts of the gate are asked.
    async fn wait_until_spread(&self) {
        let before = self.spread();
        let is_asked = |engine: &Arc<ClusterEngine>| gate_of(engine).up.get() == 1;
        until("the pool is hot and the gate is asked", async || {
            self.spread() > before + 100 && self.engines.iter().all(is_asked)
        })
        .await;
    }

    /// A key of a bucket with claims in it; only a pool that is hot at this moment has one.
    async fn bucket(&self) -> String {
        let keys = |node| -> Vec<String> { self.cluster.server(node).command(&["KEYS", "*.share-*"]) };
        let mut found = None;
        until("somebody claims in a bucket", async || {
            found = self.cluster.masters().into_iter().flat_map(keys).next();
            found.is_some()
        })
        .await;
        found.expect("a bucket")
    }

    async fn close(self) {
        for engine in &self.engines {
            assert!(gate_of(engine).spread.get() > 0, "the pool was hot");
            engine.close().await;
        }
        let report = check_ledger(&self.ledger.url()).await.expect("the ledger can be checked");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

fn gate_of(engine: &ClusterEngine) -> &GateMeters {
    engine.meters().gate.as_ref().expect("it has a gate")
}

/// One of many who want units, at one of the servers.
struct Caller {
    number: u128,
    engine: Arc<ClusterEngine>,
    turns: u128,
}

impl Caller {
    fn all(house: &House) -> Vec<Self> {
        let engine = |number: u128| Arc::clone(&house.engines[number as usize % 2]);
        (0..CALLERS).map(|number| Self { number, engine: engine(number), turns: 0 }).collect()
    }

    /// Asks for units, half of all callers under a key; `None` when there are not so many.
    async fn hold(&mut self, quantity: u32, ttl_ms: u64) -> Option<Hold> {
        let venue = self.engine.venue("gala").await.unwrap().expect("the event");
        self.turns += 1;
        let scope = key(self.number << 32 | self.turns, 7).filter(|_| self.number % 4 < 2);
        let request = hold_units(&venue, quantity, ttl_ms).with_key(scope);
        match self.engine.execute(request).await {
            Err(EngineError::Refused(Refusal::PoolShort { available, .. })) => {
                assert!(available < quantity, "{available} are there, and {quantity} were refused");
                None
            }
            granted => Some(held(granted)),
        }
    }

    /// Nobody gives anything back, so whoever hears that too few are left hears the truth, and asks for less; and when one
    /// has heard that none is left, nobody gets any.
    async fn take_all(mut self, is_sold_out: Arc<AtomicBool>) -> u32 {
        let (mut granted, mut quantity) = (0, 1 + self.number as u32 % 3);
        loop {
            let was_sold_out = is_sold_out.load(Ordering::SeqCst);
            match self.hold(quantity, LONG_MS).await {
                Some(_) if was_sold_out => panic!("somebody was told before that none is left"),
                Some(_) => granted += quantity,
                None if quantity == 1 => {
                    is_sold_out.store(true, Ordering::SeqCst);
                    return granted;
                }
                None => quantity = 1,
            }
        }
    }

    /// Takes until too few are left, gives everything back, and begins again, until told to stop.
    async fn take_and_give_back(mut self, crowd: Arc<Crowd>) -> Self {
        let quantity = 1 + self.number as u32 % 3;
        while !crowd.stop.load(Ordering::Relaxed) {
            let mut holds = Vec::new();
            while !crowd.stop.load(Ordering::Relaxed) {
                let is_short = self.turns.is_multiple_of(4);
                let Some(hold) = self.hold(quantity, if is_short { SHORT_MS } else { LONG_MS }).await else {
                    crowd.refused.fetch_add(1, Ordering::SeqCst);
                    break;
                };
                if !is_short {
                    crowd.has_taken(quantity);
                    holds.push(hold);
                }
            }
            for hold in holds {
                crowd.gives_back(quantity);
                let released = self.engine.execute(release(&*self.engine, hold.id)).await;
                released.expect("whoever holds something can give it back");
            }
        }
        self
    }
}

/// Everybody takes until nothing is left. Returns how many units were granted.
async fn sell_out(callers: Vec<Caller>) -> u32 {
    let is_sold_out = Arc::new(AtomicBool::new(false));
    let take_all = |caller: Caller| caller.take_all(Arc::clone(&is_sold_out));
    let taking: JoinSet<u32> = callers.into_iter().map(take_all).collect();
    taking.join_all().await.into_iter().sum()
}

/// What those who take and give back are certain to have at this moment, by the answers they got.
#[derive(Default)]
struct Crowd {
    stop: AtomicBool,
    held: AtomicU32,
    held_max: AtomicU32,
    /// How often somebody was told that too few are left.
    refused: AtomicU32,
}

impl Crowd {
    fn has_taken(&self, quantity: u32) {
        let held = self.held.fetch_add(quantity, Ordering::SeqCst) + quantity;
        assert!(held <= UNITS, "{held} of {UNITS} units are held");
        self.held_max.fetch_max(held, Ordering::SeqCst);
    }

    fn gives_back(&self, quantity: u32) {
        self.held.fetch_sub(quantity, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_pool_is_claimed_in_buckets_and_sold_to_the_last_unit() {
    let house = House::open().await;
    assert_eq!(sell_out(Caller::all(&house)).await, UNITS);
    let masters = house.cluster.masters().into_iter().filter(|node| {
        let buckets: Vec<String> = house.cluster.server(*node).command(&["KEYS", "*.share-*"]);
        !buckets.is_empty()
    });
    assert!(masters.count() > 1, "the buckets are on several servers");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_of_buckets_fail_forget_and_move_while_units_are_taken_given_back_and_run_out() {
    let mut house = House::open().await;
    let crowd = Arc::new(Crowd::default());
    let callers = Caller::all(&house).into_iter();
    let busy: JoinSet<Caller> = callers.map(|caller| caller.take_and_give_back(Arc::clone(&crowd))).collect();

    house.wait_until_spread().await;
    let key = house.bucket().await;
    let cut = house.cluster.begin_lost_writes(&key);
    let lost = cut.master;
    let mark = key.replace(":pools", ":mark");
    let () = house.cluster.server(lost).command(&["SET", &mark, "here"]);
    std::thread::sleep(Duration::from_millis(300));
    let promoted = house.cluster.fail_over(cut);
    let found: Option<String> = house.cluster.server(promoted).command(&["GET", &mark]);
    assert_eq!((promoted != lost, found), (true, None), "what was written last is lost");
    house.cluster.restart(lost);

    house.wait_until_spread().await;
    house.bucket().await;
    for node in house.cluster.masters() {
        let () = house.cluster.server(node).command(&["FLUSHALL"]);
    }

    house.wait_until_spread().await;
    let slot = house.cluster.slot_of(&house.bucket().await);
    let from = house.cluster.master_of_slot(slot);
    let to = house.cluster.masters().into_iter().find(|node| *node != from).expect("three masters");
    let moving = house.cluster.begin_slot_move(slot, to);
    std::thread::sleep(Duration::from_millis(200));
    assert!(house.cluster.finish_slot_move(moving) > 0, "the bucket moved");

    house.wait_until_spread().await;
    crowd.stop.store(true, Ordering::Relaxed);
    let callers = busy.join_all().await;
    let most = crowd.held_max.load(Ordering::SeqCst);
    println!(
        "at most {most} of {UNITS} units were held at a time, and {} claims went to buckets",
        house.spread()
    );
    assert!(crowd.refused.load(Ordering::SeqCst) > 0, "the pool never ran out");
    assert_eq!(crowd.held.load(Ordering::SeqCst), 0);

    // What ended by itself is back, and all is sold once more.
    tokio::time::sleep(Duration::from_millis(SHORT_MS + 1_000)).await;
    assert_eq!(sell_out(callers).await, UNITS);
    house.close().await;
}
