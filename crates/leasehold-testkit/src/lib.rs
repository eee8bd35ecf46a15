//! For tests only: the real server as a process, faults, recorded histories and the checker that judges them.
//!
//! The checker knows the HTTP API and none of our code: it works from what was asked and what was answered,
//! so a mistake in the rules cannot hide itself.

mod random;
mod recording;
mod route;

pub use checker::{Checked, Rule, Violation, check, check_within};
pub use history::{Answer, History, Operation, Outcome, SentRequest};
pub use random::Random;
pub use recording::RecordingClient;
