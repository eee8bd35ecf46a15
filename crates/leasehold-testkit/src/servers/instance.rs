//! One server program as a child process: started, stopped, killed, paused, started again.

use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::port::Port;
use super::spawner;
use crate::signals;

/// How long a start may take.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a clean stop may take.
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// Somebody who is no test of ours may take a port between our look at it and the server's.
const PORT_TRIES_MAX: usize = 5;

/// What the servers differ in.
pub(crate) trait Program: Debug + Send + Sync {
    /// Fills the empty folder `place.data()` with what must be there before the first start.
    fn prepare(&self, place: &Place);

    /// The command that runs the server in the foreground.
    fn command(&self, place: &Place) -> Command;

    /// True when the process `pid`, and nobody else on that port, takes requests.
    fn is_ready(&self, place: &Place, pid: u32) -> bool;

    /// The signal that asks for a clean stop.
    fn stop_signal(&self) -> Signal;
}

/// Where a server lives: its ports and its folder, its own for as long as this value.
#[derive(Debug)]
pub(crate) struct Place {
    port: Port,
    /// For a server that speaks TLS as well.
    tls_port: Port,
    folder: tempfile::TempDir,
}

/// A server, running or not.
#[derive(Debug)]
pub(crate) struct Instance {
    program: Arc<dyn Program>,
    child: Option<Child>,
    is_paused: bool,
    /// Dropped last: the folder goes when nobody writes into it any more.
    place: Place,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("leasehold-").tempdir();
        let folder = folder.expect("a temporary folder for a server");
        Self { port: Port::lease(), tls_port: Port::lease(), folder }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port.number()
    }

    /// `127.0.0.1:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// What outlives a restart that begins empty.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the server stores.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the server says.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Instance {
    /// Starts a program in a new place and waits until it is ready; panics with its log when it is not.
    pub(crate) fn start(program: impl Program + 'static) -> Self {
        let program: Arc<dyn Program> = Arc::new(program);
        for _ in 0..PORT_TRIES_MAX {
            let mut instance =
                Self { program: Arc::clone(&program), child: None, is_paused: false, place: Place::new() };
            instance.prepare();
            match instance.try_run() {
                Ok(()) => return instance,
                Err(status) if !instance.is_port_taken() => instance.refuse_to_go_on(status),
                Err(_) => {}
            }
        }
        panic!("every port was taken: {program:?}")
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// True from its start until it is killed or stopped; a paused one counts as running.
    pub(crate) fn is_running(&self) -> bool {
        self.child.as_ref().is_some_and(|child| signals::is_alive(child.id()))
    }

    /// True when it runs and is not paused.
    pub(crate) fn is_answering(&self) -> bool {
        self.is_running() && !self.is_paused
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Kills it and all its children without a word, as a power cut would, and waits until they are gone.
    pub(crate) fn kill9(&mut self) {
        let pid = self.pid();
        self.kill_all();
        assert!(!signals::is_alive(pid), "a process that got SIGKILL ends");
    }

    /// Stops the world for it and its children, and waits until all their threads stand still.
    pub(crate) fn pause(&mut self) {
        let pid = self.pid();
        // The parent first: then it has no more children than these.
        signals::pause(pid);
        signals::children(pid).into_iter().for_each(signals::pause);
        self.is_paused = true;
    }

    /// Lets it go on after a pause.
    pub(crate) fn resume(&mut self) {
        assert!(self.is_paused, "only a paused server can be resumed");
        let pid = self.pid();
        for process in signals::children(pid).into_iter().chain([pid]) {
            signals::send(process, Signal::CONT);
        }
        self.is_paused = false;
    }

    /// Asks it to end, and waits for it; panics when it does not.
    pub(crate) fn stop(&mut self) {
        assert!(!self.is_paused, "a paused server cannot stop: resume it or kill it");
        let (signal, log) = (self.program.stop_signal(), self.place.log());
        let mut child = self.child.take().expect("the server was started");
        signals::send(child.id(), signal);
        if signals::wait_for_exit(&mut child, STOP_TIME_MAX).is_none() {
            self.child = Some(child);
            panic!("the server did not stop within {STOP_TIME_MAX:?}\n{}", signals::log_tail(&log));
        }
    }

    /// Starts it again, on the same port and with its data, after it was killed or stopped.
    pub(crate) fn restart(&mut self) {
        assert!(!self.is_running(), "the server must end before it is started again");
        for _ in 0..PORT_TRIES_MAX {
            match self.try_run() {
                Ok(()) => return,
                Err(status) if !self.is_port_taken() => self.refuse_to_go_on(status),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        panic!("somebody else took port {} while the server was down", self.place.port())
    }

    /// The same after deleting everything it stored.
    pub(crate) fn restart_empty(&mut self) {
        assert!(!self.is_running(), "the server must end before it is started again");
        std::fs::remove_dir_all(self.place.data()).expect("a stopped server's data can be deleted");
        self.prepare();
        self.restart();
    }

    /// The end of its log, for a panic.
    pub(crate) fn log_tail(&self) -> String {
        signals::log_tail(&self.place.log())
    }

    fn prepare(&self) {
        std::fs::create_dir(self.place.data()).expect("a folder for the server's data");
        self.program.prepare(&self.place);
    }

    /// Runs the program until it is ready, or tells how it ended before.
    fn try_run(&mut self) -> Result<(), ExitStatus> {
        // What an earlier life said would be taken for what this one says.
        let log = File::create(self.place.log()).expect("the server's log can be created");
        let errors = log.try_clone().expect("a file can be opened twice");
        let mut command = self.program.command(&self.place);
        command.current_dir(self.place.folder()).stdin(Stdio::null()).stdout(log).stderr(errors);
        let shown = format!("{command:?}");
        let child = spawner::spawn(command).unwrap_or_else(|error| panic!("cannot run {shown}: {error}"));
        let pid = child.id();
        if let Some(mut earlier) = self.child.replace(child) {
            // It ended by itself; this only collects it.
            let _ = earlier.wait();
        }
        self.is_paused = false;
        let deadline = Instant::now() + READY_TIME_MAX;
        while !self.program.is_ready(&self.place, pid) {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                self.child = None;
                return Err(status);
            }
            assert!(
                Instant::now() < deadline,
                "not ready within {READY_TIME_MAX:?}: {shown}\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_port_taken(&self) -> bool {
        signals::read_lossy(&self.place.log()).contains("Address already in use")
    }

    fn refuse_to_go_on(&self, status: ExitStatus) -> ! {
        let command = self.program.command(&self.place);
        panic!("the server ended before it was ready ({status}): {command:?}\n{}", self.log_tail())
    }

    fn running(&self) -> &Child {
        self.child.as_ref().expect("the server runs")
    }

    /// Ends it and its children, if there are any. It does not panic: a drop in a panic does this too.
    fn kill_all(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.is_paused = false;
        // One that stands still has no more children than these.
        signals::try_pause(child.id());
        let children = signals::children(child.id());
        for process in children.iter().copied().chain([child.id()]) {
            signals::send(process, Signal::KILL);
        }
        let _ = child.wait();
        children.into_iter().for_each(|pid| {
            signals::wait_until_gone(pid);
        });
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill_all();
    }
}
