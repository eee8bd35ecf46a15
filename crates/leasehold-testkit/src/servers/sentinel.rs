//! A Redis master with two replicas, watched by three Sentinels that agree on a new master when it is gone.

use std::process::Command;
use std::time::Duration;

use redis::RedisResult;
use rustix::process::Signal;

use super::authority::Certificate;
use super::instance::{Instance, Place, Program};
use super::redis_server::{RedisOptions, RedisServer, try_command, url, value_in};
use super::{spawner, wait};

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// How long the Sentinels may take to agree; a failover takes 2 to 4 seconds.
const AGREE_TIME_MAX: Duration = Duration::from_secs(40);
const MASTER_NAME: &str = "leasehold";
/// How often Sentinels tell of each other. They begin with a pause of this length, so it is short until they have met:
/// most of a start would be spent on it.
const TELL_EVERY_MS: &str = "2000";
const TELL_EVERY_AT_FIRST_MS: &str = "50";

/// How a master, its replicas and their Sentinels are started.
#[derive(Debug, Clone, Default)]
pub struct SentinelOptions {
    certificate: Option<Certificate>,
    server_password: Option<String>,
    sentinel_password: Option<String>,
}

/// Three Redis servers and three Sentinels. They are gone when this is dropped.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<Instance>,
    options: SentinelOptions,
}

#[derive(Debug)]
struct SentinelProgram {
    master_port: u16,
    options: SentinelOptions,
}

impl SentinelOptions {
    /// The same with TLS on all six, on ports of their own, and among them.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.certificate = Some(certificate.clone());
        self
    }

    /// The same with a password of the servers and another one of the Sentinels.
    pub fn passwords(mut self, servers: &str, sentinels: &str) -> Self {
        self.server_password = Some(servers.to_owned());
        self.sentinel_password = Some(sentinels.to_owned());
        self
    }

    /// Starts all six, and waits until every Sentinel knows the others and both replicas.
    pub fn start(&self) -> RedisSentinel {
        RedisSentinel::start_as(self.clone())
    }

    fn server(&self) -> RedisOptions {
        let mut server = RedisServer::options();
        if let Some(certificate) = &self.certificate {
            server = server.tls(certificate);
        }
        if let Some(password) = &self.server_password {
            server = server.password(password);
        }
        server
    }

    fn url(&self, place: &Place) -> String {
        url(&place.address(), self.sentinel_password.as_deref())
    }
}

impl RedisSentinel {
    /// Starts all six without TLS and passwords, and waits until every Sentinel knows the others and both replicas.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// For some with something different.
    pub fn options() -> SentinelOptions {
        SentinelOptions::default()
    }

    fn start_as(options: SentinelOptions) -> Self {
        let master = options.server().start();
        let master_port = master.peer_port();
        let replica = options.server().args(&["--replicaof", "127.0.0.1", &master_port.to_string()]);
        let mut servers = replica.start_independent(REPLICAS);
        servers.insert(0, master);
        wait::until(
            "both replicas are in step",
            AGREE_TIME_MAX,
            || servers[1..].iter().all(|replica| replica.info("replication", "master_link_status") == "up"),
            String::new,
        );
        let sentinel = || SentinelProgram { master_port, options: options.clone() };
        let sentinels = (0..SENTINELS).map(|_| Instance::start(sentinel())).collect();
        let this = Self { servers, sentinels, options };
        this.tell_every(TELL_EVERY_AT_FIRST_MS);
        this.wait_until("every Sentinel knows everybody", |this| {
            this.sentinels.iter().all(|sentinel| this.knows_everybody(sentinel))
        });
        this.tell_every(TELL_EVERY_MS);
        this
    }

    /// What the Sentinels call the master.
    pub fn master_name(&self) -> &str {
        MASTER_NAME
    }

    /// `redis://127.0.0.1:port` of every Sentinel, as a client wants them.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| self.url(sentinel)).collect()
    }

    /// `127.0.0.1:port` of every Sentinel where it speaks TLS.
    pub fn sentinel_tls_addresses(&self) -> Vec<String> {
        assert!(self.options.certificate.is_some(), "the Sentinels were started without TLS");
        self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.place().tls_port())).collect()
    }

    /// `127.0.0.1:port` of every Sentinel.
    pub fn sentinel_addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(|sentinel| sentinel.place().address()).collect()
    }

    /// All Redis servers, master and replicas.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The same, to do something to one of them.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// The server that all Sentinels call the master; waits until they agree on one that runs.
    pub fn master(&self) -> &RedisServer {
        self.wait_until("the Sentinels agree on a master", |this| this.agreed_master().is_some());
        &self.servers[self.agreed_master().expect("they agreed just now")]
    }

    /// Kills the master and waits until another has taken over. Returns the new master.
    pub fn kill_master(&mut self) -> &RedisServer {
        self.wait_until("the Sentinels agree on a master", |this| this.agreed_master().is_some());
        let old = self.agreed_master().expect("they agreed just now");
        self.servers[old].kill9();
        self.master()
    }

    /// Cuts the master off from its replicas, which stand still from now on: what it is told is lost with it. They have what
    /// it was told before. Ends with [`fail_over`](Self::fail_over), and soon: the Sentinels notice.
    pub fn begin_lost_writes(&mut self) -> usize {
        self.wait_until("the Sentinels agree on a master", |this| this.agreed_master().is_some());
        let master = self.agreed_master().expect("they agreed just now");
        let written: u64 =
            self.servers[master].info("replication", "master_repl_offset").parse().expect("a number");
        self.wait_until("the replicas have what was written so far", |this| {
            this.replicas_of(master).all(|replica| {
                let copied = replica.info("replication", "slave_repl_offset");
                copied.parse().is_ok_and(|copied: u64| copied >= written)
            })
        });
        let replicas = self.servers.iter_mut().enumerate().filter(|(index, _)| *index != master);
        replicas.for_each(|(_, replica)| replica.pause());
        let _: u32 = self.servers[master].command(&["CLIENT", "KILL", "TYPE", "replica"]);
        self.wait_until("the master has lost its replicas", |this| {
            this.servers[master].info("replication", "connected_slaves") == "0"
        });
        master
    }

    /// Kills a master that was cut off, lets its replicas go on, and waits until one of them has taken over. Returns the new
    /// master.
    pub fn fail_over(&mut self, master: usize) -> &RedisServer {
        let replicas = self.servers[master].info("replication", "connected_slaves");
        assert_eq!(replicas, "0", "a replica came back: nothing would be lost");
        self.servers[master].kill9();
        let replicas = self.servers.iter_mut().enumerate().filter(|(index, _)| *index != master);
        replicas.for_each(|(_, replica)| replica.resume());
        self.master()
    }

    fn replicas_of(&self, master: usize) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().enumerate().filter(move |(index, _)| *index != master).map(|(_, server)| server)
    }

    /// Starts every killed server again, and waits until it copies the master of today.
    pub fn restart_killed(&mut self) {
        self.servers.iter_mut().filter(|server| !server.is_running()).for_each(RedisServer::restart);
        self.wait_until("all other servers copy the master", |this| {
            let Some(master) = this.agreed_master() else { return false };
            let port = this.servers[master].peer_port().to_string();
            let others = this.servers.iter().enumerate().filter(|(index, _)| *index != master);
            others.map(|(_, server)| server).all(|server| {
                server.info("replication", "master_port") == port
                    && server.info("replication", "master_link_status") == "up"
            })
        });
    }

    /// The running server that all Sentinels name and that takes itself for the master too.
    fn agreed_master(&self) -> Option<usize> {
        let mut named = self.sentinels.iter().map(|sentinel| self.master_port(sentinel));
        let port = named.next()??;
        let index = self.servers.iter().position(|server| server.peer_port() == port)?;
        let agreed = named.all(|other| other == Some(port)) && self.servers[index].is_running();
        (agreed && self.servers[index].info("replication", "role") == "master").then_some(index)
    }

    fn knows_everybody(&self, sentinel: &Instance) -> bool {
        let info: RedisResult<String> = try_command(&self.url(sentinel), &["INFO", "sentinel"]);
        let wanted = format!("status=ok,address=127.0.0.1:{}", self.servers[0].peer_port());
        let line = info.ok().and_then(|info| value_in(&info, "master0")).unwrap_or_default();
        line.contains(&wanted) && line.ends_with(&format!("slaves={REPLICAS},sentinels={SENTINELS}"))
    }

    fn tell_every(&self, period_ms: &str) {
        for sentinel in &self.sentinels {
            let words = ["SENTINEL", "DEBUG", "publish-period", period_ms];
            let set: RedisResult<()> = try_command(&self.url(sentinel), &words);
            set.unwrap_or_else(|error| panic!("{words:?}: {error}\n{}", sentinel.log_tail()));
        }
    }

    fn master_port(&self, sentinel: &Instance) -> Option<u16> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME];
        let named: Option<(String, u16)> = try_command(&self.url(sentinel), &words).ok();
        named.map(|(_, port)| port)
    }

    fn url(&self, sentinel: &Instance) -> String {
        self.options.url(sentinel.place())
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let logs = || {
            let sentinels = self.sentinels.iter().map(Instance::log_tail);
            sentinels.chain(self.servers.iter().map(RedisServer::log_tail)).collect::<Vec<_>>().join("\n")
        };
        wait::until(what, AGREE_TIME_MAX, || condition(self), logs);
    }
}

impl Program for SentinelProgram {
    /// A Sentinel keeps what it learns in its settings, so they are a file that it may write.
    fn prepare(&self, place: &Place) {
        let mut settings = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER_NAME} 127.0.0.1 {} {QUORUM}\n\
             sentinel down-after-milliseconds {MASTER_NAME} 1000\nsentinel failover-timeout {MASTER_NAME} 3000\n",
            place.port(),
            place.data().display(),
            self.master_port,
        );
        let SentinelOptions { certificate, server_password, sentinel_password } = &self.options;
        let certificate = certificate.iter().flat_map(|it| it.redis_settings(place.tls_port()));
        settings.extend(certificate.map(|(name, value)| format!("{name} {value}\n")));
        if let Some(password) = server_password {
            settings.push_str(&format!("sentinel auth-pass {MASTER_NAME} {password}\n"));
        }
        if let Some(password) = sentinel_password {
            // The second line is what they say to each other.
            settings.push_str(&format!("requirepass {password}\nsentinel sentinel-pass {password}\n"));
        }
        std::fs::write(place.data().join("sentinel.conf"), settings)
            .expect("a file for a Sentinel's settings");
    }

    fn command(&self, place: &Place) -> Command {
        let mut command = spawner::tied_to_us(&spawner::on_path("redis-server", "redis-server"), None);
        command.arg(place.data().join("sentinel.conf")).arg("--sentinel");
        command
    }

    fn is_ready(&self, place: &Place, pid: u32) -> bool {
        let info: RedisResult<String> = try_command(&self.options.url(place), &["INFO", "server"]);
        info.is_ok_and(|info| value_in(&info, "process_id") == Some(pid.to_string()))
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }
}
