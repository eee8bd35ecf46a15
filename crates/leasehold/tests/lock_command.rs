//! `leasehold lock`: what it prints, and what it exits with.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Authority, Direction, FaultProxy, Postgres, RedisServer, independent};

fn lock(store: &str, owner: Option<&str>, args: &[&str]) -> Output {
    lock_command(store, owner, args).output().unwrap()
}

fn lock_command(store: &str, owner: Option<&str>, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("lock").args(args).env("LEASEHOLD_STORE", store).env_remove("LEASEHOLD_OWNER");
    command.envs(owner.map(|owner| ("LEASEHOLD_OWNER", owner)));
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The life of a lock that no process holds.
fn is_taken_seen_renewed_and_given_back(store: &str, guarantee: &str) {
    let ttl = ["--ttl", "20s", "--label", "deploy-7", "--json"];
    let taken = lock(store, None, &[&["acquire", "app:deploy"], &ttl[..]].concat());
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    let taken = json(&taken);
    let owner = taken["owner"].as_str().unwrap();
    assert_eq!(taken["guarantee"], guarantee);
    assert_eq!(taken["fence"].is_u64(), guarantee == "fenced", "{taken}");
    assert!((15_000..=20_000).contains(&taken["expires_in_ms"].as_u64().unwrap()), "{taken}");

    let busy = lock(store, None, &["acquire", "app:deploy", "--wait", "100ms"]);
    assert_eq!(busy.status.code(), Some(97), "{busy:?}");
    for args in [&["ls"][..], &["ls", "--prefix", "app:", "--json"], &["why", "app:deploy"]] {
        let seen = lock(store, None, args);
        let text = stdout(&seen);
        assert!(seen.status.success() && text.contains("app:deploy") && text.contains("deploy-7"), "{text}");
        assert!(!text.contains(&owner[..32]), "the token is nobody else's business:\n{text}");
    }
    assert!(!stdout(&lock(store, None, &["ls", "--prefix", "other:"])).contains("app:deploy"));
    let why = json(&lock(store, None, &["why", "app:deploy", "--json"]));
    assert_eq!((&why["held"], &why["lease"]["fence"]), (&true.into(), &taken["fence"]));

    let stranger = "0123456789abcdef0123456789abcdef";
    assert_eq!(lock(store, Some(stranger), &["release", "app:deploy"]).status.code(), Some(98));
    assert_eq!(lock(store, Some(stranger), &["renew", "app:deploy"]).status.code(), Some(98));
    assert_eq!(lock(store, Some(owner), &["renew", "app:deploy", "--ttl", "1h"]).status.code(), Some(0));
    let why = json(&lock(store, None, &["why", "app:deploy", "--json"]));
    assert!(why["lease"]["remaining_ms"].as_u64().unwrap() > 3_500_000, "{why}");
    assert_eq!(lock(store, Some(owner), &["release", "app:deploy"]).status.code(), Some(0));
    assert_eq!(lock(store, Some(owner), &["release", "app:deploy"]).status.code(), Some(98));
    assert!(stdout(&lock(store, None, &["why", "app:deploy"])).contains("is free"));
}

#[test]
fn a_lock_on_sqlite_is_taken_seen_renewed_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    is_taken_seen_renewed_and_given_back(&store, "fenced");
}

#[test]
fn a_lock_on_postgres_is_taken_seen_renewed_and_given_back() {
    let postgres = Postgres::start();
    is_taken_seen_renewed_and_given_back(&postgres.url(), "fenced");
    let epochs = lock(&postgres.url(), None, &["acquire", "x", "--epochs", &postgres.url()]);
    assert_eq!(epochs.status.code(), Some(96), "{epochs:?}");
}

#[test]
fn a_lock_on_redis_is_taken_seen_renewed_and_given_back() {
    let redis = RedisServer::start();
    is_taken_seen_renewed_and_given_back(&redis.url(), "lease");
}

#[test]
fn a_lock_by_tls_is_taken_seen_renewed_and_given_back() {
    let authority = Authority::new();
    let redis = RedisServer::options().tls(&authority.certificate()).start();
    let ca_file = authority.ca_file().display().to_string();
    let url = format!("rediss://{}?ca_file={ca_file}", redis.tls_address());
    is_taken_seen_renewed_and_given_back(&url, "lease");

    let strange = Authority::new().certificate();
    let stranger = RedisServer::options().tls(&strange).start();
    let url = format!("rediss://:hunter2@{}?ca_file={ca_file}", stranger.tls_address());
    let refused = lock(&url, None, &["acquire", "app:deploy"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(96), "{said}");
    assert!(said.contains("UnknownIssuer") && !said.contains("hunter2"), "{said}");
}

#[test]
fn a_lock_on_redlock_is_taken_seen_renewed_and_given_back() {
    let servers = independent(3);
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    is_taken_seen_renewed_and_given_back(&format!("redlock://{}", addresses.join(",")), "fenced");
}

#[test]
fn a_release_on_redlock_reaches_the_slow_servers_too() {
    let mut servers = independent(3);
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    let store = format!("redlock://{}", addresses.join(","));
    let taken = json(&lock(&store, None, &["acquire", "job", "--ttl", "1h", "--json"]));
    let owner = taken["owner"].as_str().unwrap();
    for server in &servers {
        // Most servers were enough for the grant.
        let _: Option<String> = server.command(&["SET", "lock:job", owner, "NX", "PX", "3600000"]);
    }
    servers[0].pause();
    let mut release = lock_command(&store, Some(owner), &["release", "job"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(800));
    servers[0].resume();
    assert_eq!(release.wait().unwrap().code(), Some(0));
    for server in &servers {
        assert_eq!(
            server.command::<Option<String>>(&["GET", "lock:job"]),
            None,
            "left on {}",
            server.address()
        );
    }
}

#[test]
fn what_has_no_end_is_said_to_have_none() {
    let redis = RedisServer::start();
    let () = redis.command(&["SET", "lock:old", "a-client-without-leases"]);
    let why = lock(&redis.url(), None, &["why", "old"]);
    assert!(stdout(&why).contains("it has no end") && stdout(&why).contains("lock:old"), "{why:?}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_asked() {
    let nowhere = "redis://:hunter2@127.0.0.1:1";
    assert_eq!(lock(nowhere, Some("short"), &["release", "x"]).status.code(), Some(96));
    assert_eq!(lock(nowhere, None, &["release", "x"]).status.code(), Some(2), "no token");
    for args in [&["ls"][..], &["why", "x"], &["acquire", "x"]] {
        let silent = lock(nowhere, None, args);
        assert_eq!(silent.status.code(), Some(99), "{silent:?}");
        assert!(!String::from_utf8_lossy(&silent.stderr).contains("hunter2"), "{silent:?}");
    }
    let help = stdout(&lock(nowhere, None, &["acquire", "--help"]));
    assert!(help.contains("LEASEHOLD_STORE") && !help.contains("hunter2"), "{help}");
}

/// Two of three servers say that somebody else has it. The third has given its vote and stands still: it gets it taken
/// back, although the command has its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_not_had_on_redlock_leaves_no_vote_on_a_slow_server() {
    let mut servers = independent(3);
    let direct: Vec<String> = servers.iter().map(RedisServer::address).collect();
    let warm = lock(&format!("redlock://{}", direct.join(",")), None, &["acquire", "warm", "--wait", "10s"]);
    assert_eq!(warm.status.code(), Some(0), "{warm:?}");
    let others = [FaultProxy::start(&direct[1]).await, FaultProxy::start(&direct[2]).await];
    for (server, proxy) in servers[1..].iter().zip(&others) {
        let () = server.command(&["SET", "lock:job", "somebody-elses-token-of-some-length", "PX", "3600000"]);
        proxy.delay(Direction::Answers, Duration::from_millis(150));
    }
    let store = format!("redlock://{},{},{}", direct[0], others[0].address(), others[1].address());
    let mut acquire = lock_command(&store, None, &["acquire", "job", "--ttl", "1h"]).spawn().unwrap();
    let vote = |server: &RedisServer| server.command::<Option<String>>(&["GET", "lock:job"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    while vote(&servers[0]).is_none() {
        assert!(Instant::now() < deadline, "it gave no vote");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    servers[0].pause();
    // The command has been told that it is busy.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    servers[0].resume();
    assert_eq!(acquire.wait().unwrap().code(), Some(97));
    assert_eq!(vote(&servers[0]), None, "the vote is left");
}
