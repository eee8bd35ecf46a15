//! Faults put in on purpose. The tests must find each of them, or they find nothing.
//!
//! Without the feature `planted-bugs`, which no release has, none of them exists.

/// A fault that a checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The caller is told before the commit.
    AnswerBeforeCommit,
    /// The caller is told although the commit failed.
    AnswerAfterFailedCommit,
    /// Anyone may release any hold.
    NoOwnerCheckOnRelease,
    /// The idempotency record is written after the effect, in a commit of its own.
    IdempotencyOutsideCommit,
}

/// Whether this fault was asked for.
#[cfg(feature = "planted-bugs")]
pub(crate) fn planted(bug: Bug) -> bool {
    static ASKED: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let asked = ASKED.get_or_init(|| std::env::var("LEASEHOLD_PLANTED_BUG").unwrap_or_default());
    asked
        == match bug {
            Bug::AnswerBeforeCommit => "answer-before-commit",
            Bug::AnswerAfterFailedCommit => "answer-after-failed-commit",
            Bug::NoOwnerCheckOnRelease => "no-owner-check-on-release",
            Bug::IdempotencyOutsideCommit => "idempotency-outside-commit",
        }
}

/// Never.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
