//! A holder that starts another program and dies: the program inherits nothing that could keep the lock.
//!
//! There is no other way to get a child here: a fork without a new program needs `unsafe`, of which there is none.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::servers::RedisServer;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::paused_holder::{Holder, STORE, locker, say};
use crate::support::{PATIENCE, granted};

const TTL: Duration = Duration::from_secs(5);

/// The holder's child, which goes on without it. It is killed when this is dropped.
struct Orphan(Pid);

impl Orphan {
    fn is_alive(&self) -> bool {
        test_kill_process(self.0).is_ok()
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// What a process has open: files by their path, sockets by their number.
fn open_in(process: &str) -> BTreeSet<PathBuf> {
    let all = std::fs::read_dir(format!("/proc/{process}/fd")).expect("the process is there");
    all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()).collect()
}

/// What the holder does: takes the lock, starts a program that lives for long, and says what that one shares with it.
async fn hold(store: &str) {
    let before = open_in("self");
    let locker = locker(store, None);
    let guard = granted(locker.acquire("job").ttl(TTL).wait(PATIENCE).await);
    let mut program = Command::new("sleep");
    program.arg("120").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = program.spawn().expect("another program");
    let is_of_store = |path: &&PathBuf| {
        let path = path.to_string_lossy();
        path.starts_with("socket:") || path.contains("locks.db")
    };
    let opened: BTreeSet<PathBuf> =
        open_in("self").difference(&before).filter(is_of_store).cloned().collect();
    let inherited = open_in(&child.id().to_string());
    say(&format!("child {}", child.id()));
    say(&format!("opened {}", opened.len()));
    say(&format!("inherited {:?}", opened.intersection(&inherited).collect::<Vec<_>>()));
    // It is killed before either of them ends.
    guard.lost().await;
    let _ = child.wait();
}

async fn inherits_nothing_that_renews(test: &str, store: &str) {
    let holder = Holder::start(test, store, None);
    let child = holder.says("child ").parse().unwrap();
    let orphan = Orphan(Pid::from_raw(child).unwrap());
    let opened: usize = holder.says("opened ").parse().unwrap();
    assert!(opened > 0, "the store needs a socket or a file");
    assert_eq!(holder.says("inherited "), "[]");
    let rival = locker(store, None);
    let busy = rival.acquire("job").ttl(TTL).no_wait().await.unwrap();
    assert!(busy.granted().is_none(), "the holder lives and has it");
    holder.signal(Signal::KILL);
    granted(rival.acquire("job").ttl(TTL).wait(PATIENCE).await).release().await.unwrap();
    assert!(orphan.is_alive(), "the lease ended although the child goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_24_child_process_inherits_nothing_that_renews_on_redis() {
    if let Ok(store) = std::env::var(STORE) {
        return hold(&store).await;
    }
    let server = RedisServer::start();
    let test = "pitfalls_child::pitfall_24_child_process_inherits_nothing_that_renews_on_redis";
    inherits_nothing_that_renews(test, &server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_24_child_process_inherits_nothing_that_renews_on_sqlite() {
    if let Ok(store) = std::env::var(STORE) {
        return hold(&store).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let test = "pitfalls_child::pitfall_24_child_process_inherits_nothing_that_renews_on_sqlite";
    inherits_nothing_that_renews(test, &format!("sqlite:{}", file.display())).await;
}
