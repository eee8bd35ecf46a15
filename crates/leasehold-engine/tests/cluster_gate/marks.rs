//! The marks of idempotency keys: they let through whoever may have been granted something, and nobody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::{Direction, FaultProxy};

use crate::house::{
    House, gate_of, hold, in_one_house, key, keys_named, keys_of, refusal, refused_by_gate,
    refused_without_the_ledger, taken,
};

/// Whoever was let through and refused by the ledger may ask again under its key as often as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_costs_the_ledger_nothing_when_it_is_repeated() {
    in_one_house(a_refused_key_costs_nothing).await;
}

async fn a_refused_key_costs_nothing(mut house: House) -> bool {
    hold(&house.one, house.seats(&[0])).await;
    let floor = hold(&house.one, house.units(10).with_key(key(1))).await;
    house.noted().await;
    let loser = |house: &House| house.seats(&[0]).with_key(key(2));
    house.redis.command::<()>(&["HDEL", &keys_of(&house, "seats")[0], "0"]);
    let admitted = gate_of(&house.one).admitted.get();
    assert_eq!(refusal(house.one.execute(loser(&house)).await), taken(&[0]));
    assert_eq!(gate_of(&house.one).admitted.get(), admitted + 1, "the ledger said so");
    let rebuilt = || gate_of(&house.one).rebuilt.get();
    until("the section is written", async || {
        refusal(house.one.execute(house.seats(&[0])).await);
        rebuilt() > 0
    })
    .await;
    house.ledger.pause();
    for engine in [&house.one, &house.other] {
        let Some(told) = refused_without_the_ledger(engine, loser(&house)).await else { return false };
        assert_eq!(told, taken(&[0]));
    }
    house.ledger.resume();
    // Only its own attempt was taken back, and not that of a hold under the same key.
    let mut mismatch = house.units(1).with_key(key(1));
    mismatch.key.iter_mut().for_each(|key| key.fingerprint += 1);
    let told = house.other.execute(mismatch).await;
    assert!(matches!(told, Err(EngineError::KeyMismatch)), "{told:?}");
    assert_eq!(hold(&house.other, house.units(10).with_key(key(1))).await.id, floor.id);
    house.close().await;
    true
}

/// What was sent first arrives last, and is granted: whoever asks again under the key is told so, although it was refused before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_refused_when_its_outcome_was_in_doubt_is_still_recognised() {
    in_one_house(a_doubtful_key_is_recognised).await;
}

async fn a_doubtful_key_is_recognised(house: House) -> bool {
    const LATE: Duration = Duration::from_secs(3);
    let floor = hold(&house.one, house.units(10)).await;
    let proxy = FaultProxy::start(house.ledger.address()).await;
    // One connection to write on, so that it is the one whose request is late.
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let options = ClusterOptions::new(url, house.key.clone()).gate(house.redis.url()).writers(1);
    let engine = Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"));
    engine.venue("gala").await.unwrap().expect("the event");
    until("the gate knows the pool", async || !keys_of(&house, "pools").is_empty()).await;
    let pools = keys_of(&house, "pools").remove(0);
    let entry = || house.redis.command::<String>(&["HGET", &pools, "0"]);
    until("all units are gone", async || entry().split(' ').nth(1) == Some("0")).await;
    // The gate lets it through.
    let version = entry().split(' ').next().expect("a version").to_owned();
    house.redis.command::<()>(&["HSET", &pools, "0", &format!("{version} 10 0 0 0 0 0 0")]);
    let begun = Instant::now();
    proxy.delay(Direction::Requests, LATE);
    let asking = {
        let (engine, request) = (Arc::clone(&engine), house.units(10).with_key(key(1)));
        tokio::spawn(async move { engine.execute(request).await })
    };
    until("it is on its way to the ledger", async || gate_of(&engine).admitted.get() == 1).await;
    // Until the proxy has it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    proxy.hang_up();
    proxy.pass().await;
    let told = asking.await.unwrap();
    house.one.execute(release(&*house.one, floor.id)).await.unwrap();
    if begun.elapsed() >= LATE {
        return false;
    }
    assert!(matches!(told, Err(EngineError::Refused(Refusal::PoolShort { .. }))), "{told:?}");
    // Unless the machine stood still, and the proxy was hung up before it had anything.
    let is_granted = async || house.one.event(&house.venue).await.unwrap().pools[0].held == 10;
    while !is_granted().await {
        if begun.elapsed() > 3 * LATE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let short = Refusal::PoolShort { pool: PoolNo(0), available: 0, returning: 10 };
    for _ in 0..3 {
        refused_by_gate(&house.one, || house.units(1), &short).await;
        let again = house.one.execute(house.units(10).with_key(key(1))).await.expect("it has the units");
        assert!(again.replayed);
    }
    engine.close().await;
    house.close().await;
    true
}

/// As while servers of the version before are replaced one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_a_key_that_an_older_server_made_is_understood_and_stays() {
    let house = House::open().await;
    let floor = hold(&house.one, house.units(10).with_key(key(1))).await;
    let marker = format!("*.{:032x}", 1);
    let marker = house.redis.command::<Vec<String>>(&["KEYS", &marker]).remove(0);
    house.redis.command::<()>(&["SET", &marker, "1", "PX", "60000"]);
    for _ in 0..2 {
        let mut mismatch = house.units(1).with_key(key(1));
        mismatch.key.iter_mut().for_each(|key| key.fingerprint += 1);
        let told = house.other.execute(mismatch).await;
        assert!(matches!(told, Err(EngineError::KeyMismatch)), "{told:?}");
        assert_eq!(hold(&house.other, house.units(10).with_key(key(1))).await.id, floor.id);
    }
    assert_eq!(house.redis.command::<String>(&["GET", &marker]), "1");
    assert_eq!(gate_of(&house.other).failures.get(), 0);
    house.close().await;
}

/// Marks are lost together with what says that there are all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_repeats_a_request_about_what_others_have_by_now_is_answered_also_when_redis_forgot_everything() {
    let house = House::open().await;
    let things = [vec![ItemRequest::Seat(SeatNo(5))], vec![ItemRequest::Pool(PoolNo(0), 10)]];
    for (scope, items) in (1..).zip(things) {
        let ask = || hold_items(&house.venue, items.clone(), LONG_MS);
        let held = hold(&house.one, ask().with_key(key(scope))).await;
        house.one.execute(release(&*house.one, held.id)).await.unwrap();
        house.redis.command::<()>(&["FLUSHALL"]);
        // As soon as the other server has read that it is free.
        until("others have it", async || house.other.execute(ask()).await.is_ok()).await;
        let refused = house.refused();
        until("the gate refuses others", async || {
            refusal(house.one.execute(ask()).await);
            house.refused() > refused
        })
        .await;
        assert_eq!(hold(&house.one, ask().with_key(key(scope))).await.id, held.id, "the answer of then");
    }
    house.close().await;
}

/// From a few minutes after Redis has forgotten everything, losers with keys cost the ledger nothing again, and repetitions are
/// still recognised: the marks of what the ledger remembers are written once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_that_redis_forgot_are_written_again() {
    in_one_house(forgotten_marks_are_written_again).await;
}

async fn forgotten_marks_are_written_again(mut house: House) -> bool {
    /// Attempts that were marked before have ended after that.
    const ENDED_AFTER_MS: i64 = 180_000;
    let units = |house: &House, scope| house.units(10).with_key(key(scope));
    let first = hold(&house.one, units(&house, 1)).await;
    hold(&house.one, house.seats(&[0]).with_key(key(2))).await;
    house.one.execute(release(&*house.one, first.id)).await.unwrap();
    house.noted().await;
    house.redis.command::<()>(&["FLUSHALL"]);
    until("others have the units", async || house.other.execute(house.units(10)).await.is_ok()).await;

    // All keys that end so are in one slot. Somebody who has none there is looked up in the ledger, again and again.
    let mut scope = 2;
    let mut loser = |house: &House| {
        scope += 32;
        house.seats(&[0]).with_key(key(scope))
    };
    let slot = |house: &House, number: u32| keys_named(house, &format!("*.k{number}}}"));
    until("the slot is told", async || {
        assert_eq!(refusal(house.one.execute(loser(&house)).await), taken(&[0]));
        slot(&house, 2).len() == 1
    })
    .await;
    assert_eq!(refusal(house.one.execute(house.seats(&[0]).with_key(key(33))).await), taken(&[0]));
    let says = |house: &House, number| house.redis.command::<i64>(&["GET", &slot(house, number)[0]]);
    assert!(says(&house, 1) > 0 && says(&house, 2) > 0);

    // As if that had been a while ago.
    for number in [1, 2] {
        let then = says(&house, number) - ENDED_AFTER_MS;
        house.redis.command::<()>(&["SET", &slot(&house, number)[0], &then.to_string(), "PX", "600000"]);
    }
    until("both slots have all marks", async || {
        assert_eq!(refusal(house.one.execute(loser(&house)).await), taken(&[0]));
        [1, 2].iter().all(|number| says(&house, *number) == 0)
    })
    .await;
    until("the others are told", async || slot(&house, 3).len() == 1).await;
    assert!(says(&house, 3) > 0, "of this one they are still missing");
    assert_eq!(hold(&house.other, units(&house, 1)).await.id, first.id, "the answer of then");
    house.ledger.pause();
    let told = refused_without_the_ledger(&house.other, loser(&house)).await;
    house.ledger.resume();
    let Some(told) = told else { return false };
    assert_eq!(told, taken(&[0]));
    house.close().await;
    true
}
