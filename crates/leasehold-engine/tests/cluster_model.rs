//! The cluster engine against the rules themselves, on a real PostgreSQL server whose clock the test sets.
//!
//! A failure prints its seed; `LEASEHOLD_SEED=n` runs that seed alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use leasehold_core::{State, Timestamp};
use leasehold_engine::{ClusterEngine, ClusterOptions, Engine, Outcome, SecretKey, check_ledger};
use leasehold_testkit::engine_suite::EngineStore;
use leasehold_testkit::engine_suite::model::{
    Effort, ModelStore, answers_as_the_rules_do_also_after_restarts,
};
use leasehold_testkit::servers::{ClockShift, Postgres, RedisCluster};
use tokio_postgres::Client;

/// A database of its own on a server that all share.
struct Ledger {
    url: String,
    gate: Option<String>,
    key: SecretKey,
    clock: ClockShift,
    looks: Client,
    /// How far the ledger's clock is from the right time.
    shift_ms: Arc<AtomicI64>,
    /// How far the ledger's times are from those of the commands.
    ahead_ms: AtomicI64,
}

fn right_time_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_millis()).expect("before the year 292 million")
}

#[async_trait]
impl EngineStore for Ledger {
    async fn open(&self) -> Arc<dyn Engine> {
        let mut options = ClusterOptions::new(&self.url, self.key.clone());
        if let Some(gate) = &self.gate {
            options = options.gate(gate);
        }
        Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"))
    }
}

#[async_trait]
impl ModelStore for Ledger {
    fn set_time(&self, at_least: Timestamp) {
        let wanted = i64::try_from(at_least.as_millis()).expect("a time");
        let shift = self.shift_ms.load(Ordering::SeqCst);
        let shown = right_time_ms() + shift;
        // The first command is now, whatever its time; from there on time passes as the commands say, or faster.
        let unset = i64::MIN;
        let _ = self.ahead_ms.compare_exchange(unset, shown - wanted, Ordering::SeqCst, Ordering::SeqCst);
        let missing = wanted + self.ahead_ms.load(Ordering::SeqCst) - shown;
        if missing > 0 {
            self.shift_ms.store(shift + missing, Ordering::SeqCst);
            self.clock.set_ms(shift + missing);
        }
    }

    async fn time(&self) -> Timestamp {
        let row =
            self.looks.query_one("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]);
        Timestamp::from_millis(row.await.expect("the time").get::<_, i64>(0).unsigned_abs())
    }

    /// The ledger counts the log entries of each event, the model those of all.
    fn comparable(&self, mut outcome: Outcome) -> Outcome {
        match &mut outcome {
            Outcome::Hold(hold) => hold.number = 0,
            Outcome::Booking(booking) => booking.number = 0,
            Outcome::Block(block) => block.number = 0,
            Outcome::Event(_) | Outcome::BlockGone | Outcome::RefundDue(_) => {}
        }
        outcome
    }

    /// A server proposes from what it knows, where a hold that ran out a moment ago may not be ended yet.
    fn may_choose_other_seats(&self) -> bool {
        true
    }

    /// Those in Redis.
    fn refuses_from_notes(&self) -> bool {
        self.gate.is_some()
    }

    /// Behind a gate one is told that what another asks for is taken, although the ledger may refuse that one.
    fn together_max(&self) -> usize {
        if self.gate.is_some() { 1 } else { 5 }
    }

    async fn judge(&self, model: &State, context: &str) {
        let report = check_ledger(&self.url).await.expect("the ledger can be checked");
        assert_eq!(report.problems, Vec::<String>::new(), "{context}");
        assert_eq!(report.entries, model.seq(), "{context}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_answers_as_the_rules_do_also_after_restarts() {
    drive(&ClockShift::new(), None, 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_behind_a_gate_answers_as_the_rules_do_also_after_restarts() {
    let clock = ClockShift::new();
    let cluster = RedisCluster::options().clock(&clock).start();
    drive(&clock, Some(cluster.url()), 8).await;
    let calls = cluster.masters().into_iter().map(|node| {
        let said = cluster.server(node).info("commandstats", "cmdstat_evalsha");
        said.strip_prefix("calls=").and_then(|said| said.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    });
    let calls: u64 = calls.sum();
    assert!(calls > 500, "the gate was asked {calls} times");
}

async fn drive(clock: &ClockShift, gate: Option<String>, seeds: u64) {
    let shift_ms = Arc::new(AtomicI64::new(0));
    let server = Postgres::options().clock(clock).start();
    let databases = AtomicU32::new(0);
    let make = async || {
        let name = format!("model_{}", databases.fetch_add(1, Ordering::SeqCst));
        let looks = server.client().await;
        looks.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        let url = format!("postgres://postgres@{}/{name}", server.address());
        Ledger {
            url,
            gate: gate.clone(),
            key: SecretKey::random(),
            clock: clock.clone(),
            looks,
            shift_ms: Arc::clone(&shift_ms),
            ahead_ms: AtomicI64::new(i64::MIN),
        }
    };
    answers_as_the_rules_do_also_after_restarts(Effort { seeds, commands: 200 }, make).await;
}
