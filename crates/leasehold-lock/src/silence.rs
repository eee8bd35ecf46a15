//! For how long a connection has left questions open.

use std::time::{Duration, Instant};

/// What tells a connection that is dead from one that nobody asks: the time with an open question since the last answer.
///
/// Whoever waits for an answer may give up long before that time is over, and yet the time counts: a connection on which
/// everybody gives up early would otherwise never be left.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Questions that somebody waits to have answered.
    open: usize,
    /// Since when there are any, or since the last answer if that came later.
    since: Option<Instant>,
    /// How long there were some before that, all given up.
    before: Duration,
}

/// How a question ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// A refusal is an answer, too.
    Answered,
    /// There will be no answer.
    #[cfg(feature = "redis")]
    Failed,
    /// Nobody waits for it any more.
    GivenUp,
}

impl Silence {
    /// A question has ended. Returns how long the silence is now.
    pub(crate) fn ends(&mut self, end: End, now: Instant) -> Duration {
        match end {
            End::Answered => self.answered(now),
            #[cfg(feature = "redis")]
            End::Failed => self.failed(now),
            End::GivenUp => self.given_up(now),
        }
    }

    /// Nothing is open, and nothing was given up since the last answer.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0 && self.before.is_zero()
    }

    pub(crate) fn asked(&mut self, now: Instant) {
        self.open += 1;
        self.since.get_or_insert(now);
    }

    /// It is over.
    fn answered(&mut self, now: Instant) -> Duration {
        self.before = Duration::ZERO;
        self.close(now);
        self.before
    }

    /// Nobody waits for the answer any more. Returns how long the silence is now.
    fn given_up(&mut self, now: Instant) -> Duration {
        self.before = self.length(now);
        self.close(now);
        self.before
    }

    /// There will be no answer. Until there is one to another question, nobody need be asking for time to count.
    #[cfg(feature = "redis")]
    fn failed(&mut self, now: Instant) -> Duration {
        self.open = self.open.saturating_sub(1);
        self.length(now)
    }

    pub(crate) fn length(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    fn close(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        self.since = (self.open > 0).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_with_an_open_question_is_silence() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut silence = Silence::default();
        silence.asked(at(10));
        silence.asked(at(11));
        assert_eq!(silence.given_up(at(12)), Duration::from_secs(2), "from the first question");
        assert_eq!(silence.given_up(at(13)), Duration::from_secs(3), "while another is open");
        silence.asked(at(100));
        assert_eq!(silence.given_up(at(101)), Duration::from_secs(4), "not while nobody asks");
        silence.asked(at(110));
        silence.asked(at(111));
        assert_eq!(silence.answered(at(120)), Duration::ZERO);
        assert_eq!(silence.given_up(at(123)), Duration::from_secs(3), "an older question is still open");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn what_fails_at_once_is_silence_until_something_is_answered() {
        let began = Instant::now();
        let mut silence = Silence::default();
        silence.asked(began);
        assert_eq!(silence.failed(began), Duration::ZERO);
        let later = began + Duration::from_secs(2);
        silence.asked(later);
        assert_eq!(silence.failed(later), Duration::from_secs(2));
        silence.asked(later);
        assert_eq!(silence.answered(later), Duration::ZERO);
        silence.asked(later + Duration::from_secs(9));
        assert_eq!(silence.failed(later + Duration::from_secs(9)), Duration::ZERO);
    }
}
