//! `leasehold demo --cluster`: three replicas of the server behind one address, on PostgreSQL and a Redis Cluster.
//!
//! Everything runs on this machine, from installed packages, in a folder that goes at the end. All programs are
//! children of this process and end with it, also when it is killed.

mod child;
mod forward;
mod packages;
mod ports;
mod postgres;
mod redis;
mod replica;

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) use self::replica::{ReplicaArgs, serve as serve_replica};

use self::forward::Reserved;
use self::packages::Programs;
use self::postgres::Postgres;
use self::redis::{Node, RedisCluster};
use self::replica::{Common, Replica};
use crate::crowd::Crowd;
use crate::demo;

const REPLICAS: usize = 3;

/// All that runs. The replicas go first, and the folder last.
struct Deployment {
    replicas: Vec<Replica>,
    postgres: Postgres,
    redis: RedisCluster,
    folder: TempDir,
}

/// Runs it until it is told to stop.
pub(crate) async fn run(
    listen: SocketAddr,
    crowd: u32,
    log: &str,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let programs = Programs::find()?;
    let front = Reserved::new(listen)
        .context("the demo did not start; is another one running? Choose another port with --listen")?;
    let address = front.address;
    println!("starting a Redis Cluster of six servers, PostgreSQL and {REPLICAS} replicas of the server ...");
    let deployment = tokio::select! {
        started = Deployment::start(&programs, address, log) => started?,
        () = stop.cancelled() => return Ok(ExitCode::SUCCESS),
    };
    let url = format!("http://{address}");
    let forwarder = front.open(deployment.replicas.iter().map(|replica| replica.address).collect())?;
    let event = demo::open_venue(&url).await?;
    println!("\n{}", deployment.described(&url));
    demo::print_welcome(&url, crowd);
    let crowd = Crowd::start(&url, &event, crowd, &stop);
    stop.cancelled().await;
    drop(forwarder);
    crowd.ended().await;
    deployment.stop().await;
    println!("\nstopped");
    Ok(ExitCode::SUCCESS)
}

impl Deployment {
    async fn start(programs: &Programs, front: SocketAddr, log: &str) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-demo-").tempdir()?;
        let password = secret()?;
        let redis = RedisCluster::start(programs, folder.path(), &password).await?;
        let postgres = Postgres::start(programs, folder.path(), &password).await?;
        let common = Common {
            ledger: postgres.url(),
            gate: redis.url(),
            key: secret()?,
            front,
            log,
            folder: folder.path(),
        };
        // All at once, as after a power cut: one makes the tables and the others wait.
        let replicas: anyhow::Result<Vec<Replica>> = (0..REPLICAS).map(|_| Replica::start(&common)).collect();
        let mut replicas = replicas?;
        for replica in &mut replicas {
            replica.ready().await?;
        }
        Ok(Self { replicas, postgres, redis, folder })
    }

    /// What runs where, and what to do to it.
    fn described(&self, url: &str) -> String {
        let mut text =
            format!("Behind {url}, each connection goes to the next of these; the console is one's own:\n\n");
        for replica in &self.replicas {
            line(&mut text, "replica", &format!("http://{}", replica.address), replica.pid());
        }
        text.push_str(
            "\nThey share the ledger, which decides, and the gate, which turns away who comes too late:\n\n",
        );
        line(&mut text, "PostgreSQL", &self.postgres.address(), self.postgres.pid());
        for node in self.redis.nodes() {
            let name = if node.is_master() { "Redis master" } else { "Redis copy" };
            line(&mut text, name, &node.address(), node.pid());
        }
        let first = |nodes: &[Node]| nodes.iter().find(|node| node.is_master()).map_or(0, Node::pid);
        let all: Vec<String> = self.redis.nodes().iter().map(|node| node.pid().to_string()).collect();
        let _ = write!(
            text,
            "
Logs are in {}. Things to try in another terminal, while it sells:

  kill -9 {}    # a replica: the others go on, and nothing that was acknowledged is lost
  kill -9 {}    # a master of Redis: its copy takes over after some seconds
  kill -9 {}    # all of Redis: everything goes straight to PostgreSQL
  cargo run --release -- doctor --ledger {ledger} --gate {gate}
  cargo run --release -- check {ledger}
  kill -9 {postgres}    # PostgreSQL, last of all: 503 with Retry-After, and availability goes on from memory
",
            self.folder.path().display(),
            self.replicas.first().map_or(0, Replica::pid),
            first(self.redis.nodes()),
            all.join(" "),
            postgres = self.postgres.pid(),
            ledger = self.postgres.url(),
            gate = self.redis.url(),
        );
        text
    }

    /// Ends everything in its order: whoever asks before whoever answers.
    async fn stop(self) {
        for replica in self.replicas {
            replica.stop().await;
        }
        self.postgres.stop().await;
        self.redis.stop().await;
    }
}

fn line(text: &mut String, name: &str, address: &str, pid: u32) {
    let _ = writeln!(text, "  {name:<12}  {address:<24}  pid {pid}");
}

/// 64 hexadecimal digits that nobody knows.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
