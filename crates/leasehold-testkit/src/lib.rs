//! For tests only: the real server as a process, faults, recorded histories and the checker that judges them.
//!
//! A test starts a [`ServerProcess`], talks to it through [`RecordingClient`]s that write every request and
//! answer into one [`History`], does something bad to the process, reads everything back with [`read_back()`],
//! and lets [`check`] judge. The checker knows the HTTP API and none of our code: it works from what was
//! asked and what was answered, so a mistake in the rules cannot hide itself.

mod browser;
mod buyer;
mod checker;
mod desk;
mod doors;
mod endings;
pub mod engine_suite;
mod facts;
mod history;
mod kill_rounds;
mod lateness;
mod launch;
pub mod lock_suite;
mod process;
mod random;
mod raw;
mod read_back;
mod recording;
mod route;
mod sell_out;
pub mod servers;
mod signals;
mod stage;
mod stream_cuts;
mod sync_faults;
mod workload;

pub use browser::{Browser, Page, Screen};
pub use checker::{Checked, Rule, Violation, check, check_within};
pub use desk::{Desk, Granted};
pub use history::{Answer, History, Operation, Outcome, SentRequest};
pub use kill_rounds::{KeyRounds, Kills, kill_rounds, kill_rounds_with, repeat_after_kill};
pub use lateness::Lateness;
pub use launch::{Launch, NotReady};
pub use process::{ServerProcess, raise_open_files_limit};
pub use random::Random;
pub use raw::{RawAnswer, RawConnection, exchange, request_bytes, try_exchange};
pub use read_back::read_back;
pub use recording::RecordingClient;
pub use stage::Stage;
pub use stream_cuts::{StreamMessage, cut_streams, listen, version_parts};
pub use sync_faults::{SyncFault, fail_syncs};
pub use workload::{RoundCount, Shop, Workload};
