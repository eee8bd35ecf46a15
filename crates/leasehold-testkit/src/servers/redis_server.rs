//! One Redis server, or several that know nothing of each other.

use std::process::Command;
use std::time::Duration;

use redis::{Connection, FromRedisValue, RedisResult};
use rustix::process::Signal;

use super::authority::Certificate;
use super::clock::ClockShift;
use super::instance::{Instance, Place, Program};
use super::spawner;

/// How long a control command waits for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a control command waits for its answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// What a server still knows after it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Every write it has answered (`appendfsync always`).
    Always,
    /// Every write but perhaps the last seconds' (`appendfsync everysec`).
    EverySecond,
    /// Nothing.
    None,
}

/// How a Redis server is started.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    persistence: Persistence,
    args: Vec<String>,
    clock: Option<ClockShift>,
    is_cluster_node: bool,
    certificate: Option<Certificate>,
    password: Option<String>,
}

/// A Redis server. It is gone when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    instance: Instance,
    options: RedisOptions,
}

/// `count` servers that know nothing of each other, as Redlock wants them; each keeps every write it answered.
pub fn independent(count: usize) -> Vec<RedisServer> {
    RedisServer::options().start_independent(count)
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            persistence: Persistence::Always,
            args: Vec::new(),
            clock: None,
            is_cluster_node: false,
            certificate: None,
            password: None,
        }
    }
}

impl RedisOptions {
    /// The same with this promise about its writes; [`Persistence::Always`] if not called.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// The same with more arguments: `&["--maxmemory", "10mb"]`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// The same by this clock.
    pub fn clock(mut self, clock: &ClockShift) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// The same with TLS, on a port of its own; commands of the test go on using the other one.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.certificate = Some(certificate.clone());
        self
    }

    /// The same for those only who know this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Starts the server and waits until it answers; panics with its log when it does not.
    pub fn start(&self) -> RedisServer {
        RedisServer { instance: Instance::start(self.clone()), options: self.clone() }
    }

    /// Starts `count` servers that know nothing of each other.
    pub fn start_independent(&self, count: usize) -> Vec<RedisServer> {
        (0..count).map(|_| self.start()).collect()
    }

    fn url(&self, place: &Place) -> String {
        url(&place.address(), self.password.as_deref())
    }

    pub(crate) fn cluster_node(mut self) -> Self {
        self.is_cluster_node = true;
        self
    }
}

impl RedisServer {
    /// A server that keeps every write it has answered.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// For a server with something different.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        self.options.url(self.instance.place())
    }

    /// `127.0.0.1:port` where it speaks TLS.
    pub fn tls_address(&self) -> String {
        assert!(self.options.certificate.is_some(), "the server was started without TLS");
        format!("127.0.0.1:{}", self.instance.place().tls_port())
    }

    /// The port on which other servers find it.
    pub(crate) fn peer_port(&self) -> u16 {
        let place = self.instance.place();
        if self.options.certificate.is_some() { place.tls_port() } else { place.port() }
    }

    /// `127.0.0.1:port`, the same after a restart.
    pub fn address(&self) -> String {
        self.instance.place().address()
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.instance.place().port()
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.instance.pid()
    }

    /// A connection for control commands; panics when the server does not take it.
    pub fn connection(&self) -> Connection {
        connect(&self.url()).unwrap_or_else(|error| panic!("{error}\n{}", self.instance.log_tail()))
    }

    /// Runs one command on a connection of its own; panics when the answer is an error.
    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_command(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", self.instance.log_tail()))
    }

    /// The same, where an error is an answer too.
    pub fn try_command<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        try_command(&self.url(), words)
    }

    /// One value of `INFO`: `redis.info("replication", "role")`; empty when there is no such line.
    pub fn info(&self, section: &str, name: &str) -> String {
        let text: RedisResult<String> = self.try_command(&["INFO", section]);
        text.ok().and_then(|text| value_in(&text, name)).unwrap_or_default()
    }

    /// True from its start until it is killed or stopped; a paused one counts as running.
    pub fn is_running(&self) -> bool {
        self.instance.is_running()
    }

    /// Kills it without a word, as a power cut would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.instance.kill9();
    }

    /// Stops the world for it, and waits until every one of its threads stands still.
    pub fn pause(&mut self) {
        self.instance.pause();
    }

    /// Lets it go on after a pause.
    pub fn resume(&mut self) {
        self.instance.resume();
    }

    /// Asks it to end, and waits for it.
    pub fn stop(&mut self) {
        self.instance.stop();
    }

    /// Starts it again with its data, after it was killed or stopped.
    pub fn restart(&mut self) {
        self.instance.restart();
    }

    /// Starts it again without its data. A node of a cluster still knows who it is.
    pub fn restart_empty(&mut self) {
        self.instance.restart_empty();
    }

    pub(crate) fn log_tail(&self) -> String {
        self.instance.log_tail()
    }

    pub(crate) fn is_answering(&self) -> bool {
        self.instance.is_answering()
    }
}

impl Program for RedisOptions {
    fn prepare(&self, _place: &Place) {}

    fn command(&self, place: &Place) -> Command {
        let mut command = spawner::tied_to_us(&spawner::on_path("redis-server", "redis-server"), None);
        command.args(["--bind", "127.0.0.1", "--port", &place.port().to_string()]);
        command.arg("--dir").arg(place.data()).args(["--daemonize", "no", "--save", ""]);
        let (append_only, fsync) = match self.persistence {
            Persistence::Always => ("yes", "always"),
            Persistence::EverySecond => ("yes", "everysec"),
            Persistence::None => ("no", "no"),
        };
        command.args(["--appendonly", append_only, "--appendfsync", fsync]);
        // The default of 5 s only helps when many replicas come at once.
        command.args(["--repl-diskless-sync-delay", "0"]);
        if self.is_cluster_node {
            command.args(["--cluster-enabled", "yes", "--cluster-config-file"]);
            command.arg(place.folder().join("nodes.conf"));
        }
        if let Some(certificate) = &self.certificate {
            for (name, value) in certificate.redis_settings(place.tls_port()) {
                command.args([format!("--{name}"), value]);
            }
            // Sentinels have the settings above too, and do not know this one.
            command.args(["--tls-cluster", "yes"]);
        }
        if let Some(password) = &self.password {
            command.args(["--requirepass", password, "--masterauth", password]);
        }
        command.args(&self.args);
        if let Some(clock) = &self.clock {
            clock.set_for(&mut command);
        }
        command
    }

    fn is_ready(&self, place: &Place, pid: u32) -> bool {
        let info: RedisResult<String> = try_command(&self.url(place), &["INFO", "all"]);
        info.is_ok_and(|info| {
            value_in(&info, "process_id") == Some(pid.to_string())
                && value_in(&info, "loading").as_deref() == Some("0")
        })
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
}

/// `redis://:password@127.0.0.1:port`, or the same without a password.
pub(crate) fn url(address: &str, password: Option<&str>) -> String {
    let login = password.map(|password| format!(":{password}@")).unwrap_or_default();
    format!("redis://{login}{address}")
}

pub(crate) fn try_command<T: FromRedisValue>(url: &str, words: &[&str]) -> RedisResult<T> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command.query(&mut connect(url)?)
}

/// The value of the line `name:value`.
pub(crate) fn value_in(info: &str, name: &str) -> Option<String> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned())
}

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(CONNECT_TIME_MAX)?;
    connection.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    connection.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(connection)
}
