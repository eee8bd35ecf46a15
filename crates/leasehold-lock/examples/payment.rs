//! A payment handler that is called many times for one order: the buyer clicks twice, the provider repeats its
//! message, a proxy sends the request again.
//!
//! Three layers, each for what the others cannot do. The *lock* keeps the slow and costly call to the provider
//! from being made by everybody at once. The *status check* under the lock tells those who come later what
//! happened. The *unique key* is the last word, and the *fence* beside it turns away a holder that was paused
//! for so long that it lost the lock.
//!
//! Run it: `cargo run -p leasehold-lock --features sqlite --example payment`

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_lock::{Acquired, BoxError, Fence, Locker, Sqlite};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const CALLS: usize = 20;
const ORDER: &str = "order-1";

/// What the caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Paid,
    PaidBefore,
    /// Another call is at it: ask again.
    InProgress,
    /// The lock was lost meanwhile, and somebody else went on.
    TooLate,
}

#[derive(Clone)]
struct Handler {
    locker: Locker,
    database: Arc<Mutex<Connection>>,
    /// How often the provider was asked for money.
    charges: Arc<AtomicU32>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let handler = Handler::open(Sqlite::open(folder.path().join("locks.db"))?)?;

    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let handler = handler.clone();
        calls.spawn(async move { handler.pay(ORDER).await });
    }
    let mut answers = Vec::new();
    while let Some(call) = calls.join_next().await {
        answers.push(call??);
    }
    let count = |answer: Answer| answers.iter().filter(|given| **given == answer).count();
    let charges = handler.charges.load(Ordering::SeqCst);
    println!(
        "{CALLS} calls at once: {charges} charge, {} paid, {} paid before",
        count(Answer::Paid),
        count(Answer::PaidBefore)
    );
    assert_eq!(charges, 1, "the provider was asked once");
    assert_eq!(count(Answer::Paid), 1);
    assert_eq!(count(Answer::PaidBefore), CALLS - 1);

    let answer = handler.pay_after_a_long_pause("order-2").await?;
    println!("a call that was paused past the end of its lease: {answer:?}");
    assert_eq!(answer, Answer::TooLate);

    // What if the lock is left out? Everybody charges. The unique key still allows one payment only.
    let charges_before = handler.charges.load(Ordering::SeqCst);
    let all_are_here = Arc::new(Barrier::new(CALLS));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (handler, all_are_here) = (handler.clone(), Arc::clone(&all_are_here));
        calls.spawn(async move {
            all_are_here.wait().await;
            handler.pay_without_a_lock("order-3").await
        });
    }
    let mut paid = 0;
    while let Some(call) = calls.join_next().await {
        paid += usize::from(call?? == Answer::Paid);
    }
    let charges = handler.charges.load(Ordering::SeqCst) - charges_before;
    println!("{CALLS} calls without the lock: {charges} charges for {paid} payment");
    assert!(charges > 1, "everybody who found the order open charged");
    assert_eq!(paid, 1, "the key does not depend on any lock");
    Ok(())
}

impl Handler {
    fn open(store: Sqlite) -> Result<Self, BoxError> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(
            "CREATE TABLE orders (id TEXT PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0);
             CREATE TABLE payments (order_id TEXT PRIMARY KEY REFERENCES orders, charge TEXT NOT NULL);
             INSERT INTO orders (id) VALUES ('order-1'), ('order-2'), ('order-3');",
        )?;
        let locker = Locker::new(store);
        Ok(Self { locker, database: Arc::new(Mutex::new(database)), charges: Arc::default() })
    }

    async fn pay(&self, order: &str) -> Result<Answer, BoxError> {
        let asked = self.locker.acquire(format!("payment:{order}")).wait(Duration::from_secs(30)).await?;
        let Acquired::Granted(guard) = asked else { return Ok(Answer::InProgress) };
        let fence = guard.fence().ok_or("a lock without a fence is not enough here")?;
        // First the fence, then the look: from here on no earlier holder can change what is read.
        if !self.advance(order, fence)? {
            return Ok(Answer::TooLate);
        }
        if self.is_paid(order)? {
            guard.release().await?;
            return Ok(Answer::PaidBefore);
        }
        let charge = guard.run(self.charge(order)).await?;
        let answer = self.record(order, fence, &charge)?;
        guard.release().await?;
        Ok(answer)
    }

    /// The worst moment for a pause: the money is taken and the payment is not written down yet.
    async fn pay_after_a_long_pause(&self, order: &str) -> Result<Answer, BoxError> {
        let name = format!("payment:{order}");
        let lease = self.locker.acquire(&name).ttl(Duration::from_secs(1)).no_renewal().await?;
        let guard = lease.granted().ok_or("nobody else wants it yet")?;
        let fence = guard.fence().ok_or("a lock without a fence is not enough here")?;
        assert!(self.advance(order, fence)?);
        guard.lost().await;
        // Meanwhile the next one has the lock and pays.
        assert_eq!(self.pay(order).await?, Answer::Paid);
        self.record(order, fence, "charge made before the pause")
    }

    /// No lock, no fence: only the key is left.
    async fn pay_without_a_lock(&self, order: &str) -> Result<Answer, BoxError> {
        if self.is_paid(order)? {
            return Ok(Answer::PaidBefore);
        }
        let charge = self.charge(order).await;
        let inserted = self.database().execute(
            "INSERT INTO payments (order_id, charge) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            (order, &charge),
        )?;
        Ok(if inserted == 1 { Answer::Paid } else { Answer::PaidBefore })
    }

    /// Asks the provider for money. A real one is given the order as its idempotency key, so that a call
    /// repeated after a crash takes the money only once.
    async fn charge(&self, order: &str) -> String {
        tokio::time::sleep(Duration::from_millis(50)).await;
        format!("charge {} for {order}", self.charges.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Makes this holder the latest that the order knows of; false when there is a later one.
    fn advance(&self, order: &str, fence: Fence) -> Result<bool, BoxError> {
        let update = "UPDATE orders SET fence = ?2 WHERE id = ?1 AND fence <= ?2";
        Ok(self.database().execute(update, (order, fence.0))? == 1)
    }

    fn is_paid(&self, order: &str) -> Result<bool, BoxError> {
        let query = "SELECT charge FROM payments WHERE order_id = ?1";
        let charge: Option<String> =
            self.database().query_row(query, [order], |row| row.get(0)).optional()?;
        Ok(charge.is_some())
    }

    /// Writes the payment down, in one statement with the check of the fence. The primary key allows one for
    /// each order.
    fn record(&self, order: &str, fence: Fence, charge: &str) -> Result<Answer, BoxError> {
        let inserted = self.database().execute(
            "INSERT INTO payments (order_id, charge) SELECT id, ?3 FROM orders WHERE id = ?1 AND fence <= ?2",
            (order, fence.0, charge),
        )?;
        Ok(if inserted == 1 { Answer::Paid } else { Answer::TooLate })
    }

    fn database(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
