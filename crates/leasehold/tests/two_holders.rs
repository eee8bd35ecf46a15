//! Two holders fight for one seat over expiry, release, extension and sale: never both have it.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold_api::{BookingView, CreateEvent, ItemSpec, PolicySpec, SeatSpec};
use leasehold_testkit::{Answer, Desk, Granted, History, Random, Stage, request_bytes, try_exchange};

/// The shortest life a hold may ask for.
const TTL_MS: u64 = 1_000;
const FIGHT: Duration = Duration::from_secs(15);

/// What one fighter did with the seat.
#[derive(Debug, Default)]
struct Fought {
    granted: usize,
    refused: usize,
    expired: usize,
    fences: Vec<(Duration, u64)>,
}

impl Fought {
    /// Whether it was done. On a machine that stands still for a moment a hold may be over before its holder goes on; until
    /// then everything must work.
    fn was_in_time(&mut self, answer: &Answer, asked: Instant) -> bool {
        let is_over = (answer.status, answer.code().as_deref()) == (410, Some("hold-expired"));
        let is_excused = is_over && asked.elapsed() >= Duration::from_millis(TTL_MS);
        assert!(answer.is_success() || is_excused, "{answer:?}");
        self.expired += usize::from(is_over);
        !is_over
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_holders_never_have_one_seat_and_fences_grow() {
    let seed = Random::seed_of_this_run("two_holders");
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let policy =
        PolicySpec { units_per_holder_max: Some(0), extends_max: Some(100), ..PolicySpec::default() };
    let event = CreateEvent {
        id: "duel".to_owned(),
        seats: vec![SeatSpec::Id("A-1".to_owned())],
        policy: Some(policy),
        ..CreateEvent::default()
    };
    stage.desk(0).create_event(&event).await;
    let fighter = |number: usize| {
        let random = Random::new(seed.wrapping_add(number as u64));
        tokio::spawn(fight(stage.desk(number), random, stage.history.clone()))
    };
    let (first, second) = (fighter(1), fighter(2));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    println!("{first:?}\n{second:?}");
    for fought in [&first, &second] {
        assert!(fought.granted >= 3, "one of them hardly ever got the seat: {fought:?}");
        assert!(fought.refused > 0, "one of them was never refused: {fought:?}");
    }
    assert!(first.expired + second.expired >= 3, "the seat hardly ever passed on by expiry");

    let mut fences = [first.fences, second.fences].concat();
    fences.sort_unstable();
    assert!(fences.windows(2).all(|pair| pair[0].1 < pair[1].1), "fences in order of grants: {fences:?}");
    let checked = stage.judge().await;
    checked.assert_clean();
    checked.assert_meaningful(20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_paused_past_the_end_of_a_hold_does_not_honour_it() {
    let mut stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let seats = vec![SeatSpec::Id("A-1".to_owned())];
    let event = CreateEvent { id: "duel".to_owned(), seats, ..CreateEvent::default() };
    let mut desk = stage.desk(0);
    desk.create_event(&event).await;
    let late = desk.granted("duel", "A-1", TTL_MS).await;
    stage.server.sigstop();
    let address = stage.address().to_owned();
    let paused = request_bytes("GET", "/healthz", &[], b"");
    assert!(
        try_exchange(&address, &paused, Duration::from_millis(TTL_MS + 500)).is_none(),
        "it was not paused"
    );
    stage.server.sigcont();
    let answer = desk.confirm(&late, None).await;
    assert_eq!((answer.status, answer.code().as_deref()), (410, Some("hold-expired")));
    let next = desk.granted("duel", "A-1", 60_000).await;
    assert!(next.view.items[0].fence > late.view.items[0].fence);
    desk.sold(&next, None).await;
    stage.judge().await.assert_clean();
}

async fn fight(mut desk: Desk, mut random: Random, history: History) -> Fought {
    let mut fought = Fought::default();
    let until = Instant::now() + FIGHT;
    while Instant::now() < until {
        let asked = Instant::now();
        let answer = desk.hold("duel", vec![ItemSpec::seat("A-1")], TTL_MS).await;
        let Some(hold) = Granted::of(&answer) else {
            assert_eq!((answer.status, answer.code().as_deref()), (409, Some("seat-taken")));
            fought.refused += 1;
            tokio::time::sleep(Duration::from_millis(random.within(1..20))).await;
            continue;
        };
        fought.granted += 1;
        let fence = hold.view.items[0].fence.expect("a seat comes with a fence");
        fought.fences.push((history.now(), fence));
        match random.within(0..4) {
            0 => _ = fought.was_in_time(&desk.release(&hold).await, asked),
            1 => {
                if fought.was_in_time(&desk.extend(&hold, TTL_MS + 200).await, asked) {
                    wait_until_over(&mut desk, &hold, &mut fought).await;
                }
            }
            2 => {
                let sold = desk.confirm(&hold, None).await;
                if fought.was_in_time(&sold, asked) {
                    let booking: BookingView = sold.view().expect("a booking");
                    assert!(desk.cancel(&booking.booking_id).await.is_success());
                }
            }
            _ => wait_until_over(&mut desk, &hold, &mut fought).await,
        }
        // Give the other one a chance.
        tokio::time::sleep(Duration::from_millis(random.within(5..40))).await;
    }
    fought
}

/// Watches the own hold until the server says that it is over; then it must not work any more.
async fn wait_until_over(desk: &mut Desk, hold: &Granted, fought: &mut Fought) {
    for _ in 0..500 {
        if desk.show_hold(hold).await.state == "expired" {
            fought.expired += 1;
            let late = desk.extend(hold, TTL_MS).await;
            assert_eq!((late.status, late.code().as_deref()), (410, Some("hold-expired")));
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("hold {} of {TTL_MS} ms lives after 10 s", hold.id);
}
