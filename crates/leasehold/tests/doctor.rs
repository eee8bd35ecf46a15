//! `leasehold doctor` on servers that are set up well, and on servers that are set up badly in each way.

use std::path::Path;
use std::process::{Command, Output};

use leasehold_testkit::Launch;
use leasehold_testkit::servers::{
    Authority, ClockShift, Persistence, Postgres, RedisCluster, RedisServer, independent,
};
use serde_json::Value;

fn doctor_command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("doctor").args(args).env_remove("LEASEHOLD_STORE").env_remove("LEASEHOLD_EPOCHS");
    command.env_remove("LEASEHOLD_LEDGER").env_remove("LEASEHOLD_GATE");
    command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    command
}

fn doctor(args: &[&str]) -> Output {
    doctor_command(args).output().unwrap()
}

/// The exit code and the report.
fn report(args: &[&str]) -> (Option<i32>, Value) {
    let output = doctor(&[args, &["--json"]].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

/// The level of each finding on a topic.
fn levels(report: &Value, topic: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let on_topic = findings.filter(|finding| finding["topic"] == topic);
    on_topic.map(|finding| finding["level"].as_str().unwrap().to_owned()).collect()
}

/// The topics of everything that is not as it should be.
fn complaints(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let bad = findings.filter(|finding| finding["level"] != "ok");
    bad.map(|finding| finding["topic"].as_str().unwrap().to_owned()).collect()
}

fn sql(server: &Postgres, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connected = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client.batch_execute(statement).await.unwrap();
    });
}

fn redlock(servers: &[RedisServer]) -> String {
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    format!("redlock://{}", addresses.join(","))
}

#[test]
fn a_redis_that_is_set_up_well_has_no_complaints() {
    let redis = RedisServer::start();
    let (code, report) = report(&["--store", &redis.url()]);
    assert_eq!((code, complaints(&report)), (Some(0), vec![]), "{report:#}");
    assert_eq!(report["guarantee"], "lease");
    let topics = ["version", "eviction", "persistence", "role", "replicas", "scripts", "keys", "channels"];
    for topic in topics.into_iter().chain(["clock", "prefix"]) {
        assert_eq!(levels(&report, topic), ["ok"], "{topic}: {report:#}");
    }
    let text = doctor(&["--store", &redis.url()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.trim_end().lines().last().unwrap().contains("grants `lease`"), "{text}");
}

#[test]
fn a_connection_by_tls_is_said_to_be_encrypted() {
    let authority = Authority::new();
    let redis = RedisServer::options().tls(&authority.certificate()).start();
    let postgres = Postgres::options().tls(&authority.certificate()).start();
    let (url, ca_file) = (format!("rediss://{}", redis.tls_address()), authority.ca_file());
    let epochs = format!("{}?sslmode=require", postgres.url());

    // The system's authorities do not know the server, unless the system is told another file of them.
    let (code, found) = report(&["--store", &url, "--epochs", &epochs]);
    assert_eq!((code, levels(&found, "reachable")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
    assert!(found.to_string().contains("UnknownIssuer"), "{found:#}");
    let mut command = doctor_command(&["--store", &url, "--epochs", &epochs, "--json"]);
    let output = command.env("SSL_CERT_FILE", &ca_file).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    for topic in ["encryption", "epochs-encryption"] {
        assert_eq!(levels(&found, topic), ["ok"], "{found:#}");
    }

    // In the clear nobody listens on loopback.
    let (_, found) = report(&["--store", &redis.url()]);
    assert_eq!(levels(&found, "encryption"), ["ok"], "{found:#}");
}

#[test]
fn a_redis_that_evicts_or_forgets_is_only_best_effort() {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let redis = RedisServer::options().args(&evicting).start();
    let (code, found) = report(&["--store", &redis.url()]);
    assert_eq!((code, levels(&found, "eviction")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    assert_eq!(found["guarantee"], "best-effort");

    let redis = RedisServer::options().persistence(Persistence::None).start();
    let (code, found) = report(&["--store", &redis.url()]);
    assert_eq!((code, levels(&found, "persistence")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
}

#[test]
fn a_redis_with_weak_spots_is_warned_about() {
    let redis = RedisServer::options()
        .persistence(Persistence::EverySecond)
        .args(&["--maxmemory-policy", "volatile-ttl"])
        .start();
    let replica_of = redis.port().to_string();
    let replica = RedisServer::options().args(&["--replicaof", "127.0.0.1", &replica_of]).start();
    wait_until("the replica comes", || redis.info("replication", "connected_slaves") == "1");
    let () = redis.command(&["SET", "lock:endless", "value"]);
    let _: u32 = redis.command(&["LPUSH", "lock:list", "value"]);
    let (code, found) = report(&["--store", &redis.url()]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(complaints(&found), ["eviction", "persistence", "replicas", "prefix"], "{found:#}");
    let other = report(&["--store", &redis.url(), "--key-prefix", "jobs:"]).1;
    assert_eq!(levels(&other, "prefix"), ["ok"], "{other:#}");

    let (code, found) = report(&["--store", &replica.url()]);
    assert_eq!((code, levels(&found, "role")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
}

#[test]
fn a_replica_that_a_failover_would_make_a_worse_master_is_warned_about() {
    let redis = RedisServer::start();
    let replica_of = redis.port().to_string();
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let replica = RedisServer::options()
        .persistence(Persistence::None)
        .args(&[&["--replicaof", "127.0.0.1", &replica_of], &evicting[..]].concat())
        .start();
    wait_until("the replica comes", || redis.info("replication", "connected_slaves") == "1");
    let (code, found) = report(&["--store", &redis.url()]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(levels(&found, "eviction"), ["ok", "warning"], "{found:#}");
    assert_eq!(levels(&found, "persistence"), ["ok", "warning"], "{found:#}");
    assert!(found.to_string().contains(&replica.port().to_string()), "{found:#}");
}

#[test]
fn what_may_not_be_asked_is_said() {
    let redis = RedisServer::start();
    let () = redis
        .command(&["ACL", "SETUSER", "worker", "on", ">hunter2", "~*", "&*", "+@all", "-config", "-eval"]);
    let url = format!("redis://worker:hunter2@{}", redis.address());
    let (code, found) = report(&["--store", &url]);
    assert_eq!(code, Some(1), "{found:#}");
    assert_eq!(levels(&found, "config"), ["warning"], "{found:#}");
    assert_eq!(levels(&found, "scripts"), ["problem"], "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");
    let rights = |words: &[&str]| {
        let () = redis
            .command(&[&["ACL", "SETUSER", "guest", "reset", "on", ">hunter2", "+@all"], words].concat());
        report(&["--store", &format!("redis://guest:hunter2@{}", redis.address())])
    };
    // As new users are in Redis 7: no channels.
    let (code, found) = rights(&["~*"]);
    assert_eq!((code, complaints(&found)), (Some(0), vec!["channels".to_owned()]), "{found:#}");
    let (code, found) = rights(&["~lock:*", "&*"]);
    assert_eq!((code, levels(&found, "keys")), (Some(0), vec!["warning".to_owned()]), "{found:#}");
    let (code, found) = rights(&["~leasehold:*", "%R~lock:*", "&*"]);
    assert_eq!((code, levels(&found, "keys")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    let (code, found) = rights(&["~lock:*", "~leasehold:*", "&leasehold:*"]);
    assert_eq!((code, complaints(&found)), (Some(0), vec![]), "what the documents ask for: {found:#}");
}

/// A sentinel that watches one server. Gone when this is dropped.
struct Sentinel {
    process: std::process::Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(master: &RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let file = folder.path().join("sentinel.conf");
        let watched = master.port();
        let settings = format!("bind 127.0.0.1\nport {port}\nsentinel monitor shop 127.0.0.1 {watched} 1\n");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "redis-server"]).arg(&file).arg("--sentinel");
        let process = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        wait_until("the sentinel answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port, _folder: folder }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < until, "in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn sentinel_is_asked_about_its_quorum_and_its_master() {
    let redis = RedisServer::start();
    let sentinel = Sentinel::start(&redis);
    let (code, found) = report(&["--store", &format!("redis-sentinel://127.0.0.1:{}/shop", sentinel.port)]);
    assert_eq!((code, complaints(&found)), (Some(0), vec!["sentinel".to_owned()]), "{found:#}");
    assert_eq!(levels(&found, "persistence"), ["ok"], "{found:#}");
    let (code, found) = report(&["--store", &format!("redis-sentinel://127.0.0.1:{}/other", sentinel.port)]);
    assert_eq!((code, levels(&found, "sentinel")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
}

#[test]
fn epochs_make_redis_fenced_if_their_database_keeps_them() {
    let redis = RedisServer::options().persistence(Persistence::None).start();
    let good = Postgres::start();
    let (code, found) = report(&["--store", &redis.url(), "--epochs", &good.url()]);
    assert_eq!((code, complaints(&found)), (Some(0), vec!["persistence".to_owned()]), "{found:#}");
    assert_eq!(found["guarantee"], "fenced");
    for topic in ["epochs", "epochs-fsync", "epochs-commit", "epochs-standby"] {
        assert_eq!(levels(&found, topic), ["ok"], "{topic}: {found:#}");
    }
    let forgetful = Postgres::start_with(&["-c", "fsync=off"]);
    let (code, found) = report(&["--store", &redis.url(), "--epochs", &forgetful.url()]);
    assert_eq!((code, levels(&found, "epochs-fsync")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    assert_eq!(found["guarantee"], "best-effort");
    let nowhere = "postgres://ada:hunter2@127.0.0.1:1/app";
    let (code, found) = report(&["--store", &redis.url(), "--epochs", nowhere]);
    assert_eq!((code, levels(&found, "epochs")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");
}

#[test]
fn locks_in_postgres_are_fenced_if_it_forgets_nothing_and_its_user_may_lock() {
    let good = Postgres::start();
    let url = good.url();
    let (code, found) = report(&["--store", &url]);
    assert_eq!((code, complaints(&found)), (Some(0), vec![]), "{found:#}");
    assert_eq!((&found["store"], &found["guarantee"]), (&"postgres".into(), &"fenced".into()));
    for topic in ["reachable", "encryption", "fsync", "commit", "standby"] {
        assert_eq!(levels(&found, topic), ["ok"], "{topic}: {found:#}");
    }
    // Somebody who may connect and no more, before and after the tables are there.
    sql(&good, "CREATE ROLE visitor LOGIN");
    let visitor = url.replace("postgres@", "visitor@");
    let (code, found) = report(&["--store", &visitor]);
    assert_eq!((code, levels(&found, "rights")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    let acquire = |url: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["lock", "acquire", "x", "--ttl", "1s", "--store", url]).output().unwrap().status.code()
    };
    assert_eq!((acquire(&visitor), acquire(&url), acquire(&visitor)), (Some(96), Some(0), Some(96)));
    let (_, found) = report(&["--store", &visitor]);
    assert_eq!(levels(&found, "rights"), ["problem"], "{found:#}");

    let forgetful = Postgres::start_with(&["-c", "fsync=off"]);
    let (code, found) = report(&["--store", &forgetful.url()]);
    assert_eq!((code, levels(&found, "fsync")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    assert_eq!(found["guarantee"], "best-effort");
    let (code, found) = report(&["--store", "postgres://ada:hunter2@127.0.0.1:1/app"]);
    assert_eq!((code, levels(&found, "reachable")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");
}

#[test]
fn a_clock_that_is_wrong_is_said_to_be() {
    let clock = ClockShift::new();
    let redis = RedisServer::options().clock(&clock).start();
    for (offset_ms, level, word) in
        [(0, "ok", ""), (3_600_000, "warning", "ahead of"), (-3_600_000, "warning", "behind"), (0, "ok", "")]
    {
        clock.set_ms(offset_ms);
        let (code, found) = report(&["--store", &redis.url()]);
        assert_eq!((code, levels(&found, "clock")), (Some(0), vec![level.to_owned()]), "{found:#}");
        assert!(found.to_string().contains(word), "{found:#}");
    }
}

#[test]
fn a_cluster_is_looked_at_node_by_node() {
    let mut cluster = RedisCluster::start();
    let url = cluster.url();
    let (code, found) = report(&["--store", &url]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(levels(&found, "cluster"), ["ok"], "{found:#}");
    assert_eq!(levels(&found, "takeover"), ["ok"; 3], "{found:#}");
    assert_eq!(levels(&found, "eviction"), ["ok"; 3], "{found:#}");
    assert_eq!(complaints(&found), ["replicas"; 3], "{found:#}");
    let one = cluster.server(cluster.master_of("x")).url();
    let (code, found) = report(&["--store", &one]);
    assert_eq!((code, levels(&found, "mode")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    let _new_master = cluster.kill_master("x");
    let (_, found) = report(&["--store", &url]);
    assert!(levels(&found, "takeover").contains(&"warning".to_owned()), "{found:#}");
}

#[test]
fn a_cluster_that_grants_without_one_of_its_masters_is_not_called_out_of_reach() {
    // Nobody takes over from it so soon.
    let mut cluster = RedisCluster::options().args(&["--cluster-node-timeout", "60000"]).start();
    let url = cluster.url();
    let silent = cluster.master_of("x");
    cluster.server_mut(silent).pause();
    let (code, found) = report(&["--store", &url]);
    assert_eq!((code, levels(&found, "reachable")), (Some(1), vec!["problem".to_owned()]), "{found:#}");
    assert_eq!(found["reachable"], true, "{found:#}");
}

#[test]
fn a_redlock_set_is_looked_at_as_a_set() {
    let mut servers = independent(3);
    let url = redlock(&servers);
    let (code, found) = report(&["--store", &url]);
    assert_eq!((code, complaints(&found)), (Some(0), vec!["standing".to_owned(); 3]), "{found:#}");
    let acquired = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["lock", "acquire", "x", "--ttl", "1s", "--store", &url])
        .output()
        .unwrap();
    assert!(acquired.status.success(), "{acquired:?}");
    let (code, found) = report(&["--store", &url]);
    assert_eq!((code, complaints(&found)), (Some(0), vec![]), "{found:#}");
    assert_eq!(found["guarantee"], "fenced");

    let port = servers[0].port();
    let twice = format!("redlock://127.0.0.1:{port},localhost:{port},{}", servers[1].address());
    assert_eq!(levels(&report(&["--store", &twice]).1, "distinct"), ["problem"]);
    let two = redlock(&servers[..2]);
    let (code, found) = report(&["--store", &two]);
    assert_eq!((code, levels(&found, "members")), (Some(1), vec!["problem".to_owned(); 2]), "{found:#}");
    assert_eq!(levels(&found, "set"), ["warning"], "{found:#}");

    let _: u32 = servers[2].command(&["HSET", "leasehold:redlock", "status", "stale"]);
    servers[0].kill9();
    let (code, found) = report(&["--store", &url]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(levels(&found, "standing"), ["ok", "warning"], "{found:#}");
    assert_eq!(levels(&found, "reachable"), ["warning"], "{found:#}");
    servers[1].kill9();
    let (code, found) = report(&["--store", &url]);
    assert_eq!((code, levels(&found, "quorum")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
}

#[test]
fn a_file_is_judged_by_where_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("locks.db").display());
    let (code, found) = report(&["--store", &store]);
    assert_eq!((code, levels(&found, "file")), (Some(0), vec!["ok".to_owned()]), "{found:#}");
    let ran = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["run", "--lock", "x", "--store", &store, "--", "true"])
        .status();
    assert!(ran.unwrap().success());
    let (code, found) = report(&["--store", &store]);
    assert_eq!((code, levels(&found, "journal")), (Some(0), vec!["ok".to_owned()]), "{found:#}");
    assert_eq!(found["guarantee"], "fenced");

    let memory = report(&["--store", "sqlite:/dev/shm/leasehold-doctor-locks.db"]).1;
    assert_eq!(levels(&memory, "file-system"), ["warning"], "{memory:#}");
    assert_eq!(levels(&memory, "rights"), ["warning"], "{memory:#}");
    let broken = folder.path().join("broken.db");
    std::fs::write(&broken, "this is no database, whatever its name says").unwrap();
    let (code, found) = report(&["--store", &format!("sqlite:{}", broken.display())]);
    assert_eq!((code, levels(&found, "file")), (Some(2), vec!["problem".to_owned()]), "{found:#}");
    assert_eq!(report(&["--store", "sqlite:/no/such/folder/x.db"]).0, Some(2));
}

#[test]
fn nobody_there_is_told_apart_from_a_url_that_makes_no_sense() {
    let (code, found) = report(&["--store", "redis://:hunter2@127.0.0.1:1"]);
    assert_eq!((code, &found["reachable"]), (Some(2), &Value::Bool(false)), "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");
    assert_eq!(doctor(&["--store", "nonsense://x"]).status.code(), Some(96));
}

/// Starts a server on the ledger and ends it, so that the tables are there.
fn make_tables(ledger: &Postgres) {
    let launch = Launch::without_file(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let launch = launch.args(&["--ledger", &ledger.url()]);
    launch.variable("LEASEHOLD_SECRET_KEY", &"5eed".repeat(16)).start().kill9();
}

fn text_of(report: &Value, topic: &str) -> String {
    let mut findings = report["findings"].as_array().unwrap().iter();
    let finding = findings.find(|finding| finding["topic"] == topic);
    finding.unwrap_or_else(|| panic!("nothing about {topic}: {report:#}"))["text"].to_string()
}

#[test]
fn a_deployment_that_is_set_up_well_has_a_ledger_that_decides_and_a_gate_that_may_forget() {
    let ledger = Postgres::start();
    let mut redis = RedisCluster::options().persistence(Persistence::None).start();
    let gate = redis.url();
    let url = ledger.url();
    let deployment = ["--ledger", &url, "--gate", &gate];
    let (code, found) = report(&deployment);
    // One machine and no more: the one thing that is said against it. How far it is depends on what else runs.
    let complaints: Vec<String> =
        complaints(&found).into_iter().filter(|it| it != "ledger-distance").collect();
    assert_eq!((code, complaints), (Some(0), vec!["ledger-standby".to_owned()]), "{found:#}");
    assert!(text_of(&found, "ledger-migrations").contains("no tables yet"), "{found:#}");
    for topic in ["reachable", "encryption", "fsync", "full-page-writes", "commit", "connections", "clock"] {
        assert_eq!(levels(&found, &format!("ledger-{topic}")), ["ok"], "{topic}: {found:#}");
    }
    for topic in ["reachable", "takeover", "eviction", "persistence", "rights"] {
        assert_eq!(levels(&found, &format!("gate-{topic}")), ["ok"; 3], "{topic}: {found:#}");
    }
    make_tables(&ledger);
    let (_, found) = report(&deployment);
    assert!(text_of(&found, "ledger-migrations").contains("up to date"), "{found:#}");
    assert_eq!(
        (levels(&found, "ledger-rights"), levels(&found, "ledger-epoch")),
        (vec!["ok".into()], vec!["ok".into()])
    );

    let _new_master = redis.kill_master("x");
    let (code, found) = report(&deployment);
    assert_eq!(code, Some(0), "{found:#}");
    assert!(levels(&found, "gate-takeover").contains(&"warning".to_owned()), "{found:#}");
    let text = doctor(&deployment);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.trim_end().lines().last().unwrap().contains("rests on the ledger alone"), "{text}");
}

#[test]
fn a_ledger_that_is_set_up_badly_is_told_so_in_each_way() {
    let settings = ["fsync=off", "full_page_writes=off", "autovacuum=off", "max_connections=12"];
    let settings: Vec<&str> = settings.iter().flat_map(|&setting| ["-c", setting]).collect();
    let bad = Postgres::start_with(&settings);
    let (code, found) = report(&["--ledger", &bad.url()]);
    assert_eq!(code, Some(1), "{found:#}");
    for (topic, level) in [
        ("fsync", "problem"),
        ("full-page-writes", "problem"),
        ("autovacuum", "warning"),
        ("connections", "warning"),
        ("standby", "warning"),
    ] {
        assert_eq!(levels(&found, &format!("ledger-{topic}")), [level], "{topic}: {found:#}");
    }
    assert_eq!(levels(&found, "gate"), ["ok"], "one can do without: {found:#}");

    let ledger = Postgres::start();
    sql(&ledger, "CREATE ROLE visitor LOGIN");
    let visitor = ledger.url().replace("postgres@", "visitor@");
    let (code, found) = report(&["--ledger", &visitor]);
    assert_eq!((code, levels(&found, "ledger-migrations")), (Some(1), vec!["problem".into()]), "{found:#}");
    assert!(text_of(&found, "ledger-standby").contains("may not see"), "{found:#}");
    make_tables(&ledger);
    let (code, found) = report(&["--ledger", &visitor]);
    assert_eq!((code, levels(&found, "ledger-rights")), (Some(1), vec!["problem".into()]), "{found:#}");
    sql(&ledger, "GRANT USAGE ON SCHEMA leasehold TO visitor");
    sql(&ledger, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO visitor");
    let (code, found) = report(&["--ledger", &visitor]);
    assert_eq!((code, levels(&found, "ledger-rights")), (Some(0), vec!["ok".into()]), "{found:#}");

    // From here on no commit ends, and one that is newer than this program was here.
    sql(&ledger, "INSERT INTO leasehold.migrations (number, name) VALUES (999, 'later')");
    sql(&ledger, "ALTER SYSTEM SET synchronous_standby_names = 'ghost'");
    sql(&ledger, "SELECT pg_reload_conf()");
    wait_until("the setting is read", || {
        let (_, found) = report(&["--ledger", &ledger.url()]);
        assert_eq!(levels(&found, "ledger-migrations"), ["problem"], "{found:#}");
        levels(&found, "ledger-standby") == ["problem"]
    });
}

#[test]
fn a_gate_that_does_not_work_is_no_danger_and_a_ledger_that_does_not_answer_is() {
    let ledger = Postgres::start();
    let url = ledger.url();
    let redis =
        RedisServer::options().args(&["--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru"]).start();
    let (code, found) = report(&["--ledger", &url, "--gate", &redis.url()]);
    assert_eq!((code, levels(&found, "gate-eviction")), (Some(0), vec!["warning".into()]), "{found:#}");
    assert_eq!(levels(&found, "gate-persistence"), ["warning"], "appendfsync always: {found:#}");
    for (rules, code, level) in [
        (["~leasehold:gate:*", "+@all"], 0, "ok"),
        (["~lock:*", "+@all"], 1, "problem"),
        (["~leasehold:gate:*", "-eval"], 1, "problem"),
    ] {
        let user = ["ACL", "SETUSER", "shop", "on", ">hunter2", "resetkeys", "&*"];
        let () = redis.command(&[&user[..], &rules].concat());
        let shop = format!("redis://shop:hunter2@{}", redis.address());
        let (status, found) = report(&["--ledger", &url, "--gate", &shop]);
        assert_eq!(
            (status, levels(&found, "gate-rights")),
            (Some(code), vec![level.into()]),
            "{rules:?}: {found:#}"
        );
    }
    let as_cluster = format!("redis-cluster://{}", redis.address());
    let (code, found) = report(&["--ledger", &url, "--gate", &as_cluster]);
    assert_eq!((code, levels(&found, "gate-mode")), (Some(1), vec!["problem".into()]), "{found:#}");

    let (code, found) = report(&["--ledger", &url, "--gate", "redis://:hunter2@127.0.0.1:1"]);
    assert_eq!((code, levels(&found, "gate-reachable")), (Some(1), vec!["problem".into()]), "{found:#}");
    assert!(found["verdict"].as_str().unwrap().contains("rests on the ledger"), "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");
    let nowhere = "postgres://ada:hunter2@127.0.0.1:1/shop";
    let (code, found) = report(&["--ledger", nowhere, "--gate", &redis.url()]);
    assert_eq!((code, levels(&found, "ledger-reachable")), (Some(2), vec!["problem".into()]), "{found:#}");
    assert!(!found.to_string().contains("hunter2"), "{found:#}");

    for args in [
        &["--gate", "redis://127.0.0.1"][..],
        &["--ledger", &url, "--gate", "redlock://a,b,c"],
        &["--ledger", "nonsense://x"],
        &["--ledger", &url, "--store", "memory:"],
    ] {
        assert_eq!(doctor(args).status.code(), Some(96), "{args:?}");
    }
}
