//! Who sweeps a ledger that several servers share: one of them, by a lease, with a fence that the ledger checks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::Postgres;
use tokio_postgres::Client;

/// How long nobody may sweep after a sweeper is gone: its lease, the next one's pause, and patience with a busy machine.
const HANDOVER_MAX: Duration = Duration::from_secs(10);

async fn open(server: &Postgres, key: &SecretKey) -> ClusterEngine {
    ClusterEngine::open(ClusterOptions::new(server.url(), key.clone())).await.expect("the ledger opens")
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a number").get(0)
}

/// The connections whose last word was to ask for holds that are over: those of sweepers at work.
async fn sweepers(looks: &Client) -> BTreeSet<i32> {
    let sql = "SELECT pid FROM pg_stat_activity WHERE query LIKE '-- Events with holds that are over%'";
    looks.query(sql, &[]).await.expect("the list").iter().map(|row| row.get(0)).collect()
}

/// Waits until one server sweeps, on another connection than these.
async fn successor(looks: &Client, before: &BTreeSet<i32>) -> BTreeSet<i32> {
    let begun = Instant::now();
    let mut now = BTreeSet::new();
    until("another server sweeps", async || {
        now = sweepers(looks).await;
        now.len() == 1 && now.is_disjoint(before)
    })
    .await;
    assert!(begun.elapsed() < HANDOVER_MAX, "nobody swept for {:?}", begun.elapsed());
    now
}

/// Has a hold run out, and waits until it is ended without anybody asking for it.
async fn assert_swept(looks: &Client, engine: &ClusterEngine, venue: &Venue, seat: u32) {
    let expired = "SELECT count(*) FROM leasehold.holds WHERE state = 4";
    let before = number(looks, expired).await;
    held(engine.execute(hold_seat(venue, seat, 1_000)).await);
    until("the hold is ended", async || number(looks, expired).await == before + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_servers_one_sweeps_and_another_one_goes_on_when_it_is_gone() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    let first = open(&server, &key).await;
    let venue = create_event(&first, 1, 4).await;
    let elected = successor(&looks, &BTreeSet::new()).await;
    let (second, third) = (open(&server, &key).await, open(&server, &key).await);
    let begun = Instant::now();
    // Long enough for both to ask for their turn twice.
    while begun.elapsed() < Duration::from_millis(2_500) {
        let seen = sweepers(&looks).await;
        assert!(seen.is_subset(&elected), "{seen:?} besides {elected:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_swept(&looks, &second, &venue, 0).await;
    first.close().await;
    let elected = successor(&looks, &elected).await;
    assert_swept(&looks, &second, &venue, 1).await;
    // Gone without a word, one of them in the middle of its term.
    let last = open(&server, &key).await;
    drop((second, third));
    successor(&looks, &elected).await;
    assert_swept(&looks, &last, &venue, 2).await;
    assert_eq!(number(&looks, "SELECT count(*) FROM leasehold_locks.leases").await, 1);
    last.close().await;
    assert_eq!(check_ledger(&server.url()).await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_that_comes_after_its_term_changes_nothing() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    let engine = open(&server, &key).await;
    let venue = create_event(&engine, 1, 4).await;
    successor(&looks, &BTreeSet::new()).await;
    // A sweep that has begun stands still until it may go on.
    looks
        .batch_execute(
            "CREATE TABLE may_go_on ();
             CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 WHILE NOT EXISTS (SELECT FROM may_go_on) LOOP PERFORM pg_sleep(0.01); END LOOP;
                 RETURN new;
             END $$;
             CREATE TRIGGER stands_still BEFORE UPDATE ON leasehold.holds
                 FOR EACH ROW WHEN (new.state = 4) EXECUTE FUNCTION stand_still()",
        )
        .await
        .unwrap();
    held(engine.execute(hold_seat(&venue, 0, 1_000)).await);
    let stands = "SELECT count(*) FROM pg_stat_activity
                  WHERE application_name = 'leasehold' AND wait_event = 'PgSleep'";
    until("the sweep stands still", async || number(&looks, stands).await == 1).await;
    // Meanwhile its lease passes on to a server that sweeps, and it is told so when it renews.
    looks
        .batch_execute(
            "UPDATE leasehold_locks.leases SET owner = 'another', fence = nextval('leasehold_locks.fences'),
                 expires_at = clock_timestamp() + interval '1 hour';
             UPDATE leasehold.ledger SET sweeper_fence = (SELECT fence FROM leasehold_locks.leases);
             CREATE TEMPORARY TABLE passed_on AS SELECT clock_timestamp() AS at",
        )
        .await
        .unwrap();
    let told = "SELECT count(*) FROM pg_stat_activity, passed_on WHERE application_name = 'leasehold sweeper'
                AND query LIKE '%renew_v1%' AND query_start > passed_on.at AND state = 'idle'";
    until("the renewal is refused", async || number(&looks, told).await == 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    until("the sweep is still on its way", async || number(&looks, stands).await == 1).await;
    looks.batch_execute("INSERT INTO may_go_on DEFAULT VALUES").await.unwrap();
    // It goes on where it was, and is refused; nor does it begin another one.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(number(&looks, "SELECT count(*) FROM leasehold.holds WHERE state = 0").await, 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    looks.batch_execute("DELETE FROM leasehold_locks.leases").await.unwrap();
    let ended = "SELECT count(*) FROM leasehold.holds WHERE state = 4";
    until("it sweeps again when it is its turn", async || number(&looks, ended).await == 1).await;
    engine.close().await;
}

/// Whatever is old may wait, holds that are over may not.
#[tokio::test(flavor = "multi_thread")]
async fn holds_that_are_over_are_ended_also_while_there_is_much_to_delete() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    let engine = open(&server, &key).await;
    let venue = create_event(&engine, 1, 4).await;
    // Answers of long ago, and each piece of them takes its time.
    looks
        .batch_execute(
            "INSERT INTO leasehold.answers (scope, fingerprint, event_no, at, answer)
                 SELECT gen_random_uuid(), gen_random_uuid(), 0, 0, '' FROM generate_series(1, 200000);
             CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_sleep(0.3);
                 RETURN NULL;
             END $$;
             CREATE TRIGGER takes_time AFTER DELETE ON leasehold.answers FOR EACH STATEMENT EXECUTE FUNCTION take_time()",
        )
        .await
        .unwrap();
    let left = "SELECT count(*) FROM leasehold.answers";
    let before = number(&looks, left).await;
    let begun = Instant::now();
    while number(&looks, left).await == before {
        assert!(begun.elapsed() < 2 * PATIENCE, "nothing is deleted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_swept(&looks, &engine, &venue, 0).await;
    assert!(number(&looks, left).await > 0, "it was ended when all was deleted, and not before");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_right_to_leases_sweeps_all_the_same() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    open(&server, &key).await.close().await;
    looks
        .batch_execute(
            "CREATE ROLE clerk LOGIN;
             GRANT USAGE ON SCHEMA leasehold TO clerk;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO clerk",
        )
        .await
        .unwrap();
    let url = format!("postgres://clerk@{}/postgres", server.address());
    let engine = ClusterEngine::open(ClusterOptions::new(url, key)).await.unwrap();
    let venue = create_event(&engine, 1, 4).await;
    assert_swept(&looks, &engine, &venue, 0).await;
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_whose_leases_began_anew_is_swept_all_the_same() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    let engine = open(&server, &key).await;
    looks.batch_execute("UPDATE leasehold.ledger SET sweeper_fence = 1000000").await.unwrap();
    let venue = create_event(&engine, 1, 4).await;
    assert_swept(&looks, &engine, &venue, 0).await;
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_sweep_any_more_lets_another_one() {
    let (server, key) = (Postgres::start(), SecretKey::random());
    let looks = server.client().await;
    let outdated = open(&server, &key).await;
    let venue = create_event(&outdated, 1, 4).await;
    let elected = successor(&looks, &BTreeSet::new()).await;
    // As after a restore: it is not let in again when its connections have broken.
    looks.batch_execute("UPDATE leasehold.ledger SET epoch = epoch + 1024").await.unwrap();
    let other = open(&server, &key).await;
    for pid in &elected {
        looks.execute("SELECT pg_terminate_backend($1)", &[pid]).await.unwrap();
    }
    successor(&looks, &elected).await;
    assert_swept(&looks, &other, &venue, 0).await;
    outdated.close().await;
    other.close().await;
}
