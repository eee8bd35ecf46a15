//! The demonstration's Redis Cluster: three masters with a copy each, that keep nothing on disk.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use tokio::net::TcpStream;

use super::child::{Child, tied_to_us};
use super::packages::Programs;
use super::ports;

const NODES: usize = 6;
/// How long the nodes may take to agree.
const AGREE_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A running cluster.
pub(super) struct RedisCluster {
    nodes: Vec<Node>,
    password: String,
}

/// One of its servers.
pub(super) struct Node {
    child: Child,
    port: u16,
    is_master: bool,
}

impl RedisCluster {
    /// Starts six servers in `folder` and makes them a cluster.
    pub(super) async fn start(programs: &Programs, folder: &Path, password: &str) -> anyhow::Result<Self> {
        let ports: [u16; 2 * NODES] = ports::free()?;
        let mut nodes = Vec::with_capacity(NODES);
        for pair in ports.chunks_exact(2) {
            let (port, bus_port) = (pair[0], pair[1]);
            let settings = settings(folder, port, bus_port, password)?;
            let mut command = tied_to_us(&programs.redis_server, None);
            command.arg(settings).current_dir(folder);
            let child = Child::start("a Redis server", command, folder.join(format!("redis-{port}.log")))?;
            nodes.push(Node { child, port, is_master: false });
        }
        for node in &mut nodes {
            let address = SocketAddr::from(([127, 0, 0, 1], node.port));
            node.child.ready(async || TcpStream::connect(address).await.is_ok()).await?;
        }
        let mut cluster = Self { nodes, password: password.to_owned() };
        cluster.join(programs, &ports).await?;
        Ok(cluster)
    }

    pub(super) fn url(&self) -> String {
        let addresses: Vec<String> = self.nodes.iter().map(Node::address).collect();
        format!("redis-cluster://:{}@{}", self.password, addresses.join(","))
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Ends all of it.
    pub(super) async fn stop(self) {
        for node in self.nodes {
            node.child.stop(Signal::TERM).await;
        }
    }

    async fn join(&mut self, programs: &Programs, ports: &[u16]) -> anyhow::Result<()> {
        let mut words: Vec<String> = ["--cluster", "create"].map(str::to_owned).to_vec();
        // The port of a node's talk with the others stands after the @.
        words.extend(ports.chunks_exact(2).map(|pair| format!("127.0.0.1:{}@{}", pair[0], pair[1])));
        words.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
        self.ask(programs, &words).await?;
        let deadline = Instant::now() + AGREE_TIME_MAX;
        while !self.is_whole(programs).await? {
            if Instant::now() >= deadline {
                bail!("the Redis Cluster was not whole within {AGREE_TIME_MAX:?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Whether every node knows that every slot has a master, and every copy is in step; notes who is a master.
    async fn is_whole(&mut self, programs: &Programs) -> anyhow::Result<bool> {
        let mut is_whole = true;
        for index in 0..self.nodes.len() {
            let port = self.nodes[index].port.to_string();
            let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
            let state = self.ask(programs, &words(&["-p", &port, "CLUSTER", "INFO"])).await?;
            let role = self.ask(programs, &words(&["-p", &port, "INFO", "replication"])).await?;
            self.nodes[index].is_master = role.contains("role:master");
            is_whole &= state.contains("cluster_state:ok")
                && (role.contains("state=online") || role.contains("master_link_status:up"));
        }
        Ok(is_whole)
    }

    async fn ask(&self, programs: &Programs, words: &[String]) -> anyhow::Result<String> {
        let mut command = tied_to_us(&programs.redis_cli, None);
        command.args(words).env("REDISCLI_AUTH", &self.password);
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await;
        let output = output.context("cannot run redis-cli")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("redis-cli {}: {}\n{said}", words.join(" "), output.status);
        }
        Ok(said)
    }
}

impl Node {
    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn is_master(&self) -> bool {
        self.is_master
    }
}

/// Writes a node's settings to a file: a password among the arguments could be read by everybody.
fn settings(folder: &Path, port: u16, bus_port: u16, password: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("redis-{port}.conf"));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
    write!(
        file,
        "bind 127.0.0.1
port {port}
cluster-enabled yes
cluster-port {bus_port}
cluster-config-file redis-{port}.nodes
cluster-announce-ip 127.0.0.1
cluster-node-timeout 2000
requirepass {password}
masterauth {password}
dir \"{}\"
dbfilename redis-{port}.rdb
save \"\"
appendonly no
repl-diskless-sync-delay 0
",
        folder.display()
    )?;
    Ok(path)
}
