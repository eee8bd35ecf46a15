//! The process is killed without warning, again and again, under load: what it acknowledged is still true.

use std::path::Path;
use std::process::Command;

use leasehold_api::PatchEvent;
use leasehold_client::Request;
use leasehold_testkit::{History, Random, Shop, Stage, Workload, kill_rounds_with};

const KILLS: usize = 100;
const BUYERS: usize = 32;

/// The file as the kill left it, its write-ahead log beside it, keeps every invariant.
fn assert_sound(data: &Path) {
    let checked = Command::new(env!("CARGO_BIN_EXE_leasehold")).arg("check").arg(data).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains("all invariants hold"), "{checked:?}");
    assert!(said.contains("1 events, 12 seats"), "what was written can be read: {said}");
}

/// Somebody pays twice, as seldom happens in the crowd: the second payment must be given back, whatever is killed after.
async fn pay_twice(stage: &Stage, shop: &Shop) {
    let mut desk = stage.desk(BUYERS + 1);
    let hold = desk.granted(&shop.event, &shop.seats[0], 60_000).await;
    let booking = desk.sold(&hold, Some("pay-first")).await;
    let second = desk.confirm(&hold, Some("pay-second")).await;
    assert_eq!(second.code().as_deref(), Some("refund-due"), "{second:?}");
    assert_eq!(desk.cancel(&booking.booking_id).await.status, 200);
}

/// The event is closed and opened again, which takes a hold away: it does not come back with any of the kills.
async fn close_and_open(stage: &Stage, shop: &Shop) {
    let mut desk = stage.desk(BUYERS + 2);
    let hold = desk.granted(&shop.event, &shop.seats[0], 600_000).await;
    for state in ["closed", "open"] {
        let patch = PatchEvent { state: Some(state.to_owned()), ..PatchEvent::default() };
        let answer = desk.send(Request::patch(format!("/v1/events/{}", shop.event), &patch)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(desk.show_hold(&hold).await.state, "revoked");
}

/// What was answered as it should be: a rule that no request puts to the test has kept nothing.
fn assert_everything_was_done(history: &History) {
    let writes = [
        ("POST", "/blocks", ""),
        ("DELETE", "/blocks/", ""),
        ("PATCH", "/v1/events/", "capacity"),
        ("POST", "/holds", "best"),
        ("PATCH", "/v1/holds/", "add"),
        ("PATCH", "/v1/holds/", "remove"),
        ("POST", "/confirm", "items"),
        ("POST", "/cancel", ""),
        ("POST", "/payment/failed", ""),
        ("POST", "/revoke", ""),
    ];
    for (method, path, word) in writes {
        let done = history.count_since(0, |operation| {
            let request = &operation.request;
            let named = request.method == method && request.path.contains(path);
            named && String::from_utf8_lossy(&request.body).contains(word) && operation.acknowledged()
        });
        assert!(done > 0, "no {method} {path} with {word:?} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_a_hundred_kills() {
    let seed = Random::seed_of_this_run("kill_loop");
    let mut random = Random::new(seed);
    let mut stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut workload = Workload::new(random.next_u64(), BUYERS, Shop::small(), &stage.history);
    workload.open_shop(stage.address()).await;
    pay_twice(&stage, &Shop::small()).await;
    close_and_open(&stage, &Shop::small()).await;

    let data = stage.data();
    let look = |kill| {
        if kill % 10 == 0 {
            assert_sound(&data);
        }
    };
    let kills = kill_rounds_with(&mut stage, &mut workload, &mut random, KILLS, look).await;
    println!("seed {seed}: {kills:?}");
    let most = KILLS * 7 / 10;
    assert!(kills.after_work >= most, "too many lives without acknowledged work: {kills:?}");
    assert!(kills.in_flight >= most, "too many kills with nothing in flight: {kills:?}");

    let checked = stage.judge().await;
    println!("seed {seed}: {} requests, {} unknown", checked.operations, checked.unknown);
    checked.assert_clean();
    checked.assert_meaningful(KILLS * 20);
    assert!(checked.unknown >= most);
    assert_everything_was_done(&stage.history);
    assert!(!stage.server.log().contains("panicked"), "the last life panicked:\n{}", stage.server.log());
}
