//! Servers as processes of their own, so that their time on the processor can be told from the load's.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leasehold_engine::{ClusterEngine, ClusterOptions, EmbeddedEngine, EmbeddedOptions, Engine, SecretKey};
use leasehold_lock::{Locker, Memory};
use leasehold_server::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A server process, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn bare() -> anyhow::Result<Self> {
        Self::start(&["bare-server"])
    }

    pub(crate) fn leasehold(data: &Path) -> anyhow::Result<Self> {
        Self::start(&["leasehold-server", data.to_str().context("the path is UTF-8")?])
    }

    /// One of several on a ledger, behind a gate.
    pub(crate) fn replica(ledger: &str, gate: &str) -> anyhow::Result<Self> {
        Self::start(&["leasehold-replica", ledger, gate])
    }

    fn start(args: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).args(args).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("the child has a stdout")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the child said `{line}`"))?;
        Ok(Self { child, address })
    }

    /// Time on the processor so far, in user and system mode.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after_name = stat.rsplit_once(')').context("a stat line")?.1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        // The kernel counts in hundredths of a second on every Linux of today.
        Ok(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn serve_leasehold(data: &Path) -> anyhow::Result<()> {
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(data).on_fatal(|message| {
        eprintln!("{message}");
        std::process::exit(74);
    }))?;
    serve(engine).await
}

pub(crate) async fn serve_replica(ledger: &str, gate: &str) -> anyhow::Result<()> {
    let options = ClusterOptions::new(ledger, SecretKey::from_bytes([7; 32])).gate(gate);
    serve(ClusterEngine::open(options).await?).await
}

/// Serves an engine until it is killed, and prints its address first.
async fn serve(engine: impl Engine) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let (locker, config) = (Locker::new(Memory::new()), ServerConfig::default());
    leasehold_server::serve(listener, Arc::new(engine), locker, config, CancellationToken::new()).await;
    Ok(())
}
