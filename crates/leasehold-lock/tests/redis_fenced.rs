//! The promises of a lock store, kept on one Redis server with epochs from PostgreSQL.

use std::time::Duration;

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, Epochs, LockError, Locker, Redis};
use leasehold_testkit::servers::{Persistence, Postgres, RedisServer};

/// A server that nobody stops, so that a disk which is slow for a moment takes no part.
fn start() -> RedisServer {
    RedisServer::options().persistence(Persistence::None).start()
}

leasehold_testkit::lock_suite!(async {
    let (server, postgres) = (start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap().with_claim_time(Duration::from_secs(1));
    let store = redis.with_epochs(Epochs::open(&postgres.url()).unwrap());
    ((server, postgres), store)
});

/// However many names were used: names of one slot share its counter, and nothing else stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_free_need_no_memory_on_the_server() {
    let (server, postgres) = (start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap();
    let locker = Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    for round in 0..40 {
        let asks = (0..50).map(|number| {
            let acquire = locker.acquire(format!("{{job}}:{round}:{number}"));
            let acquire = if number % 2 == 0 { acquire } else { acquire.in_order() };
            tokio::spawn(async move { acquire.await.unwrap().granted().unwrap().release().await.unwrap() })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
    }
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort();
    assert!(
        keys.len() == 2
            && keys[0].starts_with("leasehold:fences:")
            && keys[1].starts_with("leasehold:guard:"),
        "{keys:?}"
    );
}

/// Those who ask at the same time are granted by the script that they share, and not each by one of its own behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_ask_together_are_granted_together() {
    const ROUNDS: u64 = 40;
    const ASKING: u64 = 50;
    let (server, postgres) = (start(), Postgres::start());
    let redis = Redis::open(&server.url()).unwrap();
    let locker = Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()));
    locker.acquire("{job}:first").await.unwrap().granted().unwrap().release().await.unwrap();
    let scripts = || -> u64 {
        let said = server.info("commandstats", "cmdstat_evalsha");
        let calls = said.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
        calls.and_then(|calls| calls.parse().ok()).expect("a number of calls")
    };
    let before = scripts();
    for round in 0..ROUNDS {
        let asks = (0..ASKING).map(|number| {
            let acquire = locker.acquire(format!("{{job}}:{round}:{number}"));
            tokio::spawn(async move { acquire.await.unwrap().granted().unwrap().release().await.unwrap() })
        });
        for ask in asks.collect::<Vec<_>>() {
            ask.await.unwrap();
        }
    }
    let (scripts, asked) = (scripts() - before, ROUNDS * ASKING);
    assert!(scripts * 2 < asked, "{scripts} scripts for {asked} locks that were taken and given back");
}

/// What many ask at the same time goes to the server together, and is decided for each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_lock_is_refused_and_those_who_asked_with_it_are_not() {
    let (server, postgres) = (start(), Postgres::start());
    let () = server.command(&["HSET", "lock:{job}:hash", "field", "value"]);
    let redis = || Redis::open(&server.url()).unwrap();
    let fenced = redis().with_epochs(Epochs::open(&postgres.url()).unwrap());
    for locker in [Locker::new(redis()), Locker::new(fenced)] {
        for _ in 0..20 {
            let asks = (0..50).map(|number| {
                let name = if number == 25 { "{job}:hash".to_owned() } else { format!("{{job}}:{number}") };
                tokio::spawn(locker.acquire(name).no_wait().into_future())
            });
            for (number, ask) in asks.collect::<Vec<_>>().into_iter().enumerate() {
                match ask.await.unwrap() {
                    Ok(Acquired::Granted(guard)) => {
                        assert_eq!(guard.release().await.unwrap(), Released::Released);
                        assert_ne!(number, 25);
                    }
                    Err(LockError::Refused { .. }) => assert_eq!(number, 25),
                    other => panic!("{number}: {other:?}"),
                }
            }
        }
        let field: String = server.command(&["HGET", "lock:{job}:hash", "field"]);
        assert_eq!((field.as_str(), server.command::<Vec<String>>(&["KEYS", "lock:*"]).len()), ("value", 1));
    }
}

/// A setup that will not work by waiting is refused, and not unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_may_not_keep_epochs_is_refused() {
    let (server, postgres) = (start(), Postgres::start());
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("CREATE ROLE clerk LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        .await
        .unwrap();
    let clerk = || Epochs::open(&postgres.url().replace("postgres@", "clerk@")).unwrap();
    let ask = async || {
        let locker = Locker::new(Redis::open(&server.url()).unwrap().with_epochs(clerk()));
        locker.acquire("job").no_wait().await
    };
    let without_table = ask().await;
    assert!(matches!(without_table, Err(LockError::Refused { .. })), "{without_table:?}");
    // The table is there, and only its use is not allowed.
    client.batch_execute(include_str!("../src/redis/sql/epochs.sql")).await.unwrap();
    client.batch_execute("GRANT CREATE ON SCHEMA public TO clerk").await.unwrap();
    let without_rights = ask().await;
    assert!(matches!(without_rights, Err(LockError::Refused { .. })), "{without_rights:?}");
}
