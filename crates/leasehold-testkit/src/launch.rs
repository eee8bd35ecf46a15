//! How a server is started: arguments, environment, and strace around it for faults in system calls.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::process::ServerProcess;
use crate::raw;

/// How long a start may take.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// Between asking for a free port and using it another process may take it.
const PORT_TRIES_MAX: usize = 5;

/// A server that is about to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    binary: PathBuf,
    command: &'static str,
    address: Option<String>,
    /// None for a server whose arguments say where its data is.
    data: Option<PathBuf>,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    inject: Option<String>,
}

/// The server ended before it was ready.
#[derive(Debug)]
pub struct NotReady {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stderr.
    pub log: String,
    /// What strace wrote; empty without strace.
    pub trace: String,
}

impl Launch {
    /// `binary serve` on the file `data`.
    pub fn new(binary: &Path, data: &Path) -> Self {
        Self { data: Some(data.to_owned()), ..Self::without_file(binary) }
    }

    /// `binary serve` on whatever its arguments and variables say.
    pub fn without_file(binary: &Path) -> Self {
        Self {
            binary: binary.to_owned(),
            command: "serve",
            address: None,
            data: None,
            args: Vec::new(),
            variables: Vec::new(),
            inject: None,
        }
    }

    /// `binary demo` on the file `data`, with so many simulated buyers.
    pub fn demo(binary: &Path, data: &Path, crowd: u32) -> Self {
        Self { command: "demo", ..Self::new(binary, data) }.args(&["--crowd", &crowd.to_string()])
    }

    /// The same at this address instead of a free one: where a server was that is to come back.
    pub fn at(mut self, address: &str) -> Self {
        self.address = Some(address.to_owned());
        self
    }

    /// The same with more arguments.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// The same with an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same under strace, which injects this fault: `fsync,fdatasync:error=EIO:when=7+`.
    pub fn strace(mut self, inject: &str) -> Self {
        self.inject = Some(inject.to_owned());
        self
    }

    /// Starts it and waits until `/readyz` says 200; panics with the end of its log when that fails.
    pub fn start(&self) -> ServerProcess {
        match self.try_start() {
            Ok(server) => server,
            Err(NotReady { status, log, .. }) => {
                panic!("the server ended before it was ready: {status}\n{log}")
            }
        }
    }

    /// The same, where ending before it is ready is an answer too. Panics when it is neither ready nor ended in time.
    pub fn try_start(&self) -> Result<ServerProcess, NotReady> {
        let mut tries = 1;
        loop {
            match self.start_once() {
                Err(ended) if tries < PORT_TRIES_MAX && ended.log.contains("in use") => tries += 1,
                result => return result,
            }
        }
    }

    fn start_once(&self) -> Result<ServerProcess, NotReady> {
        let directory = tempfile::tempdir().expect("a temporary directory for the server's log");
        let log = directory.path().join("stderr.log");
        let trace = self.inject.as_ref().map(|_| directory.path().join("strace.log"));
        let address = self.address.clone().unwrap_or_else(free_address);
        let stderr = File::create(&log).expect("the server's log can be created");
        let child = self
            .command(&address, trace.as_deref())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program()));
        let mut server = ServerProcess { child, address, log, trace, _directory: directory };
        let deadline = Instant::now() + READY_TIME_MAX;
        while !is_ready(server.address()) {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(NotReady { status, log: server.log(), trace: server.trace() });
            }
            assert!(Instant::now() < deadline, "not ready within {READY_TIME_MAX:?}\n{}", server.log_tail());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn command(&self, address: &str, trace: Option<&Path>) -> Command {
        let mut command = match (&self.inject, trace) {
            (Some(inject), Some(trace)) => {
                let traced = inject.split(':').next().unwrap_or_default();
                let mut command = Command::new("strace");
                command.args(["-f", "--seccomp-bpf", "-ttt", "-o"]).arg(trace);
                command.args(["-e", &format!("trace={traced}"), "-e", &format!("inject={inject}")]);
                command.arg(&self.binary);
                command
            }
            _ => Command::new(&self.binary),
        };
        command.args([self.command, "--listen", address]);
        if let Some(data) = &self.data {
            command.arg("--data").arg(data);
        }
        command.args(&self.args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn program(&self) -> String {
        match self.inject {
            Some(_) => "strace: install strace (a Debian package)".to_owned(),
            None => self.binary.display().to_string(),
        }
    }
}

pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free loopback port");
    listener.local_addr().expect("a bound listener has an address").to_string()
}

fn is_ready(address: &str) -> bool {
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let answer = raw::try_exchange(address, request.as_bytes(), Duration::from_secs(1));
    answer.is_some_and(|answer| answer.status == 200)
}
