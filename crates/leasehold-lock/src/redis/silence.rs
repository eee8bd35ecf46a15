//! For how long a cluster's client has left a question open.

use std::time::{Duration, Instant};

/// What whoever gives up waiting wants to know. Time in which nobody asked anything is no silence.
#[derive(Debug)]
pub(super) struct Silence {
    /// When a server last answered, or the connection was made.
    answered_at: Instant,
    /// When they were first asked after that.
    asked_at: Option<Instant>,
}

impl Silence {
    pub(super) fn since_answer(answered_at: Instant) -> Self {
        Self { answered_at, asked_at: None }
    }

    pub(super) fn asked(&mut self, now: Instant) {
        self.asked_at.get_or_insert(now);
    }

    /// If nobody has asked since the last answer, whoever gives up had asked before it, and is still without an answer.
    pub(super) fn length(&self, now: Instant) -> Duration {
        now.duration_since(self.asked_at.unwrap_or(self.answered_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_with_an_open_question_is_silence() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut silence = Silence::since_answer(at(0));
        silence.asked(at(10));
        silence.asked(at(11));
        assert_eq!(silence.length(at(12)), Duration::from_secs(2), "from the first question");
        let silence = Silence::since_answer(at(20));
        assert_eq!(silence.length(at(23)), Duration::from_secs(3), "an older question is still open");
    }
}
