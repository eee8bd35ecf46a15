//! How much a lock covers decides how much goes on at the same time: orders per second with one lock for all,
//! one for each product, one for each product in each warehouse, and with the slow work done before the lock.
//!
//! Run it: `cargo run --release -p leasehold-lock --example scope -- 5` (seconds for each line), with the URL of
//! a store behind it if it shall not be the memory of the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_lock::{BoxError, Locker, Settings, StoreOptions, open};
use tokio::task::JoinSet;

const CLERKS: usize = 64;
const PRODUCTS: usize = 8;
const WAREHOUSES: usize = 8;
/// Asking another service for the price.
const SLOW: Duration = Duration::from_millis(5);
/// Reading the stock, and writing it.
const STOCK: Duration = Duration::from_millis(1);

/// What one lock covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Product,
    ProductInWarehouse,
}

/// Where the slow work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slow {
    UnderTheLock,
    BeforeTheLock,
}

/// Units taken, by product and warehouse. Reading and writing are two steps, as in a database.
type Stock = Arc<Mutex<HashMap<(usize, usize), u64>>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(0.5), |text| text.parse())?;
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let store = open(&url, &StoreOptions::default())?;
    let locker = Locker::with_settings(store, Settings::default());

    println!("| one lock for | slow work | orders per second |");
    println!("|---|---|---|");
    let mut rates = Vec::new();
    for (scope, slow) in [
        (Scope::All, Slow::UnderTheLock),
        (Scope::Product, Slow::UnderTheLock),
        (Scope::ProductInWarehouse, Slow::UnderTheLock),
        (Scope::All, Slow::BeforeTheLock),
        (Scope::Product, Slow::BeforeTheLock),
        (Scope::ProductInWarehouse, Slow::BeforeTheLock),
    ] {
        let rate = measure(&locker, scope, slow, Duration::from_secs_f64(seconds)).await?;
        let slow = if slow == Slow::UnderTheLock { "under the lock" } else { "before the lock" };
        println!("| {} | {slow} | {rate:.0} |", scope.words());
        rates.push(rate);
    }
    assert!(rates[0] < rates[1] && rates[1] < rates[2], "the less a lock covers, the more goes on");
    assert!(rates[0] < rates[3], "work before the lock holds up nobody");
    Ok(())
}

impl Scope {
    fn words(self) -> &'static str {
        match self {
            Self::All => "everything",
            Self::Product => "each of 8 products",
            Self::ProductInWarehouse => "each of 8 products in each of 8 warehouses",
        }
    }

    fn name(self, product: usize, warehouse: usize) -> String {
        match self {
            Self::All => "stock".to_owned(),
            Self::Product => format!("stock:{product}"),
            Self::ProductInWarehouse => format!("stock:{product}:{warehouse}"),
        }
    }
}

/// Orders per second. Fails when an order was lost, which is what the lock is for.
async fn measure(locker: &Locker, scope: Scope, slow: Slow, time: Duration) -> Result<f64, BoxError> {
    let stock = Stock::default();
    let began = Instant::now();
    let mut clerks = JoinSet::new();
    for clerk in 0..CLERKS {
        clerks.spawn(work(locker.clone(), stock.clone(), scope, slow, clerk, began + time));
    }
    let mut orders = 0;
    while let Some(clerk) = clerks.join_next().await {
        orders += clerk??;
    }
    let elapsed = began.elapsed();
    let taken: u64 = stock.lock().unwrap_or_else(PoisonError::into_inner).values().sum();
    assert_eq!(taken, orders, "every order is in the stock");
    Ok(orders as f64 / elapsed.as_secs_f64())
}

/// One clerk takes orders, each for another product and warehouse, until the time is up.
async fn work(
    locker: Locker,
    stock: Stock,
    scope: Scope,
    slow: Slow,
    clerk: usize,
    until: Instant,
) -> Result<u64, BoxError> {
    let mut orders = 0;
    for turn in clerk.. {
        if Instant::now() >= until {
            break;
        }
        // A walk through all places that is another one for each clerk.
        let (product, warehouse) = (turn * 5 % PRODUCTS, (turn / PRODUCTS + clerk) % WAREHOUSES);
        if slow == Slow::BeforeTheLock {
            tokio::time::sleep(SLOW).await;
        }
        let asked = locker.acquire(scope.name(product, warehouse)).wait(Duration::from_secs(60)).await?;
        let guard = asked.granted().ok_or("a minute is enough for everybody")?;
        guard
            .run(async {
                if slow == Slow::UnderTheLock {
                    tokio::time::sleep(SLOW).await;
                }
                let place = (product, warehouse);
                let read = stock.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
                tokio::time::sleep(STOCK).await;
                stock.lock().unwrap_or_else(PoisonError::into_inner).insert(place, read.unwrap_or(0) + 1);
            })
            .await?;
        guard.release().await?;
        orders += 1;
    }
    Ok(orders)
}
