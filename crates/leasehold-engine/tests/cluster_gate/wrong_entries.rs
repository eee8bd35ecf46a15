//! Entries of the gate that are wrong, old, or in doubt: the ledger has the last word, and puts them right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;

use crate::house::{House, gate_of, hold, in_one_house, key, keys_of, refusal, refused_by_gate, taken};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_wrong_for_whatever_reason_is_doubted_and_put_right() {
    in_one_house(a_wrong_entry_is_put_right).await;
}

async fn a_wrong_entry_is_put_right(house: House) -> bool {
    let held = hold(&house.one, house.seats(&[1])).await;
    house.noted().await;
    let key = keys_of(&house, "seats").remove(0);
    // Of a version that the ledger has not, taken by nobody, and to be believed for a moment.
    let (seconds, micros): (u64, u64) = house.redis.command(&["TIME"]);
    let wrong = format!("999999 t {} 0123456789abcdef", seconds * 1_000 + micros / 1_000 + 3_000);
    house.redis.command::<()>(&["HSET", &key, "0", &wrong]);
    let believed = house.other.execute(house.seats(&[0])).await;
    if believed.is_ok() {
        return false;
    }
    assert_eq!(refusal(believed), taken(&[0]));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match house.other.execute(house.seats(&[0])).await {
            Ok(_) => break,
            Err(EngineError::Refused(Refusal::SeatsTaken(_))) => assert!(Instant::now() < deadline),
            Err(other) => panic!("{other:?}"),
        }
    }
    let version = |seat: &str| {
        let entry: String = house.redis.command(&["HGET", &key, seat]);
        entry.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    until("it is put right", async || version("0") < 100).await;
    house.one.execute(release(&*house.one, held.id)).await.unwrap();
    house.close().await;
    true
}

/// The same for a seat that is free, says such an entry: whoever is let through and refused puts it right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_entry_of_a_version_that_the_ledger_has_not_lets_one_through_and_not_everybody() {
    let house = House::open().await;
    hold(&house.one, house.seats(&[0])).await;
    house.noted().await;
    let has_read = async || house.other.event(&house.venue).await.unwrap().counts.held == 1;
    until("the other server has read it", has_read).await;
    house.redis.command::<()>(&["HSET", &keys_of(&house, "seats")[0], "0", "999999 f 0 ?"]);
    let admitted = gate_of(&house.other).admitted.get();
    assert_eq!(refusal(house.other.execute(house.seats(&[0])).await), taken(&[0]));
    assert_eq!(gate_of(&house.other).admitted.get(), admitted + 1, "the ledger said so");
    refused_by_gate(&house.other, || house.seats(&[0]), &taken(&[0])).await;
    house.close().await;
}

/// The same for units: none is free, says an entry of a version that the ledger has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_a_pool_that_is_wrong_is_doubted_and_put_right() {
    in_one_house(a_wrong_entry_of_a_pool_is_put_right).await;
}

async fn a_wrong_entry_of_a_pool_is_put_right(house: House) -> bool {
    hold(&house.one, house.units(1)).await;
    until("the gate knows the pool", async || !keys_of(&house, "pools").is_empty()).await;
    let key = keys_of(&house, "pools").remove(0);
    let entry = || house.redis.command::<String>(&["HGET", &key, "0"]);
    until("the grant is noted", async || entry().split(' ').nth(1) == Some("9")).await;
    let (seconds, micros): (u64, u64) = house.redis.command(&["TIME"]);
    let till = seconds * 1_000 + micros / 1_000 + 3_000;
    house.redis.command::<()>(&["HSET", &key, "0", &format!("999999 0 10 {till} 0 0 0 0")]);
    let short = Refusal::PoolShort { pool: PoolNo(0), available: 0, returning: 10 };
    let believed = house.other.execute(house.units(1)).await;
    if believed.is_ok() {
        return false;
    }
    assert_eq!(refusal(believed), short);
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = house.other.execute(house.units(9)).await {
        assert!(matches!(error, EngineError::Refused(Refusal::PoolShort { .. })), "{error:?}");
        assert!(Instant::now() < deadline, "it is still believed: {}", entry());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let version = || entry().split(' ').next().unwrap().parse::<u64>().unwrap();
    until("it is put right", async || version() < 100).await;
    house.close().await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_the_ledger_in_doubt_does_not_end_the_claims_of_others() {
    let house = House::open().await;
    hold(&house.one, house.units(10)).await;
    until("the gate knows the pool", async || !keys_of(&house, "pools").is_empty()).await;
    let key = keys_of(&house, "pools").remove(0);
    let entry = || -> Vec<u64> {
        let entry: String = house.redis.command(&["HGET", &key, "0"]);
        entry.split(' ').map(|part| part.parse().unwrap()).collect()
    };
    let claimed = |entry: &[u64]| entry[4] + entry[5];
    until("all are gone, and no claim is left", async || entry()[1] == 0 && claimed(&entry()) == 0).await;
    let has_read = async || house.other.event(&house.venue).await.unwrap().pools[0].free() == 0;
    until("the other server has read it", has_read).await;
    // Others are on their way to the ledger with four units, and it is time to look there again.
    let (seconds, _): (u64, u64) = house.redis.command(&["TIME"]);
    let mut wrong = entry();
    (wrong[3], wrong[4], wrong[6]) = (1, 4, (seconds + 60) * 1_000);
    let wrong = wrong.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    house.redis.command::<()>(&["HSET", &key, "0", &wrong]);
    let admitted = gate_of(&house.other).admitted.get();
    let short = Refusal::PoolShort { pool: PoolNo(0), available: 0, returning: 10 };
    assert_eq!(refusal(house.other.execute(house.units(1)).await), short);
    assert_eq!(gate_of(&house.other).admitted.get(), admitted + 1, "the ledger said so");
    // The end of the refused caller's claim, if it had one, was written before the answer.
    assert_eq!(claimed(&entry()), 4);
    house.close().await;
}

/// Waits that whoever asks for the first time has for a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repetition_does_not_wait_for_what_others_have_claimed() {
    in_one_house(a_repetition_does_not_wait).await;
}

async fn a_repetition_does_not_wait(house: House) -> bool {
    let request = || house.units(5).with_key(key(1));
    let held = hold(&house.one, request()).await;
    claim_all_units(&house).await;
    let begun = Instant::now();
    assert_eq!(hold(&house.other, request()).await.id, held.id);
    let waited = begun.elapsed();
    println!("it waited for {waited:?}");
    house.close().await;
    waited < Duration::from_millis(900)
}

/// Whoever goes away before the ledger is asked leaves no claim behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_had_claimed_who_goes_away_is_free_at_once() {
    let house = House::open().await;
    hold(&house.one, house.seats(&[0])).await;
    hold(&house.one, house.units(5)).await;
    house.noted().await;
    claim_all_units(&house).await;
    let items = vec![ItemRequest::Seat(SeatNo(3)), ItemRequest::Pool(PoolNo(0), 1)];
    let (engine, request) = (Arc::clone(&house.one), hold_items(&house.venue, items, LONG_MS));
    let gone = tokio::spawn(async move { engine.execute(request).await });
    let section = keys_of(&house, "seats").remove(0);
    let entry = || house.redis.command::<Option<String>>(&["HGET", &section, "3"]);
    until("the seat is claimed", async || entry().is_some_and(|entry| entry.contains(" c "))).await;
    gone.abort();
    assert!(gone.await.is_err_and(|gone| gone.is_cancelled()), "it was still waiting for the units");
    house.noted().await;
    hold(&house.other, house.seats(&[3])).await;
    house.close().await;
}

/// Writes that others are on their way to the ledger with all units that are free.
async fn claim_all_units(house: &House) {
    let key = || keys_of(house, "pools").into_iter().next();
    until("the gate knows the pool", async || key().is_some()).await;
    let key = key().expect("a pool");
    let entry = || -> Vec<u64> {
        let entry: String = house.redis.command(&["HGET", &key, "0"]);
        entry.split(' ').map(|part| part.parse().unwrap()).collect()
    };
    until("no claim is left", async || entry()[1] == 5 && entry()[4] + entry()[5] == 0).await;
    let (seconds, _): (u64, u64) = house.redis.command(&["TIME"]);
    let mut claimed = entry();
    (claimed[4], claimed[6]) = (claimed[1], (seconds + 60) * 1_000);
    let claimed = claimed.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    house.redis.command::<()>(&["HSET", &key, "0", &claimed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_older_than_what_a_server_has_read_does_not_count() {
    let house = House::open().await;
    let held = hold(&house.one, house.seats(&[0])).await;
    house.noted().await;
    let keys = keys_of(&house, "seats");
    let old: String = house.redis.command(&["HGET", &keys[0], "0"]);
    house.one.execute(release(&*house.one, held.id)).await.unwrap();
    // As if the note of the release was lost in a failover.
    house.redis.command::<()>(&["HSET", &keys[0], "0", &old]);
    hold(&house.one, house.seats(&[0])).await;
    // And a late note does not replace a newer one.
    let version = |entry: &str| entry.split(' ').next().unwrap().parse::<u64>().unwrap();
    let new = || house.redis.command::<String>(&["HGET", &keys[0], "0"]);
    until("the newer one is noted", async || version(&new()) > version(&old)).await;
    house.close().await;
}
