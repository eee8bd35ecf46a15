//! Locks on Redis: acquire and release beside raw commands and other libraries, on the same server, in turns.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use leasehold_lock::backend::{Backend, Order, Request};
use leasehold_lock::{Acquired, Epochs, LockName, Locker, Names, Owner, Redis, Settings, Ttl};
use leasehold_testkit::servers::{Persistence, Postgres, RedisServer};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo, Script};

use crate::Bench;
use crate::load::{Clients, Loaded};
use crate::table::{Aim, Table};

const TASKS: [usize; 3] = [1, 50, 500];
/// The number of them for which there is an aim beside rslock.
const RSLOCK_TASKS: usize = 50;
const TTL: Duration = Duration::from_secs(10);
/// Guards that do nothing but be renewed.
const IDLE_GUARDS: usize = 10_000;
const IDLE_TTL: Duration = Duration::from_secs(30);

/// What is measured, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Raw,
    Lease,
    Fenced,
    Rslock,
}

const CONTENDERS: [Contender; 4] = [Contender::Raw, Contender::Lease, Contender::Fenced, Contender::Rslock];

struct Setup {
    redis: RedisServer,
    raw: MultiplexedConnection,
    lease: Locker,
    fenced: Locker,
    rslock: rslock::LockManager,
    _postgres: Postgres,
}

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    // Short and many: the machine's speed changes within seconds, and so does on which cores client and server are.
    let (rounds, duration) = (if bench.quick { 3 } else { 33 }, Duration::from_millis(333));
    let setup = Setup::new().await?;
    for contender in CONTENDERS {
        // What the first turns cost (connections, scripts, epochs) is not of interest.
        setup.run(contender, 1, duration).await?;
    }
    for tasks in TASKS {
        let mut results: [Vec<f64>; 4] = Default::default();
        for _ in 0..rounds {
            for (contender, results) in CONTENDERS.into_iter().zip(&mut results) {
                results.push(setup.run(contender, tasks, duration).await?.per_second());
            }
        }
        let [raw, lease, fenced, rslock] = results.map(median);
        let row = |kind: &str| format!("{kind}: acquire and release on Redis, {tasks} tasks");
        let raw_shown = format!("raw SET NX and EVALSHA {raw:.0}/s");
        table.ratio(
            &row("lease"),
            format!("{lease:.0}/s"),
            raw_shown.clone(),
            lease / raw,
            Aim::AtLeast(0.9),
        );
        table.ratio(&row("fenced"), format!("{fenced:.0}/s"), raw_shown, fenced / raw, Aim::AtLeast(0.5));
        let rslock_shown = format!("rslock {rslock:.0}/s");
        if tasks == RSLOCK_TASKS {
            table.ratio(
                &row("lease"),
                format!("{lease:.0}/s"),
                rslock_shown,
                lease / rslock,
                Aim::AtLeast(3.0),
            );
        } else {
            println!("beside {rslock_shown} with {tasks} tasks, a lease has {:.3}", lease / rslock);
        }
    }
    let duration = Duration::from_secs(4);
    let lease = setup.run(Contender::Lease, 50, duration).await?.per_second();
    for (peer, per_second) in [
        ("node-redlock", node_redlock(bench, &setup.redis, duration)?),
        ("redis-py", redis_py(bench, &setup.redis, duration)?),
    ] {
        let work = "lease: acquire and release on Redis, 50 tasks";
        let shown = format!("{peer} {per_second:.0}/s");
        table.ratio(work, format!("{lease:.0}/s"), shown, lease / per_second, Aim::AtLeast(1.0));
    }
    woken(bench, &setup, table).await?;
    idle_guards(bench, &setup, table).await
}

impl Setup {
    async fn new() -> anyhow::Result<Self> {
        let redis = RedisServer::options().persistence(Persistence::None).start();
        let postgres = Postgres::start();
        let locker = |store: Redis| {
            let store: Arc<dyn Backend> = Arc::new(store);
            Locker::with_settings(store, Settings::default())
        };
        let lease = locker(Redis::open(&redis.url())?);
        let fenced = locker(Redis::open(&redis.url())?.with_epochs(Epochs::open(&postgres.url())?));
        let info = redis.url().into_connection_info()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let raw = Client::open(info)?.get_multiplexed_async_connection().await?;
        let rslock = rslock::LockManager::new(vec![redis.url()]);
        Ok(Self { redis, raw, lease, fenced, rslock, _postgres: postgres })
    }

    /// Tasks that each acquire and release a name of their own, again and again.
    async fn run(&self, contender: Contender, tasks: usize, duration: Duration) -> anyhow::Result<Loaded> {
        let mut clients = Clients::default();
        let release = Arc::new(Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
        ));
        release.prepare_invoke().load_async(&mut self.raw.clone()).await?;
        for task in 0..tasks {
            let name = format!("bench:{contender:?}:{task}");
            match contender {
                Contender::Raw => {
                    let (mut raw, release) = (self.raw.clone(), release.clone());
                    clients.add(|turns| async move {
                        while turns.go_on() {
                            let token = uuid::Uuid::new_v4().simple().to_string();
                            let mut set = redis::cmd("SET");
                            set.arg(&name).arg(&token).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
                            let taken: Option<String> = set.query_async(&mut raw).await?;
                            ensure!(taken.is_some(), "nobody else has it");
                            let released: u8 = release.key(&name).arg(&token).invoke_async(&mut raw).await?;
                            ensure!(released == 1, "it was released");
                            turns.done();
                        }
                        Ok(())
                    });
                }
                Contender::Lease | Contender::Fenced => {
                    let locker =
                        if contender == Contender::Lease { &self.lease } else { &self.fenced }.clone();
                    clients.add(|turns| async move {
                        while turns.go_on() {
                            let acquired = locker.acquire(&name).ttl(TTL).await?;
                            let Acquired::Granted(guard) = acquired else { bail!("nobody else has it") };
                            ensure!(guard.fence().is_some() == (contender == Contender::Fenced));
                            guard.release().await?;
                            turns.done();
                        }
                        Ok(())
                    });
                }
                Contender::Rslock => {
                    let rslock = self.rslock.clone();
                    clients.add(|turns| async move {
                        while turns.go_on() {
                            let lock = rslock.lock(name.as_bytes(), TTL).await.context("rslock")?;
                            rslock.unlock(&lock).await;
                            turns.done();
                        }
                        Ok(())
                    });
                }
            }
        }
        clients.run_for(duration).await
    }
}

/// From the moment a holder asks for the release to the moment a waiter is awake, in round trips; and until it has the lock,
/// for which it must ask once more.
async fn woken(bench: &Bench, setup: &Setup, table: &mut Table) -> anyhow::Result<()> {
    let turns = if bench.quick { 50 } else { 500 };
    let (mut awake, mut granted, mut round_trips) = (Vec::new(), Vec::new(), Vec::new());
    let store: Arc<dyn Backend> = Arc::new(Redis::open(&setup.redis.url())?);
    let waiter = Locker::with_settings(Arc::clone(&store), Settings::default());
    let (name, names) = (LockName::parse("bench:wake")?, Names::try_from("bench:wake")?);
    let (owner, ttl) = (Owner::random(None), Ttl::new(TTL)?);
    let listener = Request { names: &names, owner: &owner, ttl, order: Order::Any };
    let pause = Duration::from_millis(5);
    for _ in 0..turns {
        // Whoever waits is asleep, and so is whoever is asked here.
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        redis::cmd("PING").exec_async(&mut setup.raw.clone()).await?;
        round_trips.push(began.elapsed().as_secs_f64());

        let guard = setup.lease.acquire("bench:wake").await?.granted().context("free")?;
        let mut watch = store.watch(&listener, &name).await?;
        let waking = tokio::spawn(async move {
            watch.rung().await;
            watch.settle();
            Instant::now()
        });
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        guard.release().await?;
        awake.push((waking.await? - began).as_secs_f64());

        let guard = setup.lease.acquire("bench:wake").await?.granted().context("free")?;
        let acquire = waiter.acquire("bench:wake").wait(TTL);
        let waiting = tokio::spawn(async move { (acquire.await, Instant::now()) });
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        guard.release().await?;
        let (next, at) = waiting.await?;
        granted.push((at - began).as_secs_f64());
        next?.granted().context("released")?.release().await?;
    }
    let [awake, granted, round_trip] = [awake, granted, round_trips].map(median);
    table.ratio(
        "from the release to the waiter's waking, in round trips (median)",
        format!("{:.0} us, and {:.0} us until it has the lock", awake * 1e6, granted * 1e6),
        format!("PING {:.0} us", round_trip * 1e6),
        awake / round_trip,
        Aim::AtMost(2.0),
    );
    Ok(())
}

/// What holding many locks costs this process when nothing else happens.
async fn idle_guards(bench: &Bench, setup: &Setup, table: &mut Table) -> anyhow::Result<()> {
    let duration = Duration::from_secs(if bench.quick { 10 } else { 30 });
    let mut guards = Vec::with_capacity(IDLE_GUARDS);
    for number in 0..IDLE_GUARDS {
        let acquired = setup.lease.acquire(format!("idle:{number}")).ttl(IDLE_TTL).await?;
        guards.push(acquired.granted().context("free")?);
    }
    let (began, before) = (Instant::now(), cpu_time());
    tokio::time::sleep(duration).await;
    let used = (cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    for guard in &guards {
        guard.check().context("an idle guard was lost")?;
    }
    drop(guards);
    setup.lease.settle(Duration::from_secs(30)).await;
    let work = format!("{IDLE_GUARDS} idle guards of {} s: processor time of one core", IDLE_TTL.as_secs());
    table.figure(&work, used * 100.0, "%", Aim::AtMost(3.0));
    Ok(())
}

fn cpu_time() -> Duration {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(usage.tv_sec.unsigned_abs(), u32::try_from(usage.tv_nsec).unwrap_or_default())
}

/// The real node-redlock, installed beside the benchmark's data.
fn node_redlock(bench: &Bench, redis: &RedisServer, duration: Duration) -> anyhow::Result<f64> {
    let folder = std::path::absolute(&bench.folder)?.join("node");
    if !folder.join("node_modules/redlock").exists() {
        std::fs::create_dir_all(&folder)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        done(npm.args(["redlock@5.0.0-beta.2", "ioredis@5"]), "npm install of node-redlock")?;
    }
    let script = Path::new("bench/locks/node_redlock.js");
    std::fs::copy(script, folder.join("bench.js")).context("run this from the repository's root")?;
    let mut node = Command::new("node");
    node.arg(folder.join("bench.js"));
    per_second(&mut node, redis, duration)
}

/// The real redis-py, in an environment of its own.
fn redis_py(bench: &Bench, redis: &RedisServer, duration: Duration) -> anyhow::Result<f64> {
    let folder = std::path::absolute(&bench.folder)?.join("python");
    let python = folder.join("bin/python");
    if !python.exists() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&folder), "python3 -m venv")?;
        done(Command::new(&python).args(["-m", "pip", "install", "--quiet", "redis"]), "pip install redis")?;
    }
    let mut command = Command::new(&python);
    command.arg("bench/locks/redis_py.py");
    per_second(&mut command, redis, duration)
}

/// Runs a peer's script, which prints how many pairs a second it made.
fn per_second(command: &mut Command, redis: &RedisServer, duration: Duration) -> anyhow::Result<f64> {
    let (port, seconds) = (redis.port().to_string(), duration.as_secs().to_string());
    let output = command.args([port.as_str(), "50", &seconds]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text.trim().parse().with_context(|| format!("{command:?} printed {text}"))
}

fn done(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("{what} cannot be run"))?;
    ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
