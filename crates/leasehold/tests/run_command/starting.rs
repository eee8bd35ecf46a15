//! What a command is started with, and when it is not started at all.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;

use crate::stage::{Stage, Store};

/// Where the documents have the program.
const INSTALLED: &str = "/usr/local/bin/leasehold";

fn leasehold(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold")).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_command_is_told_about_its_lock_but_never_the_owners_token() {
    let stage = Stage::new(Store::sqlite());
    let options = ["--lock", "b", "--lock", "a", "--ttl", "20s", "--max-hold", "1h", "--label", "nightly"];
    let mut run = stage.start(&options, "env > env; echo > ready; while [ ! -e go ]; do sleep 0.01; done");
    stage.line("ready");
    let file = stage.store.args[1].strip_prefix("sqlite:").unwrap();
    let locks = rusqlite::Connection::open(file).unwrap();
    let owner: String = locks.query_row("SELECT owner FROM leases LIMIT 1", [], |row| row.get(0)).unwrap();
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(run.code(), Some(0));
    let env = stage.read("env");
    assert!(owner.contains("nightly") && !env.contains(&owner[..32]), "{env}");
    assert!(env.contains("LEASEHOLD_LOCK=a\nb\n") && env.contains("LEASEHOLD_FENCE=1\n2\n"), "{env}");
    assert!(env.contains("LEASEHOLD_GUARANTEE=fenced\n"), "{env}");
    let variable = |name: &str| {
        let prefix = format!("{name}=");
        env.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
    };
    let deadline: jiff::Timestamp = variable("LEASEHOLD_DEADLINE").parse().unwrap();
    assert_eq!(deadline.as_millisecond().to_string(), variable("LEASEHOLD_DEADLINE_MS"));
    let longest: i64 = variable("LEASEHOLD_MAX_DEADLINE_MS").parse().unwrap();
    let minutes = (longest - deadline.as_millisecond()) / 60_000;
    assert!((58..=60).contains(&minutes), "{env}");
}

#[test]
fn a_lock_that_is_not_obtained_starts_nothing() {
    let stage = Stage::new(Store::sqlite());
    let mut holder = stage.start(&["--lock", "job"], "echo > held; while [ ! -e go ]; do sleep 0.01; done");
    stage.line("held");
    let busy = stage.output(&["--lock", "job"], "echo > started");
    assert_eq!(busy.status.code(), Some(97));
    assert!(stderr(&busy).contains("`job` is held by somebody else, for"), "{busy:?}");
    assert!(!stage.path("started").exists());
    let other = stage.output(&["--lock", "job", "--lock", "free", "--wait", "200ms"], "echo > started");
    assert_eq!(other.status.code(), Some(97), "all or none");

    let mut waiting = stage.start(&["--lock", "job", "--wait", "1h", "--in-order"], "echo > started");
    let file = stage.store.args[1].strip_prefix("sqlite:").unwrap().to_owned();
    let in_line = || -> u32 {
        let locks = rusqlite::Connection::open(&file).unwrap();
        locks.query_row("SELECT count(*) FROM waiting", [], |row| row.get(0)).unwrap_or(0)
    };
    crate::stage::wait_until("it stands in line", || in_line() == 1);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.code(), Some(128 + Signal::TERM.as_raw()));
    assert_eq!(in_line(), 0, "whoever leaves is not waited for");
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
    assert!(!stage.path("started").exists());
}

#[test]
fn every_way_of_failing_has_its_own_code() {
    let stage = Stage::new(Store::sqlite());
    let file = stage.store.args[1].as_str();
    let run = |args: &[&str]| leasehold(&[&["run", "--lock", "job"], args].concat());
    assert_eq!(run(&["--store", file, "--", "/no/such/program"]).status.code(), Some(127));
    assert_eq!(run(&["--store", file, "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(run(&["--store", file, "--", "/"]).status.code(), Some(126));
    assert_eq!(run(&["--store", "nonsense://x", "--", "true"]).status.code(), Some(96));
    assert_eq!(run(&["--store", "memory:", "--", "true"]).status.code(), Some(96));
    assert_eq!(run(&["--store", "sqlite:/no/such/folder/x.db", "--", "true"]).status.code(), Some(96));
    assert_eq!(run(&["--store", file, "--epochs", "postgres://x/y", "--", "true"]).status.code(), Some(96));
    let nobody = run(&["--store", "redis://:hunter2@127.0.0.1:1", "--", "true"]);
    assert_eq!(nobody.status.code(), Some(99), "{nobody:?}");
    assert!(!stderr(&nobody).contains("hunter2"), "{nobody:?}");
    assert_eq!(run(&["--store", file, "--ttl", "forever", "--", "true"]).status.code(), Some(2));
    assert_eq!(run(&["--store", file]).status.code(), Some(2));
    let short = run(&["--store", file, "--ttl", "1ms", "--", "true"]);
    assert_eq!(short.status.code(), Some(96), "{short:?}");
}

#[test]
fn without_a_store_it_is_a_file_of_this_user_wherever_it_is_started() {
    let home = tempfile::tempdir().unwrap();
    let run = |runtime: &str, script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["run", "--lock", "job", "--", "sh", "-c", script]).env_remove("LEASEHOLD_STORE");
        command.env("HOME", home.path()).env("XDG_STATE_HOME", runtime).output().unwrap()
    };
    let first = run("/a", "echo $LEASEHOLD_FENCE");
    let second = run("/b", "echo $LEASEHOLD_FENCE");
    assert_eq!((first.stdout.as_slice(), second.stdout.as_slice()), (b"1\n".as_slice(), b"2\n".as_slice()));
    let folder = home.path().join(".local/state/leasehold");
    assert!(folder.join("locks.db").exists());
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

/// cron's own PATH is `/usr/bin:/bin`, where hardly anybody has it.
#[test]
fn the_crontabs_of_the_documents_say_where_the_program_is() {
    let pages =
        [include_str!("../../../../docs/running-jobs.md"), include_str!("../../../../docs/locks-recipes.md")];
    let is_time =
        |field: &&str| field.chars().all(|letter| letter.is_ascii_digit() || "*/,-".contains(letter));
    let mut jobs = 0;
    for line in pages.iter().flat_map(|page| page.lines()).filter(|line| line.contains("leasehold run")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() > 5 && fields[..5].iter().all(is_time) {
            jobs += 1;
            assert_eq!(fields[5], INSTALLED, "{line}");
        }
    }
    assert!(jobs >= 4, "the pages have changed: {jobs} lines");
}

/// The line of the documents, run as cron runs it: by `sh`, with next to nothing in the environment.
#[test]
fn the_crontab_of_the_documents_is_quiet_while_the_run_before_is_busy() {
    let pages = include_str!("../../../../docs/running-jobs.md");
    let line = pages.lines().find(|line| line.ends_with("|| [ $? -eq 97 ]")).expect("the line for a crontab");
    let (_, documented) = line.split_once("* * * * ").expect("every five minutes");
    let home = tempfile::tempdir().unwrap();
    let job = |script: &str| {
        let words = format!("sh -c '{script}'");
        let line = documented.replace(INSTALLED, env!("CARGO_BIN_EXE_leasehold"));
        let line = line.replace("/usr/local/bin/sync.sh", &words);
        assert!(line.contains(&words) && line.starts_with('/'), "the line has changed: {line}");
        let mut cron = Command::new("/bin/sh");
        cron.args(["-c", &line]).current_dir(home.path()).env_clear().stdin(Stdio::null());
        cron.env("HOME", home.path()).env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh");
        cron
    };
    let mut holder = job("echo > held; while [ ! -e go ]; do sleep 0.01; done").spawn().unwrap();
    crate::stage::wait_until("the first run is busy", || home.path().join("held").exists());
    let busy = job("echo > started").output().unwrap();
    assert_eq!(busy.status.code(), Some(0), "cron would send a mail: {busy:?}");
    assert!(busy.stdout.is_empty() && !home.path().join("started").exists(), "{busy:?}");
    std::fs::write(home.path().join("go"), "").unwrap();
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    let free = job("echo > started").output().unwrap();
    assert_eq!((free.status.code(), free.stderr.as_slice()), (Some(0), b"".as_slice()));
    assert!(home.path().join("started").exists());
    let failing = job("exit 3").output().unwrap();
    assert_ne!(failing.status.code(), Some(0), "what goes wrong is not hidden: {failing:?}");
}
