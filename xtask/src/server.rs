//! A `leasehold` process that ends with us, whatever happens.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::http;
use crate::step::{show, target};

/// The nodes of a Redis Cluster take their time to find each other.
const READY_WAIT_MAX: Duration = Duration::from_secs(90);
const STOP_WAIT_MAX: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running server. Dropping it kills the process and removes its folder, also in a panic.
pub(crate) struct Server {
    process: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its working directory, made for it alone.
    folder: PathBuf,
}

impl Server {
    /// Starts `program role --listen ...` in an empty folder and waits until it is ready to serve.
    pub(crate) fn start(program: &Path, role: &[&str]) -> Result<Self> {
        let address = free_address()?;
        let folder = target().join(format!("xtask-server-{}", address.port()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut command = Command::new(program);
        command.args(role).arg("--listen").arg(address.to_string()).current_dir(&folder);
        println!("\n$ {} &", show(&command));
        let process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { process, address, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The server's address as clients want it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks the process to stop, as a service manager does, and expects it to end well.
    pub(crate) fn stop(mut self) -> Result<()> {
        let id = self.process.id();
        println!("\n$ kill -TERM {id}");
        let begun = Instant::now();
        // `kill` is built into every shell; as a program it is a package of its own.
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status();
        if !sent.context("cannot run sh")?.success() {
            bail!("the server was gone before it was asked to stop");
        }
        let status = self.wait_for_end()?;
        if !status.success() {
            bail!("asked to stop, the server ended with {status} instead of 0");
        }
        println!("  stopped cleanly in {:.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < READY_WAIT_MAX {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended with {status} before it was ready");
            }
            // Refused connections are expected until the server listens.
            if http::get(self.address, "/readyz").is_ok_and(|answer| answer.status == 200) {
                println!("  ready after {:.1} s", begun.elapsed().as_secs_f64());
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("the server was not ready after {} s", READY_WAIT_MAX.as_secs())
    }

    fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < STOP_WAIT_MAX {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        bail!("the server still ran {} s after it was asked to stop", STOP_WAIT_MAX.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // All of these fail harmlessly when the process has ended and the folder is gone.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A loopback address nobody listens on at the moment.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    Ok(listener.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_server_ends_its_process() {
        let process = Command::new("sleep").arg("600").spawn().expect("sleep is everywhere");
        let id = process.id();
        let address = free_address().expect("loopback works");
        let folder = std::env::temp_dir().join(format!("xtask-guard-{id}"));
        drop(Server { process, address, folder });
        assert!(!Path::new(&format!("/proc/{id}/exe")).exists());
    }

    #[test]
    fn a_server_that_ends_at_once_is_an_error_and_not_a_wait() {
        let started = Server::start(Path::new("/bin/false"), &[]);
        let error = started.err().expect("false cannot serve").to_string();
        assert!(error.contains("before it was ready"), "{error}");
    }
}
