//! A folder for one test, the stores it can use, and processes of `leasehold run` in it.

use std::any::Any;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use leasehold_testkit::servers::{Postgres, RedisCluster, RedisSentinel, RedisServer, independent};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Longer than anything here takes, on a busy machine too.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(60);

/// A store, running as long as this lives, and how to name it on the command line.
pub(crate) struct Store {
    pub(crate) args: Vec<String>,
    pub(crate) has_fences: bool,
    _servers: Box<dyn Any>,
}

/// A folder in which commands write down what they do.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    pub(crate) store: Store,
}

/// A process of `leasehold run`. Killed, with all that it started, when it is dropped.
pub(crate) struct Run {
    child: Child,
}

impl Store {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self::new(&["--store", &url], true, folder)
    }

    pub(crate) fn postgres() -> Self {
        let postgres = Postgres::start();
        Self::new(&["--store", &postgres.url()], true, postgres)
    }

    pub(crate) fn redis() -> Self {
        let redis = RedisServer::start();
        Self::new(&["--store", &redis.url()], false, redis)
    }

    pub(crate) fn redis_with_epochs() -> Self {
        let (redis, postgres) = (RedisServer::start(), Postgres::start());
        let args = [redis.url(), postgres.url()];
        Self::new(&["--store", &args[0], "--epochs", &args[1]], true, (redis, postgres))
    }

    pub(crate) fn cluster() -> Self {
        let (cluster, postgres) = (RedisCluster::start(), Postgres::start());
        let args = [cluster.url(), postgres.url()];
        Self::new(&["--store", &args[0], "--epochs", &args[1]], true, (cluster, postgres))
    }

    pub(crate) fn sentinel() -> Self {
        let (sentinel, postgres) = (RedisSentinel::start(), Postgres::start());
        let addresses = sentinel.sentinel_addresses().join(",");
        let args = [format!("redis-sentinel://{addresses}/{}", sentinel.master_name()), postgres.url()];
        Self::new(&["--store", &args[0], "--epochs", &args[1]], true, (sentinel, postgres))
    }

    pub(crate) fn redlock() -> Self {
        let servers = independent(5);
        let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
        Self::new(&["--store", &format!("redlock://{}", addresses.join(","))], true, servers)
    }

    /// Of servers that somebody else keeps running.
    pub(crate) fn at(url: &str) -> Self {
        Self::new(&["--store", url], false, ())
    }

    fn new(args: &[&str], has_fences: bool, servers: impl Any) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Self { args, has_fences, _servers: Box::new(servers) }
    }
}

impl Stage {
    pub(crate) fn new(store: Store) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), store }
    }

    /// `leasehold run` with these options and this shell script, in the folder.
    pub(crate) fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.arg("run").args(&self.store.args).args(options).args(["--", "sh", "-c", script]);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self, options: &[&str], script: &str) -> Run {
        Run::start(self.command(options, script))
    }

    pub(crate) fn output(&self, options: &[&str], script: &str) -> Output {
        self.command(options, script).output().unwrap()
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// Waits until a file has a whole line, and returns it.
    pub(crate) fn line(&self, file: &str) -> String {
        wait_until(&format!("a line in {file}"), || self.read(file).ends_with('\n'));
        self.read(file).trim().to_owned()
    }

    /// The last line of a file that was finished; empty when there is none.
    pub(crate) fn last_line(&self, file: &str) -> String {
        let text = self.read(file);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().last().unwrap_or_default().to_owned()
    }

    /// Waits for a process id in a file.
    pub(crate) fn pid(&self, file: &str) -> Pid {
        Pid::from_raw(self.line(file).parse().unwrap()).unwrap()
    }
}

impl Run {
    pub(crate) fn start(mut command: Command) -> Self {
        Self { child: command.stderr(Stdio::piped()).spawn().unwrap() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The second process, which kills the command when this one cannot.
    pub(crate) fn warden(&self) -> Pid {
        let pid = self.pid().as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let is_warden = |pid: &&str| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("__warden")
        };
        let warden = children.split_whitespace().find(is_warden).expect("a warden");
        Pid::from_raw(warden.parse().unwrap()).unwrap()
    }

    /// How it ended; panics when it does not.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + TIME_MAX;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "leasehold run did not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.wait().code()
    }

    /// What it said, after it has ended.
    pub(crate) fn stderr(&mut self) -> String {
        self.wait();
        std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True while a process can still do something.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with(['Z', 'X']))
}

/// Waits until a process is gone, and says when that was.
pub(crate) fn death_of(pid: Pid) -> SystemTime {
    wait_until("the process is gone", || !is_alive(pid));
    SystemTime::now()
}

pub(crate) fn signal_group(group: Pid, signal: Signal) {
    kill_process_group(group, signal).unwrap();
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + TIME_MAX;
    while !condition() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What `date +%s%N` printed.
pub(crate) fn time(nanos: &str) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos.trim().parse().unwrap())
}
