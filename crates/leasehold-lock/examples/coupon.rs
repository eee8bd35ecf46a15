//! A coupon that can be redeemed once, asked for by a hundred customers in the same instant.
//!
//! "Is it still free?" and "take it" are two steps, and without a lock many customers stand between them. The
//! lock makes the two steps one. The condition in the last statement is what decides: it holds also when a
//! lease was lost.
//!
//! Run it: `cargo run -p leasehold-lock --example coupon`

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_lock::{Acquired, BoxError, Locker, Memory};
use rusqlite::Connection;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const CUSTOMERS: usize = 100;

#[derive(Clone)]
struct Shop {
    locker: Locker,
    database: Arc<Mutex<Connection>>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let naive = Shop::open()?;
    let redeemed = naive.rush(|shop| async move { shop.redeem_naively().await }).await?;
    println!("without a lock: {redeemed} of {CUSTOMERS} customers redeemed the one coupon");
    assert!(redeemed > 1, "the gap between the two steps is wide enough to be seen");

    let careful = Shop::open()?;
    let redeemed = careful.rush(|shop| async move { shop.redeem().await }).await?;
    println!("with a lock:    {redeemed} of {CUSTOMERS} customers redeemed the one coupon");
    assert_eq!(redeemed, 1);
    Ok(())
}

impl Shop {
    fn open() -> Result<Self, BoxError> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(
            "CREATE TABLE coupons (code TEXT PRIMARY KEY, redeemed INTEGER NOT NULL);
             INSERT INTO coupons VALUES ('WELCOME', 0);",
        )?;
        Ok(Self { locker: Locker::new(Memory::new()), database: Arc::new(Mutex::new(database)) })
    }

    /// The mistake: what was read is not true any more when it is acted upon.
    async fn redeem_naively(&self) -> Result<bool, BoxError> {
        if self.is_redeemed()? {
            return Ok(false);
        }
        to_the_database_and_back().await;
        self.execute("UPDATE coupons SET redeemed = 1 WHERE code = 'WELCOME'")?;
        Ok(true)
    }

    /// The same with a lock around it, and with a condition in the statement that decides.
    async fn redeem(&self) -> Result<bool, BoxError> {
        let asked = self.locker.acquire("coupon:WELCOME").wait(Duration::from_secs(30)).await?;
        // Busy is an answer: the customer is told to try again.
        let Acquired::Granted(guard) = asked else { return Ok(false) };
        let redeemed = guard
            .run(async {
                if self.is_redeemed()? {
                    return Ok::<_, BoxError>(false);
                }
                to_the_database_and_back().await;
                let changed =
                    self.execute("UPDATE coupons SET redeemed = 1 WHERE code = 'WELCOME' AND redeemed = 0")?;
                Ok(changed == 1)
            })
            .await??;
        guard.release().await?;
        Ok(redeemed)
    }

    fn is_redeemed(&self) -> Result<bool, BoxError> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let query = "SELECT redeemed FROM coupons WHERE code = 'WELCOME'";
        Ok(database.query_row(query, [], |row| row.get(0))?)
    }

    fn execute(&self, statement: &str) -> Result<usize, BoxError> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(database.execute(statement, [])?)
    }

    /// Lets all customers ask at once, and counts those who were told that they redeemed it.
    async fn rush<F>(&self, redeem: impl Fn(Shop) -> F) -> Result<usize, BoxError>
    where
        F: Future<Output = Result<bool, BoxError>> + Send + 'static,
    {
        let all_are_here = Arc::new(Barrier::new(CUSTOMERS));
        let mut customers = JoinSet::new();
        for _ in 0..CUSTOMERS {
            let (all_are_here, redeem) = (Arc::clone(&all_are_here), redeem(self.clone()));
            customers.spawn(async move {
                all_are_here.wait().await;
                redeem.await
            });
        }
        let mut redeemed = 0;
        while let Some(customer) = customers.join_next().await {
            redeemed += usize::from(customer??);
        }
        Ok(redeemed)
    }
}

/// A database on another machine takes about so long to answer.
async fn to_the_database_and_back() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}
