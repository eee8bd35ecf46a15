//! A ledger that is damaged on purpose: each kind of damage is found, and named.

use leasehold_core::*;
use leasehold_engine::*;
use leasehold_testkit::engine_suite::*;
use leasehold_testkit::servers::Postgres;

/// The table, what is done to it, and what the check then says.
const DAMAGES: [(&str, &str, &str); 14] = [
    (
        "blocks",
        "INSERT INTO leasehold.blocks (id, event_no, number, items, created_at)
            VALUES (gen_random_uuid(), 0, 1, '{0,0,1}', 0)",
        "seat 0 has 2 owners",
    ),
    ("seats", "UPDATE leasehold.seats SET fence = fence + 1 WHERE seat_no = 0", "seat 0 has status 1"),
    ("sales", "DELETE FROM leasehold.sales", "seat 1 has sale  and is sold by"),
    ("pools", "UPDATE leasehold.pools SET held = held + 1", "pool floor counts 3 held"),
    ("events", "UPDATE leasehold.events SET seats_held = seats_held + 1", "counts 3 held"),
    ("log", "DELETE FROM leasehold.log WHERE version = 2", "its log goes from 1 to"),
    ("log", "UPDATE leasehold.log SET at = 0 WHERE version = 2", "entry 2 is earlier"),
    ("holders", "UPDATE leasehold.holders SET units = units + 1", "holder ada has 3 units"),
    ("bookings", "DELETE FROM leasehold.bookings", "its booking is not there"),
    ("holds", "DELETE FROM leasehold.holds WHERE state = 2", "is not that of its hold"),
    ("holds", "UPDATE leasehold.holds SET live_until = NULL WHERE state = 0", "ends by itself at "),
    (
        "payments",
        "UPDATE leasehold.payments SET state = 2 WHERE state = 0",
        "payment pay-2 of event 0 is in state 2",
    ),
    ("payments", "DELETE FROM leasehold.payments WHERE state = 1", "has no payment pay-1"),
    ("payments", "DELETE FROM leasehold.payments WHERE state = 0", "has no payment pay-2"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_damage_to_a_ledger_is_named_by_the_check() {
    let server = Postgres::start();
    let engine = ClusterEngine::open(ClusterOptions::new(server.url(), SecretKey::random())).await.unwrap();
    // Ada holds a seat and two units, somebody bought a seat, and somebody is paying for one.
    let policy = Policy { units_per_holder_max: 3, ..Policy::default() };
    let venue = create_event_with(&engine, "gala", 1, 4, policy).await;
    let items = vec![ItemRequest::Seat(SeatNo(0)), ItemRequest::Pool(PoolNo(0), 2)];
    let mut ada = hold_items(&venue, items, LONG_MS);
    if let Command::CreateHold(create) = &mut ada.command {
        create.holder = Some(reference("ada"));
    }
    engine.execute(ada).await.unwrap();
    let sold = held(engine.execute(hold_seat(&venue, 1, LONG_MS)).await);
    engine.execute(confirm(&engine, sold.id, Some("pay-1"))).await.unwrap();
    let paying = held(engine.execute(hold_seat(&venue, 2, LONG_MS)).await);
    let begin = BeginPayment { hold: paying.id, reference: reference("pay-2"), max_wait: None };
    engine.execute(by_owner(&engine, paying.id, Command::BeginPayment(begin))).await.unwrap();
    engine.close().await;

    let client = server.client().await;
    // So that rows come and go without a word from foreign keys.
    client.batch_execute("SET session_replication_role = replica").await.unwrap();
    for (table, damage, found) in DAMAGES {
        let whole = check_ledger(&server.url()).await.unwrap();
        assert_eq!(whole.problems, Vec::<String>::new(), "before: {damage}");
        client.batch_execute(&format!("CREATE TABLE kept AS TABLE leasehold.{table}")).await.unwrap();
        assert!(client.execute(damage, &[]).await.unwrap() > 0, "it damages nothing: {damage}");
        let damaged = check_ledger(&server.url()).await.unwrap();
        assert!(damaged.problems.iter().any(|one| one.contains(found)), "{damage}: {:#?}", damaged.problems);
        let repair = format!(
            "DELETE FROM leasehold.{table};
             INSERT INTO leasehold.{table} OVERRIDING SYSTEM VALUE SELECT * FROM kept;
             DROP TABLE kept"
        );
        client.batch_execute(&repair).await.unwrap();
    }
}
