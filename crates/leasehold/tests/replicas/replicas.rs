//! Three `leasehold serve` processes on one ledger.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_testkit::{Launch, ServerProcess, request_bytes, try_exchange};

pub(crate) const REPLICAS: usize = 3;
/// How long the servers may take to use the gate again after a fault.
pub(crate) const USED_AGAIN_MAX: Duration = Duration::from_secs(15);

/// The servers, each at an address that it keeps when it is started again.
pub(crate) struct Replicas {
    pub(crate) servers: Vec<ServerProcess>,
    launches: Vec<Launch>,
}

/// A server on this ledger. Its key is for tests only.
pub(crate) fn launch(ledger: &str) -> Launch {
    Launch::without_file(Path::new(env!("CARGO_BIN_EXE_leasehold")))
        .args(&["--ledger", ledger])
        .variable("LEASEHOLD_SECRET_KEY", &"5eed".repeat(16))
}

/// The same with this gate in front of the ledger.
pub(crate) fn gated(ledger: &str, gate: &str) -> Launch {
    launch(ledger).args(&["--gate", gate])
}

impl Replicas {
    /// Starts them, each as `launch_of` its number says.
    pub(crate) fn start(launch_of: impl Fn(usize) -> Launch) -> Self {
        Self::of((0..REPLICAS).map(launch_of).collect())
    }

    /// Starts these.
    pub(crate) fn of(launches: Vec<Launch>) -> Self {
        let started = launches.into_iter().map(|launch| {
            let server = launch.start();
            let launch = launch.at(server.address());
            (server, launch)
        });
        let (servers, launches) = started.unzip();
        Self { servers, launches }
    }

    /// Where they listen.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address().to_owned()).collect()
    }

    /// Starts one again where it was, after it ended.
    pub(crate) fn restart(&mut self, number: usize) {
        assert!(!self.servers[number].is_running(), "the server must end before it is started again");
        assert!(!self.servers[number].log().contains("panicked"), "{}", self.servers[number].log());
        self.servers[number] = self.launches[number].start();
    }

    /// Waits until every server asks the gate.
    pub(crate) fn wait_until_gated(&self, time_max: Duration) {
        let begun = Instant::now();
        for server in &self.servers {
            while !is_gated(server) {
                assert!(begun.elapsed() < time_max, "a server does not ask the gate\n{}", server.log());
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!server.log().contains("redis::cluster_handling"), "every try was logged");
        }
    }

    /// True when every server has given up asking some part of the gate, and says so.
    pub(crate) fn are_alone(&self) -> bool {
        self.servers.iter().all(|server| metric(server, "leasehold_gate_up") == Some(0))
    }

    /// What all servers together have counted under this name.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.servers.iter().filter_map(|server| metric(server, name)).sum()
    }
}

fn is_gated(server: &ServerProcess) -> bool {
    metric(server, "leasehold_gate_up") == Some(1)
}

/// A number that a server counts.
fn metric(server: &ServerProcess, name: &str) -> Option<u64> {
    let request = request_bytes("GET", "/metrics", &[("connection", "close")], b"");
    let answer = try_exchange(server.address(), &request, Duration::from_secs(5))?;
    let text = String::from_utf8_lossy(&answer.body);
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
