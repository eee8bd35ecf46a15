//! How a command ends: by itself, by a signal, or because its lease does.

use std::time::{Duration, SystemTime};

use leasehold_testkit::servers::RedisServer;
use rustix::process::Signal;

use crate::stage::{Stage, Store, death_of, is_alive, time};

/// Ignores SIGTERM, and writes down that it came and for how long it goes on.
const STUBBORN: &str = "trap 'date +%s%N > asked' TERM; while :; do date +%s%N >> ran; sleep 0.01; done";

#[test]
fn stdin_stdout_and_the_exit_code_are_the_commands() {
    let stage = Stage::new(Store::sqlite());
    std::fs::write(stage.path("in"), "hello\n").unwrap();
    let mut command = stage.command(&["--lock", "job"], "cat; exit 7");
    let output = command.stdin(std::fs::File::open(stage.path("in")).unwrap()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), b"hello\n".as_slice()));
    assert_eq!(output.stderr, b"", "nothing is said when nothing is wrong");
    assert_eq!(stage.output(&["--lock", "job"], "kill -KILL $$").status.code(), Some(128 + 9));
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let stage = Stage::new(Store::sqlite());
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2] {
        let _ = std::fs::remove_file(stage.path("ready"));
        let number = signal.as_raw();
        let traps = (1..16).filter(|n| *n != 9).map(|n| format!("trap 'exit {}' {n}; ", 50 + n));
        let script = format!("{}echo $$ > ready; while :; do sleep 0.01; done", traps.collect::<String>());
        let mut run = stage.start(&["--lock", "job"], &script);
        stage.line("ready");
        run.signal(signal);
        assert_eq!(run.code(), Some(50 + number), "{}", run.stderr());
    }
    let mut run = stage.start(&["--lock", "job"], "echo $$ > defenceless; exec sleep 1000");
    stage.line("defenceless");
    run.signal(Signal::TERM);
    assert_eq!(run.code(), Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let stage = Stage::new(Store::sqlite());
    let run = stage.command(&["--lock", "job"], "echo $$ > ready; while [ ! -e go ]; do sleep 0.01; done");
    let mut nohup = std::process::Command::new("sh");
    nohup.args(["-c", r#"trap "" HUP; exec "$@""#, "sh"]).arg(run.get_program()).args(run.get_args());
    nohup.current_dir(run.get_current_dir().unwrap());
    let mut run = crate::stage::Run::start(nohup);
    let child = stage.pid("ready");
    run.signal(Signal::HUP);
    rustix::process::kill_process(child, Signal::HUP).unwrap();
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
}

#[test]
fn what_the_command_leaves_behind_is_killed_before_the_lock_is_given_back() {
    let stage = Stage::new(Store::sqlite());
    let script =
        "(trap '' TERM HUP; while :; do date +%s%N >> ran; sleep 0.01; done) & echo $! > left; exit 3";
    let mut first = stage.start(&["--lock", "job"], script);
    let left = stage.pid("left");
    let mut second = stage.start(&["--lock", "job", "--wait", "30s"], "date +%s%N > second");
    assert_eq!((first.code(), second.code()), (Some(3), Some(0)));
    assert!(!is_alive(left));
    let ran = stage.last_line("ran");
    assert!(ran.is_empty() || time(&ran) < time(&stage.line("second")), "it ran on under the next holder");
}

/// A machine that stands still for longer than the margin at the end of a lease is late; then there is another round with a
/// longer one.
#[test]
fn a_command_that_ignores_sigterm_is_killed_before_the_lease_can_pass_on() {
    in_time_in_one_round([6, 12, 24], is_killed_before_the_lease_can_pass_on);
}

fn is_killed_before_the_lease_can_pass_on(ttl: Duration) -> bool {
    let mut redis = RedisServer::start();
    let stage = Stage::new(Store::sqlite());
    let length = format!("{}s", ttl.as_secs());
    let options = ["--store", &redis.url(), "--lock", "job", "--ttl", &length, "--grace", "10s"];
    let script = format!("echo $$ > child; {STUBBORN}");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("run").args(options).args(["--", "sh", "-c", &script]).current_dir(stage.path("."));
    let mut run = crate::stage::Run::start(command);
    let child = stage.pid("child");
    stage.line("ran");
    // From here on nothing is renewed. The store itself keeps the lock until its length is over.
    redis.pause();
    death_of(child);
    redis.resume();
    // Looking at a key that is over ends it. Given back is not over: the command is dead.
    let _remaining: i64 = redis.command(&["PTTL", "lock:job"]);
    let is_in_time = redis.info("stats", "expired_keys") == "0";
    assert_eq!(run.code(), Some(98), "{}", run.stderr());
    assert!(run.stderr().contains("could not be renewed"));
    let (asked, ran) = (time(&stage.line("asked")), time(&stage.last_line("ran")));
    let had_time_to_stop = asked + ttl / 10 < ran;
    println!("{ttl:?}: before the lease could pass on {is_in_time}, with time to stop {had_time_to_stop}");
    is_in_time && had_time_to_stop
}

/// Wants it in time with one of these leases, which are so many seconds long. What is late with all of them is not late
/// because of a machine that stood still.
#[track_caller]
fn in_time_in_one_round<const ROUNDS: usize>(seconds: [u64; ROUNDS], is_in_time: fn(Duration) -> bool) {
    let is_one_in_time = seconds.into_iter().map(Duration::from_secs).any(is_in_time);
    assert!(is_one_in_time, "too late {ROUNDS} times in a row");
}

#[test]
fn a_command_under_a_lock_that_was_given_away_is_killed_at_once() {
    let redis = RedisServer::start();
    let stage = Stage::new(Store::sqlite());
    let options = ["--store", &redis.url(), "--lock", "job", "--ttl", "3s"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("run").args(options).args(["--", "sh", "-c", STUBBORN]).current_dir(stage.path("."));
    let mut run = crate::stage::Run::start(command);
    stage.line("ran");
    let deleted: u32 = redis.command(&["DEL", "lock:job"]);
    assert_eq!(deleted, 1);
    assert_eq!(run.code(), Some(98), "{}", run.stderr());
    assert!(run.stderr().contains("the store gave it away"));
}

#[test]
fn a_command_does_not_outlive_a_leasehold_run_that_is_frozen() {
    in_time_in_one_round([3, 6, 12, 24], is_dead_before_the_next_begins);
}

fn is_dead_before_the_next_begins(ttl: Duration) -> bool {
    let stage = Stage::new(Store::sqlite());
    let length = format!("{}s", ttl.as_secs());
    let options = ["--lock", "job", "--ttl", &length, "--wait", "60s"];
    let mut first = stage.start(&options, "echo $$ > child; sleep 1000 & echo $! > grandchild; wait");
    let (child, grandchild) = (stage.pid("child"), stage.pid("grandchild"));
    first.signal(Signal::STOP);
    let mut second = stage.start(&options, "date +%s%N > second");
    let dead = death_of(child).max(death_of(grandchild));
    assert_eq!(second.code(), Some(0), "{}", second.stderr());
    let is_in_time = dead < time(&stage.line("second"));
    first.signal(Signal::CONT);
    assert_eq!(first.code(), Some(98), "{}", first.stderr());
    is_in_time
}

#[test]
fn a_warden_that_was_held_up_believes_the_latest_deadline() {
    let stage = Stage::new(Store::sqlite());
    let script = "echo $$ > child; while [ ! -e go ]; do sleep 0.01; done; exit 5";
    let mut run = stage.start(&["--lock", "job", "--ttl", "4s"], script);
    let child = stage.pid("child");
    let warden = run.warden();
    rustix::process::kill_process(warden, Signal::STOP).unwrap();
    // Longer than the lease was at first; it is renewed meanwhile.
    std::thread::sleep(Duration::from_secs(5));
    rustix::process::kill_process(warden, Signal::CONT).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(child) && is_alive(warden), "{}", run.stderr());
    std::fs::write(stage.path("go"), "").unwrap();
    assert_eq!(run.code(), Some(5), "{}", run.stderr());
}

#[test]
fn the_longest_time_ends_a_command_though_its_lease_could_be_renewed() {
    let stage = Stage::new(Store::sqlite());
    let began = SystemTime::now();
    let options = ["--lock", "job", "--ttl", "3s", "--max-hold", "3s", "--grace", "500ms"];
    let mut run = stage.start(&options, STUBBORN);
    assert_eq!(run.code(), Some(98));
    let took = began.elapsed().unwrap();
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&took), "{took:?}");
    assert!(stage.path("asked").exists());
    assert!(run.stderr().contains("--max-hold is over"));
}

/// With the grace and the lease that nobody asked for, both longer than the longest time.
#[test]
fn a_command_is_not_asked_to_stop_long_before_the_longest_time_is_over() {
    let stage = Stage::new(Store::sqlite());
    let mut run = stage.start(&["--lock", "job", "--max-hold", "9s"], "sleep 2; exit 7");
    assert_eq!(run.code(), Some(7), "{}", run.stderr());
}

#[test]
fn on_a_terminal_the_command_reads_and_then_the_shell_does() {
    let stage = Stage::new(Store::sqlite());
    let run = stage.command(&["--lock", "job"], "read line; echo command $line > first");
    let words = run.get_args().map(|word| format!("'{}'", word.to_str().unwrap()));
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_leasehold"), words.collect::<Vec<_>>().join(" "));
    let line = format!("{line}; read line; echo shell $line > second");
    std::fs::write(stage.path("in"), "one\ntwo\n").unwrap();
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(stage.path("."));
    script.stdin(std::fs::File::open(stage.path("in")).unwrap());
    let mut script = crate::stage::Run::start(script);
    assert_eq!(script.code(), Some(0), "{}", script.stderr());
    assert_eq!((stage.line("first"), stage.line("second")), ("command one".into(), "shell two".into()));
}
