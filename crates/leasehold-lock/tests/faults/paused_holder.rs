//! A holder that is stopped for longer than its lease and then goes on as if nothing had happened.
//!
//! The holder is a process of its own: this very test, started again with a variable that tells it so.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use leasehold_lock::{Fence, Locker, Settings, StoreOptions, open};
use leasehold_testkit::Lateness;
use leasehold_testkit::servers::{Postgres, RedisServer, independent};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PATIENCE, granted};

/// The store of a process that is a holder, and no test.
pub(crate) const STORE: &str = "LEASEHOLD_TEST_HOLDER_STORE";
const EPOCHS: &str = "LEASEHOLD_TEST_HOLDER_EPOCHS";
const TTL: Duration = Duration::from_secs(5);
/// Whoever wakes up is told within this time, and within what the machine itself is late by meanwhile.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// What a lock protects. With the check, a late write is refused; without it, accepted.
#[derive(Default)]
struct Register {
    highest: Option<Fence>,
    writes: Vec<Fence>,
    unguarded_writes: Vec<Fence>,
}

impl Register {
    fn write(&mut self, fence: Fence) -> bool {
        self.unguarded_writes.push(fence);
        let accepted = self.highest.is_none_or(|highest| highest <= fence);
        if accepted {
            self.highest = Some(fence);
            self.writes.push(fence);
        }
        accepted
    }
}

/// The holder as its parent sees it. It is killed when this is dropped.
pub(crate) struct Holder {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Holder {
    pub(crate) fn start(test: &str, store: &str, epochs: Option<&str>) -> Self {
        let program = std::env::current_exe().expect("the test's own program");
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture", "--test-threads", "1"]).env(STORE, store);
        if let Some(epochs) = epochs {
            command.env(EPOCHS, epochs);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a holder");
        let stdin = child.stdin.take().expect("its input");
        let stdout = BufReader::new(child.stdout.take().expect("its output"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, said)) = line.split_once("holder: ") {
                    let _ = send.send(said.to_owned());
                }
            }
        });
        Self { child, stdin, lines }
    }

    /// The next thing it says, which must begin like this.
    #[track_caller]
    pub(crate) fn says(&self, beginning: &str) -> String {
        let line = self.lines.recv_timeout(PATIENCE).expect("the holder says something");
        line.strip_prefix(beginning)
            .unwrap_or_else(|| panic!("expected `{beginning}`, not `{line}`"))
            .to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).expect("the holder is there");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn locker(store: &str, epochs: Option<String>) -> Locker {
    let options = StoreOptions { epochs, ..StoreOptions::default() };
    Locker::with_settings(open(store, &options).unwrap(), Settings::default())
}

/// What the holder does: takes the lock, looks at it all the time, and says when it was asleep.
async fn hold(store: &str) {
    let locker = locker(store, std::env::var(EPOCHS).ok());
    let guard = granted(locker.acquire("job").ttl(TTL).wait(PATIENCE).await);
    say(&format!("held {}", guard.fence().expect("a fence").0));
    let mut looked = Instant::now();
    let slept = loop {
        let pause = looked.elapsed();
        // The very first look after the pause, before anything else in this process had a chance to run.
        let held = guard.check().is_ok();
        // It was renewed less than a third of its length before the pause, which lasted until it had ended.
        if pause > TTL / 2 {
            break held;
        }
        assert!(held, "the lease is renewed");
        looked = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        tokio::task::yield_now().await;
    };
    let (woke, lateness) = (Instant::now(), Lateness::watch());
    say(&format!("woke up and believes {}", if slept { "it holds" } else { "it lost" }));
    let reason = tokio::time::timeout(PATIENCE, guard.lost()).await.expect("the signal fires");
    let (told_after, late_by) = (woke.elapsed(), lateness.worst());
    assert!(told_after < TOLD_WITHIN + late_by * 2, "told after {told_after:?}, late by {late_by:?}");
    say(&format!("was told {reason:?}"));
    // It writes all the same: work that was under way does not ask first.
    say(&format!("writes {}", guard.fence().unwrap().0));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent's word");
}

pub(crate) fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "holder: {what}").expect("the parent listens");
    out.flush().expect("the parent listens");
}

/// Stops a holder past its lease, lets another in, and wakes it.
async fn late_write_is_refused(test: &str, store: &str, epochs: Option<&str>) {
    if let Ok(store) = std::env::var(STORE) {
        return hold(&store).await;
    }
    let mut register = Register::default();
    let mut holder = Holder::start(test, store, epochs);
    let old = Fence(holder.says("held ").parse().unwrap());
    assert!(register.write(old), "the first holder writes");
    // It is renewed: longer than its length it is still held.
    std::thread::sleep(TTL + TTL / 2);
    let rival = locker(store, epochs.map(str::to_owned));
    let busy = rival.acquire("job").ttl(TTL).no_wait().await.unwrap();
    assert!(busy.granted().is_none(), "the holder is awake and has it");

    holder.signal(Signal::STOP);
    let guard = granted(rival.acquire("job").ttl(Duration::from_secs(30)).wait(PATIENCE).await);
    let new = guard.fence().unwrap();
    assert!(old < new, "{old:?}, then {new:?}");
    assert!(register.write(new), "the second holder writes");
    holder.signal(Signal::CONT);

    assert_eq!(holder.says("woke up and believes "), "it lost");
    holder.says("was told ");
    let late = Fence(holder.says("writes ").parse().unwrap());
    assert_eq!(late, old);
    assert!(!register.write(late), "a late write with an old fence is refused");
    assert_eq!(register.writes, [old, new]);
    // Without the check the late write would have come last, and won.
    assert_eq!(register.unguarded_writes.last(), Some(&old));
    assert!(guard.check().is_ok(), "the second holder lost nothing by it");
    let _ = writeln!(holder.stdin, "enough");
}

fn full_name(test: &str) -> String {
    format!("paused_holder::{test}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_22_late_write_of_a_stopped_holder_is_refused_on_redis_with_epochs() {
    let name = full_name("pitfall_22_late_write_of_a_stopped_holder_is_refused_on_redis_with_epochs");
    if std::env::var_os(STORE).is_some() {
        return late_write_is_refused(&name, "", None).await;
    }
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    late_write_is_refused(&name, &server.url(), Some(&postgres.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_22_late_write_of_a_stopped_holder_is_refused_on_redlock() {
    let name = full_name("pitfall_22_late_write_of_a_stopped_holder_is_refused_on_redlock");
    if std::env::var_os(STORE).is_some() {
        return late_write_is_refused(&name, "", None).await;
    }
    let servers = independent(3);
    let addresses: Vec<String> = servers.iter().map(RedisServer::address).collect();
    late_write_is_refused(&name, &format!("redlock://{}", addresses.join(",")), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_22_late_write_of_a_stopped_holder_is_refused_on_sqlite() {
    let name = full_name("pitfall_22_late_write_of_a_stopped_holder_is_refused_on_sqlite");
    if std::env::var_os(STORE).is_some() {
        return late_write_is_refused(&name, "", None).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    late_write_is_refused(&name, &format!("sqlite:{}", file.display()), None).await;
}
