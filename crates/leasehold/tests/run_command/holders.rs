//! Holders that are in each other's way, that are killed, and that sleep through their lease: on every store.

use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::stage::{Run, Stage, Store, death_of, signal_group, time};

const TTL: Duration = Duration::from_secs(3);
const OPTIONS: [&str; 6] = ["--lock", "job", "--ttl", "3s", "--wait", "60s"];

/// The store of what the lock protects: one value guarded by the fence, one that takes every write.
const WRITE: &str = r#"
write() {
    (
        flock 9
        echo "$1" > unguarded
        highest=$(cat highest 2>/dev/null || echo 0)
        if [ "${LEASEHOLD_FENCE:-0}" -lt "$highest" ]; then
            echo "refused $1" >> answers
        else
            echo "${LEASEHOLD_FENCE:-0}" > highest
            echo "$1" > guarded
            echo "accepted $1" >> answers
        fi
    ) 9>> register.lock
}
"#;

/// Several at once take turns, in an order that their fences tell.
pub(crate) fn take_turns(store: Store) {
    const HOLDERS: usize = 4;
    let stage = Stage::new(store);
    // The first one is not done before all of them are there.
    let work = r#"
echo "start $LEASEHOLD_FENCE" >> log
while [ "$(grep -c wants log)" -lt HOLDERS ]; do sleep 0.05; done
sleep 0.2
echo "end $LEASEHOLD_FENCE" >> log
"#;
    let work = &work.replace("HOLDERS", &HOLDERS.to_string());
    let run = stage.command(&OPTIONS, work);
    let mut wishing = std::process::Command::new("sh");
    wishing.args(["-c", r#"echo wants >> log; exec "$@""#, "sh"]).arg(run.get_program()).args(run.get_args());
    wishing.current_dir(run.get_current_dir().unwrap());
    let mut runs: Vec<Run> = (0..HOLDERS)
        .map(|_| {
            let mut again = std::process::Command::new(wishing.get_program());
            again.args(wishing.get_args()).current_dir(wishing.get_current_dir().unwrap());
            Run::start(again)
        })
        .collect();
    for run in &mut runs {
        assert_eq!(run.code(), Some(0), "{}", run.stderr());
    }
    let log = stage.read("log");
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    let last_wish = lines.iter().rposition(|line| line[0] == "wants").unwrap();
    let first_end = lines.iter().position(|line| line[0] == "end").unwrap();
    assert!(last_wish < first_end, "nobody had to wait:\n{log}");
    let work: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] != "wants").collect();
    assert_eq!(work.len(), 2 * HOLDERS, "{log}");
    let mut highest = 0;
    for turn in work.chunks(2) {
        assert_eq!((turn[0][0], turn[1][0]), ("start", "end"), "two at the same time:\n{log}");
        if stage.store.has_fences {
            let fence: u64 = turn[0][1].parse().unwrap();
            assert!(fence > highest, "{log}");
            highest = fence;
        } else {
            assert_eq!(turn[0][1], "", "{log}");
        }
    }
}

/// A holder that is killed with `kill -9` takes its command, and what that started, with it. The next one gets
/// in after the TTL.
pub(crate) fn die_with_their_commands(store: Store) {
    let stage = Stage::new(store);
    let script = "sleep 1000 & echo $! > grandchild; echo $$ > child; wait";
    let first = stage.start(&OPTIONS, script);
    let (child, grandchild) = (stage.pid("child"), stage.pid("grandchild"));
    let mut second = stage.start(&OPTIONS, "date +%s%N > second");
    let killed = SystemTime::now();
    first.signal(Signal::KILL);
    let dead = death_of(child).max(death_of(grandchild));
    assert_eq!(second.code(), Some(0), "{}", second.stderr());
    let next = time(&stage.line("second"));
    assert!(dead < next, "the first still ran when the second began");
    let waited = next.duration_since(killed).unwrap();
    // It was renewed when two thirds were left, if at all, and on a busy machine the signal may come a little later.
    assert!(waited >= TTL / 4, "the lock of a dead holder was taken after {waited:?}");
}

/// A holder that is frozen with everything it started, as by a suspended machine, wakes up after its lease.
/// Its write is refused by its fence, and would have been accepted without.
pub(crate) fn wake_up_too_late(store: Store) {
    let stage = Stage::new(store);
    let late = format!("{WRITE} echo $$ > child; while [ ! -e go ]; do sleep 0.01; done; write first");
    let mut first = stage.start(&OPTIONS, &late);
    let child = stage.pid("child");
    let warden = first.warden();
    first.signal(Signal::STOP);
    rustix::process::kill_process(warden, Signal::STOP).unwrap();
    signal_group(child, Signal::STOP);

    let mut second = stage.start(&OPTIONS, &format!("{WRITE} write second"));
    assert_eq!(second.code(), Some(0), "{}", second.stderr());
    assert_eq!(stage.read("answers"), "accepted second\n");
    std::fs::write(stage.path("go"), "").unwrap();
    // The command wakes first, so nobody is there to stop it.
    signal_group(child, Signal::CONT);
    crate::stage::wait_until("the late write is answered", || stage.read("answers").lines().count() == 2);
    assert_eq!(stage.read("unguarded"), "first\n", "without a fence, the late write is the last one");
    if stage.store.has_fences {
        assert_eq!(stage.read("answers"), "accepted second\nrefused first\n");
        assert_eq!(stage.read("guarded"), "second\n");
    } else {
        assert_eq!(stage.read("guarded"), "first\n", "without a fence there is nothing to refuse it by");
    }
    rustix::process::kill_process(warden, Signal::CONT).unwrap();
    first.signal(Signal::CONT);
    assert_eq!(first.code(), Some(98), "{}", first.stderr());
}
