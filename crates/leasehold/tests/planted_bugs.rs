//! Bugs put in on purpose: the checks that found nothing must be able to find something.
//!
//! Needs `--features planted-bugs`, with which the engine reads `LEASEHOLD_PLANTED_BUG`.

use std::path::Path;

use leasehold_testkit::{
    Checked, Launch, Random, Rule, Shop, Stage, Workload, fail_syncs, kill_rounds, repeat_after_kill,
};

const KILLS_A_BATCH: usize = 10;
const BATCHES_MAX: usize = 15;
const BUYERS: usize = 32;
const BUG: &str = "LEASEHOLD_PLANTED_BUG";

fn open(bug: Option<&str>) -> Stage {
    let plant = |launch: Launch| match bug {
        Some(bug) => launch.variable(BUG, bug),
        None => launch,
    };
    Stage::open_with(Path::new(env!("CARGO_BIN_EXE_leasehold")), plant)
}

/// Kills a server with this bug until the checker says that one of these promises was broken, or the batches are used up.
async fn kill_until_caught(test: &str, bug: Option<&str>, broken: &[Rule], batches_max: usize) -> Checked {
    let mut random = Random::new(Random::seed_of_this_run(test));
    let mut stage = open(bug);
    let mut workload = Workload::new(random.next_u64(), BUYERS, Shop::small(), &stage.history);
    workload.open_shop(stage.address()).await;
    let mut batch = 1;
    loop {
        let kills = kill_rounds(&mut stage, &mut workload, &mut random, KILLS_A_BATCH).await;
        assert!(kills.in_flight > 0, "no request was in flight: {kills:?}");
        let checked = stage.judge().await;
        checked.assert_meaningful(KILLS_A_BATCH);
        if broken.iter().any(|rule| checked.broke(*rule)) || batch == batches_max {
            println!("{test}: {} violations after {} kills", checked.violations.len(), batch * KILLS_A_BATCH);
            return checked;
        }
        batch += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_commit_is_caught() {
    let (bug, lost) = ("answer-before-commit", [Rule::NothingLost, Rule::StatesExplained]);
    let checked = kill_until_caught(bug, Some(bug), &lost, BATCHES_MAX).await;
    assert!(
        lost.iter().any(|rule| checked.broke(*rule)),
        "a lost acknowledgement was not found: {:?}",
        checked.violations
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_owner_check_is_caught() {
    let bug = "no-owner-check-on-release";
    let checked = kill_until_caught(bug, Some(bug), &[Rule::OwnersOnly], BATCHES_MAX).await;
    assert!(checked.broke(Rule::OwnersOnly), "a stranger's release was not found: {:?}", checked.violations);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_outside_the_commit_is_caught() {
    let bug = "idempotency-outside-commit";
    let mut random = Random::new(Random::seed_of_this_run(bug));
    for attempt in 1..=5 {
        let mut stage = open(Some(bug));
        repeat_after_kill(&mut stage, &mut random, 40, 8_000).await;
        let checked = stage.judge().await;
        checked.assert_meaningful(1);
        if checked.broke(Rule::CountersAdd) || checked.broke(Rule::KeysOnce) {
            println!("caught in attempt {attempt}: {:?}", checked.violations);
            return;
        }
    }
    panic!("a key that is not part of the commit was not found in 200 kills");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_a_failed_commit_is_caught() {
    let bug = "answer-after-failed-commit";
    let mut random = Random::new(Random::seed_of_this_run(bug));
    // One after the other, so that whoever is in the commit that fails asked after the last good one; and early, when
    // most requests are for holds, with room for all of them.
    let seats = (1..=100).map(|number| format!("A-{number}")).collect();
    let shop = Shop { seats, ..Shop::small() };
    for fail_from in (5..=12).cycle().take(24) {
        let mut stage = open(Some(bug));
        let mut workload = Workload::new(random.next_u64(), 1, shop.clone(), &stage.history);
        workload.open_shop(stage.address()).await;
        assert!(stage.server.sigterm_and_wait().success());
        let seen = fail_syncs(&stage, &mut workload, fail_from).await;
        println!("failing from sync {fail_from}: {} unanswered, {} lies", seen.unanswered, seen.lies.len());
        if !seen.lies.is_empty() {
            return;
        }
    }
    panic!("an answer after a failed commit was not found in 24 faults");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_planted_bug_nothing_is_found() {
    let checked = kill_until_caught("no-bug", None, &[], 3).await;
    checked.assert_clean();
    let mut random = Random::new(Random::seed_of_this_run("no-bug-keys"));
    let mut stage = open(None);
    let seen = repeat_after_kill(&mut stage, &mut random, 20, 8_000).await;
    assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
    stage.judge().await.assert_clean();
}
