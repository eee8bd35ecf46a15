//! A client of another language as a child process, told what to do line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_testkit::servers::RedisServer;

use crate::install;

/// It is killed when this is dropped.
pub(crate) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn redis_py(url: &str) -> Self {
        let mut command = Command::new(install::redis_py());
        command.arg(script("redis_py_peer.py")).arg(url);
        Self::start(command)
    }

    pub(crate) fn node_redlock(servers: &[RedisServer]) -> Self {
        let modules = install::node_redlock().join("node_modules");
        let mut command = Command::new("node");
        command.arg(script("node_redlock_peer.js")).args(servers.iter().map(RedisServer::url));
        command.env("NODE_PATH", modules);
        Self::start(command)
    }

    fn start(mut command: Command) -> Self {
        let shown = format!("{command:?}");
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot run {shown}: {error}"));
        let stdin = child.stdin.take().expect("its input");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut peer = Self { child, stdin, stdout };
        let ready = peer.line();
        assert!(ready.starts_with("ready "), "{shown} said `{ready}`");
        println!("{shown}: {ready}");
        peer
    }

    pub(crate) fn acquire(&mut self, key: &str, ttl: Duration) -> String {
        self.ask(&format!("acquire {key} {}", ttl.as_millis()))
    }

    pub(crate) fn release(&mut self, key: &str) -> String {
        self.ask(&format!("release {key}"))
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.stdin, "{what}").expect("the peer listens");
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the peer answers");
        line.trim().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}
