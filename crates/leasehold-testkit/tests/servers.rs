//! The test servers keep their own promises: they start, break as asked, and leave nothing behind.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Persistence, Postgres, RedisCluster, RedisServer, independent};

#[test]
fn redis_keeps_its_data_over_a_kill_and_loses_it_when_asked() {
    let mut redis = RedisServer::start();
    assert_eq!(redis.command::<i64>(&["INCR", "counter"]), 1);
    let address = redis.address();
    redis.kill9();
    assert!(redis.try_command::<String>(&["PING"]).is_err());
    redis.restart();
    assert_eq!(redis.address(), address);
    assert_eq!(redis.command::<i64>(&["INCR", "counter"]), 2);
    redis.stop();
    redis.restart_empty();
    assert_eq!(redis.command::<i64>(&["INCR", "counter"]), 1);
}

#[test]
fn a_paused_redis_answers_only_after_the_pause() {
    let mut redis = RedisServer::options().persistence(Persistence::None).start();
    let mut connection = redis.connection();
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    redis.pause();
    assert!(redis::cmd("INCR").arg("counter").query::<i64>(&mut connection).is_err());
    redis.resume();
    let deadline = Instant::now() + Duration::from_secs(5);
    while redis.command::<Option<i64>>(&["GET", "counter"]) != Some(1) {
        assert!(Instant::now() < deadline, "the command that waited was not run");
    }
}

#[test]
fn independent_servers_know_nothing_of_each_other() {
    let mut servers = independent(5);
    for server in &servers {
        assert_eq!(server.command::<i64>(&["INCR", "counter"]), 1);
    }
    servers[0].kill9();
    servers[0].restart();
    assert_eq!(servers[0].command::<i64>(&["INCR", "counter"]), 2);
}

#[test]
fn redis_is_gone_after_a_drop_and_after_a_panic() {
    let redis = RedisServer::start();
    let address = redis.address();
    drop(redis);
    assert!(std::net::TcpStream::connect(address).is_err());
    let (send, receive) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let redis = RedisServer::start();
        send.send(redis.address()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(std::net::TcpStream::connect(receive.recv().unwrap()).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_its_data_over_a_kill_and_loses_it_when_asked() {
    let mut postgres = Postgres::start();
    execute(&postgres, "CREATE TABLE seat (id text); INSERT INTO seat VALUES ('A-1')").await.unwrap();
    postgres.kill9();
    assert!(execute(&postgres, "SELECT 1").await.is_err());
    postgres.restart();
    execute(&postgres, "INSERT INTO seat VALUES ('A-2')").await.unwrap();
    postgres.pause();
    let late = tokio::time::timeout(Duration::from_millis(300), execute(&postgres, "SELECT 1")).await;
    assert!(late.is_err(), "a paused server answered");
    postgres.resume();
    execute(&postgres, "SELECT id FROM seat").await.unwrap();
    postgres.stop();
    postgres.restart_empty();
    assert!(execute(&postgres, "SELECT id FROM seat").await.is_err());
    let address = postgres.address();
    drop(postgres);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_failover_loses_the_writes_after_the_cut_and_no_others() {
    let mut cluster = RedisCluster::start();
    let key = "{seat}:counter";
    let old_master = cluster.master_of(key);
    for expected in 1..=3 {
        assert_eq!(cluster.server(old_master).command::<i64>(&["INCR", key]), expected);
    }
    let cut = cluster.begin_lost_writes(key);
    for expected in 4..=8 {
        assert_eq!(cluster.server(cut.master).command::<i64>(&["INCR", key]), expected);
    }
    let new_master = cluster.fail_over(cut);
    assert_ne!(new_master, old_master);
    assert_eq!(cluster.master_of(key), new_master);
    assert_eq!(cluster.server(new_master).command::<i64>(&["INCR", key]), 4);
    cluster.restart(old_master);
    assert_eq!(cluster.replica_of(key), old_master);
    assert_eq!(cluster.planned_failover(key), old_master);
    assert_eq!(cluster.server(old_master).command::<i64>(&["INCR", key]), 5);
}

async fn execute(postgres: &Postgres, statements: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(statements).await
}
