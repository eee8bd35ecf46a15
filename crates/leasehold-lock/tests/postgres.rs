//! The promises of a lock store, kept in a real PostgreSQL database; and what is peculiar to it.

use std::time::Duration;

use leasehold_lock::backend::{Attempt, Backend, ListQuery, Order, Released, Request};
use leasehold_lock::{Acquired, Guard, LockError, LockName, Locker, Names, Owner, Postgres, Ttl};
use leasehold_testkit::servers;
use tokio_postgres::{Client, NoTls};

const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);

leasehold_testkit::lock_suite!(async {
    let server = servers::Postgres::start();
    let store = Postgres::open(&server.url()).unwrap();
    (server, store)
});

fn locker(url: &str) -> Locker {
    Locker::new(Postgres::open(url).unwrap())
}

async fn acquire(locker: &Locker, name: &str) -> Result<Acquired, LockError> {
    locker.acquire(name).ttl(LONG).no_wait().await
}

async fn granted(locker: &Locker, name: &str) -> Guard {
    acquire(locker, name).await.unwrap().granted().expect("free")
}

async fn connect(server: &servers::Postgres) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&server.url(), NoTls).await.expect("the server answers");
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_find_nothing_make_the_tables_once_and_all_get_a_lock() {
    let server = servers::Postgres::start();
    let asks: Vec<_> = (0..8)
        .map(|number| {
            let url = server.url();
            tokio::spawn(async move { granted(&locker(&url), &format!("job-{number}")).await.fence() })
        })
        .collect();
    let mut fences = Vec::new();
    for ask in asks {
        fences.push(ask.await.unwrap().expect("a fence"));
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 8);
}

/// Whoever waited for another to make the tables sees them made. Making them again would lock out those who use them,
/// and may be locked out by them for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_another_made_meanwhile_are_not_made_again() {
    let server = servers::Postgres::start();
    let (maker, user) = (connect(&server).await, connect(&server).await);
    maker.batch_execute("SELECT pg_advisory_lock(7810756276994728811)").await.unwrap();
    let late = tokio::spawn({
        let store = Postgres::open(&server.url()).unwrap();
        async move { store.inspect(&LockName::parse("job").unwrap()).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while user.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    maker.batch_execute(include_str!("../src/postgres/sql/schema.sql")).await.unwrap();
    // As those do who take a lock, and for longer than anybody waits.
    user.batch_execute("BEGIN; LOCK TABLE leasehold_locks.leases IN ROW EXCLUSIVE MODE").await.unwrap();
    maker.batch_execute("SELECT pg_advisory_unlock(7810756276994728811)").await.unwrap();
    assert!(late.await.unwrap().expect("nobody is in its way").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_killed_remembers_who_has_what_and_no_fence_comes_twice() {
    let mut server = servers::Postgres::start();
    let locker = locker(&server.url());
    let mut last = None;
    for round in 0..3 {
        let given_back = granted(&locker, "other").await;
        assert!(given_back.fence() > last, "round {round}");
        given_back.release().await.unwrap();
        let kept = granted(&locker, &format!("kept-{round}")).await;
        last = kept.fence();
        server.kill9();
        server.restart();
        let other = Locker::new(Postgres::open(&server.url()).unwrap());
        let busy = acquire(&other, &format!("kept-{round}")).await.unwrap();
        assert!(busy.granted().is_none(), "round {round}: a grant was forgotten");
        kept.check().expect("it is still held");
        drop(kept);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_connections_break_gets_the_lock_all_the_same() {
    let server = servers::Postgres::start();
    let (holder, waiter) = (locker(&server.url()), locker(&server.url()));
    let guard = granted(&holder, "job").await;
    let waiting = tokio::spawn(waiter.acquire("job").ttl(LONG).wait(PATIENCE).into_future());
    let looks = connect(&server).await;
    let listeners = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LISTEN leasehold_locks%' AND pid <> pg_backend_pid()";
    while looks.query_one(listeners, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert!(looks.query(cut, &[]).await.unwrap().len() >= 3);
    // The holder's connection is cut as well, which it may notice only now: it is released all the same, a little later.
    let released = guard.release().await;
    assert!(matches!(released, Ok(_) | Err(LockError::Unknown { .. })), "{released:?}");
    let acquired = waiting.await.unwrap().unwrap();
    acquired.granted().expect("it was released").release().await.unwrap();
}

/// A lease is a row, so it is no matter which session asks: one that ends takes no lock with it, and one that has a
/// lock does not get it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_29_a_lock_is_not_its_sessions() {
    let server = servers::Postgres::start();
    let locker = locker(&server.url());
    let guard = granted(&locker, "job").await;
    assert!(acquire(&locker, "job").await.unwrap().granted().is_none(), "had twice by one session");
    let looks = connect(&server).await;
    let cut = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    assert!(!looks.query(cut, &[]).await.unwrap().is_empty());
    let rival = Locker::new(Postgres::open(&server.url()).unwrap());
    assert!(acquire(&rival, "job").await.unwrap().granted().is_none(), "gone with the session");
    guard.check().unwrap();
    drop(guard);
    let acquired = rival.acquire("job").ttl(LONG).wait(PATIENCE).await.unwrap();
    acquired.granted().expect("another session has released it").release().await.unwrap();
}

/// Names are entered by a hash of 32 bits. Two that share it are two locks, and whatever is taken together in
/// whichever order waits for nobody who waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_30_names_that_collide_are_different_locks_and_no_order_deadlocks() {
    let server = servers::Postgres::start();
    let looks = connect(&server).await;
    let collision = "SELECT min(name), max(name) FROM (SELECT 'job-' || i AS name FROM generate_series(1, 400000) AS i) AS names
                     GROUP BY hashtext(name) HAVING count(*) > 1 LIMIT 1";
    let row = looks.query_one(collision, &[]).await.expect("two of so many collide");
    let (one, other): (String, String) = (row.get(0), row.get(1));
    let (ours, theirs) = (locker(&server.url()), locker(&server.url()));
    let (first, second) = (granted(&ours, &one).await, granted(&theirs, &other).await);
    assert_eq!(first.release().await.unwrap(), Released::Released);
    assert!(acquire(&ours, &other).await.unwrap().granted().is_none(), "released with another one");
    assert_eq!(second.release().await.unwrap(), Released::Released);
    let names = [one, other, "a".to_owned(), "z".to_owned()];
    let tasks = (0..12).map(|number| {
        let locker = locker(&server.url());
        let wanted = [names[number % 4].as_str(), &names[(number + 1 + number / 4) % 4]].map(str::to_owned);
        tokio::spawn(async move {
            for _ in 0..20 {
                let wanted = [wanted[0].as_str(), &wanted[1]];
                let acquired = locker.acquire(wanted).ttl(LONG).wait(LONG).await.unwrap();
                acquired.granted().expect("patience enough").release().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(looks.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_is_refused_and_one_who_may_use_the_tables_needs_no_more() {
    let server = servers::Postgres::start();
    let looks = connect(&server).await;
    looks.batch_execute("CREATE ROLE clerk LOGIN").await.unwrap();
    let clerk = locker(&server.url().replace("postgres@", "clerk@"));
    let refused = acquire(&clerk, "job").await;
    assert!(matches!(refused, Err(LockError::Refused { .. })), "{refused:?}");
    granted(&locker(&server.url()), "job").await.release().await.unwrap();
    let rights = "GRANT USAGE ON SCHEMA leasehold_locks TO clerk;
                  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold_locks TO clerk;
                  GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold_locks TO clerk";
    looks.batch_execute(rights).await.unwrap();
    granted(&clerk, "job").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserved_name_is_held_like_any_other_and_is_in_no_list() {
    let server = servers::Postgres::start();
    let (ours, theirs) = (locker(&server.url()), locker(&server.url()));
    let reserved = || Names::from(LockName::reserved("job").unwrap());
    let guard = ours.acquire(reserved()).ttl(LONG).no_wait().await.unwrap().granted().expect("free");
    let again = theirs.acquire(reserved()).no_wait().await.unwrap();
    assert!(matches!(again, Acquired::Busy(_)), "{again:?}");
    let _users = [granted(&theirs, "job").await, granted(&theirs, "knob").await];
    let (mut cursor, mut listed) = (None, Vec::new());
    loop {
        let query = ListQuery { cursor: cursor.take(), limit: 1, ..ListQuery::default() };
        let page = theirs.list(&query).await.unwrap();
        listed.extend(page.leases.iter().map(|lease| lease.name.to_string()));
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(listed, ["job", "knob"]);
    guard.release().await.unwrap();
}

/// Those who were killed release nothing, and nobody may ever ask for these names again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_killed_leave_behind_goes() {
    let server = servers::Postgres::start();
    let (locker, looks) = (locker(&server.url()), connect(&server).await);
    for number in 0..100 {
        let _nobodys = granted(&locker, &format!("job-{number}")).await.detach();
    }
    let ended = "UPDATE leasehold_locks.leases SET expires_at = now()";
    assert_eq!(looks.execute(ended, &[]).await.unwrap(), 100);
    let killed = "INSERT INTO leasehold_locks.waiting (name, owner, heard_of)
                  SELECT 'job-' || i, 'killed', now() - interval '2 hours' FROM generate_series(1, 100) AS i";
    assert_eq!(looks.execute(killed, &[]).await.unwrap(), 100);
    for number in 0..20 {
        granted(&locker, &format!("other-{number}")).await.release().await.unwrap();
    }
    let count = "SELECT (SELECT count(*) FROM leasehold_locks.leases), (SELECT count(*) FROM leasehold_locks.waiting)";
    let left = looks.query_one(count, &[]).await.unwrap();
    assert_eq!((left.get(0), left.get(1)), (0_i64, 0_i64), "leases and waiters");
}

/// How many are ahead of an owner in the line for a name that is held.
async fn ahead(store: &Postgres, name: &str, owner: &Owner) -> Option<u32> {
    let (names, ttl) = (Names::try_from(name).unwrap(), Ttl::new(LONG).unwrap());
    let request = Request { names: &names, owner, ttl, order: Order::Fifo };
    match store.try_acquire(&request).await.unwrap() {
        Attempt::Busy(busy) => busy.ahead,
        Attempt::Granted(_) => panic!("it is held"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stands_in_a_full_line_keeps_the_place_and_nobody_else_has_one() {
    let server = servers::Postgres::start();
    let (store, looks) = (Postgres::open(&server.url()).unwrap(), connect(&server).await);
    let _held = granted(&locker(&server.url()), "job").await;
    let (first, late) = (Owner::random(None), Owner::random(None));
    assert_eq!(ahead(&store, "job", &first).await, Some(0));
    let many = "INSERT INTO leasehold_locks.waiting (name, owner, heard_of)
                SELECT 'job', 'owner-' || i, now() + interval '1 hour' FROM generate_series(2, 10000) AS i";
    assert_eq!(looks.execute(many, &[]).await.unwrap(), 9_999);
    let heard_of = "SELECT heard_of FROM leasehold_locks.waiting WHERE name = 'job' AND owner = $1";
    let heard_of = async || -> std::time::SystemTime {
        looks.query_one(heard_of, &[&first.as_str()]).await.expect("it is in line").get(0)
    };
    let before = heard_of().await;
    assert_eq!(ahead(&store, "job", &first).await, Some(0));
    assert!(heard_of().await > before, "it is not heard of, and will be passed over");
    assert_eq!(ahead(&store, "job", &late).await, None, "there is no room");
}

/// A database of an older version gets what is new from the first who may change it. Whoever may not goes on with what is
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_an_older_version_gets_the_new_functions() {
    let server = servers::Postgres::start();
    let looks = connect(&server).await;
    granted(&locker(&server.url()), "job").await.release().await.unwrap();
    let older = "DROP FUNCTION leasehold_locks.acquire_v1;
                 ALTER FUNCTION leasehold_locks.acquire_v2 RENAME TO acquire_v1;
                 CREATE ROLE clerk LOGIN;
                 GRANT USAGE ON SCHEMA leasehold_locks TO clerk;
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold_locks TO clerk;
                 GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold_locks TO clerk";
    looks.batch_execute(older).await.unwrap();
    let functions = async || -> Vec<String> {
        let names = "SELECT proname::text FROM pg_proc WHERE proname LIKE 'acquire_v%' ORDER BY 1";
        looks.query(names, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let clerk = locker(&server.url().replace("postgres@", "clerk@"));
    granted(&clerk, "job").await.release().await.unwrap();
    assert_eq!(functions().await, ["acquire_v1"]);
    // Those who use the tables are not in the way of it.
    looks.batch_execute("BEGIN; LOCK TABLE leasehold_locks.leases IN ROW EXCLUSIVE MODE").await.unwrap();
    granted(&locker(&server.url()), "job").await.release().await.unwrap();
    looks.batch_execute("COMMIT").await.unwrap();
    assert_eq!(functions().await, ["acquire_v1", "acquire_v2"]);
    let of_the_older =
        "SELECT fences FROM leasehold_locks.acquire_v1(ARRAY['old'], 'somebody', 1000, false, 1000, 10)";
    let fences: Vec<i64> = looks.query_one(of_the_older, &[]).await.unwrap().get(0);
    assert_eq!(fences.len(), 1);
}
