//! The test servers keep their own promises: they start, break as asked, and leave nothing behind.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_testkit::servers::{
    ClockShift, Direction, FaultProxy, Persistence, Postgres, RedisCluster, RedisSentinel, RedisServer,
    independent,
};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::{AsyncConnectionConfig, RedisResult};
use tokio::task::JoinSet;

/// Set in a test that was started by another test in order to be killed.
const VICTIM: &str = "LEASEHOLD_TEST_VICTIM";

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
    assert!(TcpStream::connect(address).is_err());
    let (send, receive) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let redis = RedisServer::start();
        send.send(redis.address()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(TcpStream::connect(receive.recv().unwrap()).is_err());
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
    assert!(TcpStream::connect(address).is_err());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moves_under_load_and_nobody_notices() {
    let cluster = RedisCluster::start();
    let slot = cluster.slot_of("{moving}");
    let home = cluster.master_of_slot(slot);
    let away = cluster.masters().into_iter().find(|master| *master != home).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for task in 0..4 {
        let client = ClusterClient::new(cluster.urls()).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        let stop = Arc::clone(&stop);
        load.spawn(async move {
            let mut counts = 0;
            while !stop.load(Ordering::Relaxed) {
                let key = format!("{{moving}}:{task}:{}", counts % 20);
                redis::cmd("INCR").arg(key).exec_async(&mut connection).await.unwrap();
                counts += 1;
            }
            counts
        });
    }
    let keys = (0..4).flat_map(|task| (0..20).map(move |number| format!("{{moving}}:{task}:{number}")));
    while !keys.clone().all(|key| cluster.server(home).command::<bool>(&["EXISTS", &key])) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut moving = cluster.begin_slot_move(slot, away);
    assert_eq!(cluster.move_some_keys(&mut moving, 5), 5);
    assert!(cluster.finish_slot_move(moving) >= 80);
    assert_eq!(cluster.master_of_slot(slot), away);
    assert!(cluster.move_slot(slot, home) >= 80);
    stop.store(true, Ordering::Relaxed);
    let counted: u64 = load.join_all().await.into_iter().sum();
    let stored: u64 = keys.map(|key| cluster.server(home).command::<u64>(&["GET", &key])).sum();
    assert_eq!(counted, stored);
}

#[test]
fn sentinels_name_a_new_master_when_the_old_one_is_killed() {
    let mut redis = RedisSentinel::start();
    let old = redis.master().address();
    let () = redis.master().command(&["SET", "seat", "A-1"]);
    assert_eq!(redis.master().command::<u32>(&["WAIT", "2", "5000"]), 2);
    let new = redis.kill_master();
    assert_ne!(new.address(), old);
    assert_eq!(new.command::<String>(&["GET", "seat"]), "A-1");
    redis.restart_killed();
    assert_ne!(redis.master().address(), old);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_loses_the_answer_of_a_command_that_took_effect() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.address()).await;
    let mut connection = connect(&proxy).await.unwrap();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);
    assert_eq!(proxy.traffic().swallowed_answer_bytes, 0);
    proxy.swallow(Direction::Answers);
    assert!(increment(&mut connection).await.unwrap_err().is_timeout());
    assert_eq!(proxy.traffic().swallowed_answer_bytes, ":2\r\n".len() as u64);
    assert_eq!(redis.command::<i64>(&["GET", "counter"]), 2);
    // What comes after a gap must not be taken for the answer that was lost.
    proxy.pass().await;
    let answer = increment(&mut connection).await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(increment(&mut connect(&proxy).await.unwrap()).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_swallows_requests_delays_cuts_and_refuses() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.address()).await;
    let mut connection = connect(&proxy).await.unwrap();
    proxy.swallow(Direction::Requests);
    assert!(increment(&mut connection).await.unwrap_err().is_timeout());
    assert!(proxy.traffic().swallowed_request_bytes > 0);
    assert_eq!(redis.command::<Option<i64>>(&["GET", "counter"]), None);
    proxy.pass().await;
    assert_eq!(proxy.traffic().open, 0);

    let mut connection = connect(&proxy).await.unwrap();
    for direction in [Direction::Requests, Direction::Answers] {
        proxy.delay(direction, Duration::from_millis(60));
    }
    let begun = Instant::now();
    assert_eq!(increment(&mut connection).await.unwrap(), 1);
    assert!(begun.elapsed() >= Duration::from_millis(120));
    proxy.pass().await;
    assert_eq!(increment(&mut connection).await.unwrap(), 2);

    proxy.refuse().await;
    assert_eq!(increment(&mut connection).await.unwrap(), 3);
    assert!(TcpStream::connect(proxy.address()).is_err());
    assert_eq!(proxy.cut().await, 1);
    assert!(increment(&mut connection).await.is_err());
    proxy.pass().await;
    let address = proxy.address();
    assert_eq!(increment(&mut connect(&proxy).await.unwrap()).await.unwrap(), 4);
    drop(proxy);
    while TcpStream::connect(&address).is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_shifted_clock_ends_and_prolongs_the_life_of_keys() {
    let clock = ClockShift::new();
    let redis = RedisServer::options().clock(&clock).start();
    let seconds = || redis.command::<(i64, i64)>(&["TIME"]).0;
    let begun = seconds();
    let () = redis.command(&["SET", "seat", "A-1", "PX", "30000"]);
    assert!((29_000..=30_000).contains(&redis.command::<i64>(&["PTTL", "seat"])));
    clock.set_ms(60_000);
    assert!((60..70).contains(&(seconds() - begun)));
    assert_eq!(redis.command::<Option<String>>(&["GET", "seat"]), None);
    let () = redis.command(&["SET", "seat", "A-1", "PX", "30000"]);
    clock.set_ms(-3_600_000);
    assert!((-3_600..-3_590).contains(&(seconds() - begun)));
    assert!((3_680_000..=3_690_000).contains(&redis.command::<i64>(&["PTTL", "seat"])));
    clock.set_ms(500);
    assert!((0..10).contains(&(seconds() - begun)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shifted_clock_reaches_open_connections_of_postgres() {
    let clock = ClockShift::new();
    let postgres = Postgres::options().clock(&clock).start();
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE mark AS SELECT clock_timestamp() AS at").await.unwrap();
    clock.set_ms(3_600_000);
    let ahead = "SELECT clock_timestamp() - at > interval '59 minutes' FROM mark";
    assert!(client.query_one(ahead, &[]).await.unwrap().get::<_, bool>(0));
    clock.set_ms(-3_600_000);
    let behind = "SELECT clock_timestamp() - at < interval '-59 minutes' FROM mark";
    assert!(client.query_one(behind, &[]).await.unwrap().get::<_, bool>(0));
}

/// The test runs itself as another process, which starts servers and then waits to be killed.
#[test]
fn servers_end_with_a_test_that_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let (redis, postgres) = (RedisServer::start(), Postgres::start());
        println!("victim {} {}", redis.address(), postgres.address());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let name = "servers_end_with_a_test_that_is_killed";
    // A test that is killed leaves its folders behind, and this one tidies up after it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line =
        lines.into_iter().find(|line| line.contains("victim ")).expect("the victim started its servers");
    let (_, addresses) = line.split_once("victim ").unwrap();
    let addresses: Vec<&str> = addresses.split(' ').collect();
    assert!(addresses.iter().all(|address| TcpStream::connect(address).is_ok()));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while addresses.iter().any(|address| TcpStream::connect(address).is_ok()) {
        assert!(Instant::now() < deadline, "a server outlived its test");
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn connect(proxy: &FaultProxy) -> RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://{}", proxy.address()))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_millis(500)));
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn increment(connection: &mut MultiplexedConnection) -> RedisResult<i64> {
    redis::cmd("INCR").arg("counter").query_async(connection).await
}

async fn execute(postgres: &Postgres, statements: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(statements).await
}
