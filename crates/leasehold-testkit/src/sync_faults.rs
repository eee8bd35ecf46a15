//! A disk that no longer keeps what it is given: from some moment on every sync fails.

use std::process::ExitStatus;
use std::time::{Duration, UNIX_EPOCH};

use crate::history::{History, Operation};
use crate::launch::NotReady;
use crate::route::Route;
use crate::stage::Stage;
use crate::workload::Workload;

/// How long a server may take to notice, and to end.
const END_TIME_MAX: Duration = Duration::from_secs(60);

/// What a server did whose syncs failed.
#[derive(Debug)]
pub struct SyncFault {
    /// False when it ended before it served anybody.
    pub ready: bool,
    /// Requests without an answer.
    pub unanswered: usize,
    /// What it acknowledged although no sync can have made it durable, in words.
    pub lies: Vec<String>,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stderr.
    pub log: String,
}

/// Starts the stage's server, which has ended, with syncs that fail from the `fail_from`th of a thread on, and lets the
/// buyers work until it ends. Panics when it does not, or when no sync failed.
pub async fn fail_syncs(stage: &Stage, workload: &mut Workload, fail_from: u32) -> SyncFault {
    let inject = format!("fsync,fdatasync:error=EIO:when={fail_from}+");
    let mut server = match stage.launch().clone().strace(&inject).try_start() {
        Ok(server) => server,
        Err(NotReady { status, log, trace }) => {
            assert!(trace.contains("(INJECTED)"), "the fault was not seen:\n{trace}");
            return SyncFault { ready: false, unanswered: 0, lies: Vec::new(), status, log };
        }
    };
    let history_from = stage.history.len();
    workload.begin_round(server.address());
    let status = server.wait_for_exit(END_TIME_MAX).expect("the process stops by itself");
    let round = workload.end_round().await;
    let syncs = Syncs::of(&server.trace());
    let lies = lies(&stage.history, history_from, &syncs);
    SyncFault { ready: true, unanswered: round.unanswered, lies, status, log: server.log() }
}

/// The wall clock of two syncs of one thread.
#[derive(Debug, PartialEq, Eq)]
struct Syncs {
    /// When the last one began that succeeded; 0 when none did.
    last_good: Duration,
    /// When the first one began that failed.
    first_bad: Duration,
}

impl Syncs {
    /// From `strace -f -ttt`: `thread seconds.micros fdatasync(7) = 0`, in two lines when others come between.
    fn of(trace: &str) -> Self {
        let words = |line: &str| {
            let mut words = line.split_whitespace();
            let thread = words.next().unwrap_or_default().to_owned();
            let seconds = words.next().and_then(|word| word.parse::<f64>().ok());
            (thread, seconds.map(Duration::from_secs_f64))
        };
        let lines: Vec<&str> = trace.lines().collect();
        let failed = lines.iter().position(|line| line.contains("(INJECTED)"));
        let failed = failed.unwrap_or_else(|| panic!("the fault was not seen:\n{trace}"));
        let (thread, _) = words(lines[failed]);
        let begun = lines[..=failed].iter().filter(|line| line.contains("sync(")).map(|line| words(line));
        let mut begun = begun.filter(|(by, _)| *by == thread).filter_map(|(_, at)| at).rev();
        let first_bad = begun.next().unwrap_or_else(|| panic!("the fault has no time:\n{trace}"));
        Self { last_good: begun.next().unwrap_or_default(), first_bad }
    }
}

/// A request that began after the first failed sync cannot be durable. Nor can one that began after the last good one;
/// but of those only a hold's grant is surely new, and not the answer of something that was done before.
fn lies(history: &History, from: usize, syncs: &Syncs) -> Vec<String> {
    let started_wall = history.started_wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lie = |operation: &Operation| {
        let answer = operation.answer().filter(|answer| answer.is_success());
        let new = answer.is_some_and(|answer| answer.header(leasehold_api::IDEMPOTENCY_REPLAYED).is_none());
        let (began, route) = (started_wall + operation.started, Route::of(&operation.request));
        let late = if let Route::CreateHold(_) = route { syncs.last_good } else { syncs.first_bad };
        new && operation.request.method != "GET" && began > late
    };
    let operations = history.operations();
    operations.iter().skip(from).filter(|operation| lie(operation)).map(|op| format!("{op:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syncs_around_the_fault_are_those_of_its_thread() {
        let trace = "7 100.250000 fdatasync(5) = 0\n\
                     8 100.500000 fdatasync(6 <unfinished ...>\n\
                     7 100.625000 fsync(5) = 0\n\
                     8 100.750000 <... fdatasync resumed>) = 0\n\
                     7 100.875000 fdatasync(5) = 0\n\
                     8 101.000000 fdatasync(6 <unfinished ...>\n\
                     7 101.125000 fdatasync(5) = 0\n\
                     8 101.250000 <... fdatasync resumed>) = -1 EIO (Input/output error) (INJECTED)\n";
        let at = Duration::from_millis;
        assert_eq!(Syncs::of(trace), Syncs { last_good: at(100_500), first_bad: at(101_000) });
        let first = "8 101.000000 fdatasync(6) = -1 EIO (Input/output error) (INJECTED)\n";
        assert_eq!(Syncs::of(first), Syncs { last_good: Duration::ZERO, first_bad: at(101_000) });
    }
}
