//! Every way in which two acquisitions over three servers can go, looked at one by one.
//!
//! The two rounds of `redlock/mod.rs` and its scripts are modelled with all that can happen to them: a
//! lock may end at any moment, so no clock is trusted; a message may be late, also by any amount, lost, or
//! delivered twice; a client may stop counting at any point; a server may forget everything; a lock that was granted may
//! be set again where it is not. What is
//! searched for are two acquisitions with the same fence, and one that began after another was granted and
//! has a fence that is not higher.
//!
//! The same search finds what is wrong with six simpler ways to count, so it is able to find something.

mod packed;
mod search;
mod world;

use search::{Verdict, explore};
use world::{Amnesia, Counting, Rules, Voters};

/// The rounds as they are implemented, without forgetful servers.
const IMPLEMENTED: Rules = Rules {
    counting: Counting::Strict,
    voters: Voters::Any,
    owner_is_checked: true,
    proposals: 2,
    duplicates: 0,
    amnesia: Amnesia::Never,
    heals: true,
};

/// What was first proposed: the counter becomes the highest seen, and only servers of the first round count.
const MAX: Rules = Rules {
    counting: Counting::Max,
    voters: Voters::OfTheFirstRound,
    proposals: 1,
    heals: false,
    ..IMPLEMENTED
};

#[track_caller]
fn holds(rules: Rules) {
    let verdict = explore(rules);
    eprintln!("{rules:?}: {verdict:?}");
    assert!(matches!(verdict, Verdict::Holds { states } if states > 10_000), "{verdict:?}");
}

#[track_caller]
fn breaks(rules: Rules) {
    let verdict = explore(rules);
    eprintln!("{rules:?}: {verdict:?}");
    assert!(matches!(verdict, Verdict::Broken { .. }), "the search has gone blind: {verdict:?}");
}

#[test]
fn strict_counter_gives_no_fence_twice_and_none_that_is_lower() {
    holds(IMPLEMENTED);
}

#[test]
fn strict_counter_withstands_a_command_that_is_delivered_twice() {
    holds(Rules { proposals: 1, duplicates: 1, ..IMPLEMENTED });
}

#[test]
fn strict_counter_withstands_a_forgetful_server_in_quarantine() {
    holds(Rules { proposals: 1, amnesia: Amnesia::Quarantined, ..IMPLEMENTED });
}

#[test]
fn max_counter_holds_while_nothing_is_repeated() {
    holds(MAX);
}

#[test]
fn naive_counter_gives_a_fence_twice() {
    breaks(Rules { counting: Counting::Naive, ..MAX });
}

#[test]
fn max_counter_breaks_when_servers_count_that_were_not_in_the_first_round() {
    breaks(Rules { voters: Voters::Any, ..MAX });
}

#[test]
fn max_counter_breaks_when_a_command_is_delivered_twice() {
    breaks(Rules { duplicates: 1, ..MAX });
}

#[test]
fn max_counter_breaks_without_a_check_of_the_owner() {
    breaks(Rules { owner_is_checked: false, ..MAX });
}

#[test]
fn strict_counter_breaks_when_a_server_forgets() {
    breaks(Rules { proposals: 1, amnesia: Amnesia::Unnoticed, ..IMPLEMENTED });
}

#[test]
fn strict_counter_breaks_when_a_forgetful_server_copies_the_others_at_once() {
    breaks(Rules { proposals: 1, amnesia: Amnesia::CopiedAtOnce, ..IMPLEMENTED });
}
