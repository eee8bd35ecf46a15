//! A buyer confirms in time, and stands still before the request is out: it arrives when the hold is over.

use std::time::{Duration, Instant};

use leasehold_api::{BookingView, CreateEvent, ItemSpec, SeatSpec};
use leasehold_testkit::servers::{Direction, FaultProxy, Postgres, RedisCluster};
use leasehold_testkit::{Answer, Desk, Granted, History};
use tokio::task::JoinSet;

use crate::replicas::{Replicas, gated};
use crate::round::Round;

const TTL_MS: u64 = 1_000;
const LATE: Duration = Duration::from_secs(4);
/// How long it may take until something that everybody wants is free.
const GRANT_TIME_MAX: Duration = Duration::from_secs(30);
const LATE_BUYERS: usize = 18;

/// What the rules allow a late confirm to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Revived,
    RefundDue,
    Expired,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_confirm_is_revived_or_refused_and_never_a_second_sale() {
    let (ledger, redis) = (Postgres::start(), RedisCluster::start());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let round = Round::begin("late", &replicas).await;
    let addresses = replicas.addresses();
    let (mut slow, mut proxies) = (Vec::new(), Vec::new());
    for address in &addresses {
        let proxy = FaultProxy::start(address).await;
        proxy.delay(Direction::Requests, LATE);
        slow.push(proxy.address());
        proxies.push(proxy);
    }
    round.moment();

    // Among all the others, who want the same seats and units.
    let mut late = JoinSet::new();
    for number in 0..LATE_BUYERS {
        let at = |list: &[String], step: usize| list[(number + step) % list.len()].clone();
        let desks =
            [at(&addresses, 0), at(&slow, 1)].map(|at| Desk::new(&at, 2_000 + number, &round.history));
        late.spawn(confirm_late(desks, round.event.clone(), number));
    }
    let alone = one_after_the_other(&addresses, &slow, &round.history);
    let (told, ()) = tokio::join!(late.join_all(), alone);
    println!("late confirms among others were told {told:?}");
    assert_eq!(told.len(), LATE_BUYERS);
    assert!(proxies.iter().all(|proxy| proxy.traffic().request_bytes > 0), "nothing was late");
    round.judge(Instant::now(), &replicas, &ledger).await;
}

/// Holds a seat or a unit, and confirms it at another server, too late.
async fn confirm_late(desks: [Desk; 2], event: String, number: usize) -> Told {
    let [mut desk, mut slow] = desks;
    let seat = ItemSpec::seat(format!("A-{}", number % 3 + 1));
    let hold = granted_in_time(&mut desk, &event, &[seat, ItemSpec::pool("floor", 1)], TTL_MS).await;
    let payment = (number % 6 != 5).then(|| format!("late-{number}"));
    let asked = Instant::now();
    let answer = slow.confirm(&hold, payment.as_deref()).await;
    assert!(asked.elapsed() >= LATE, "the confirm was not late");
    told(&answer, payment.is_some())
}

/// The three cases of the rules, where nobody else disturbs them.
async fn one_after_the_other(addresses: &[String], slow: &[String], history: &History) {
    let desk = |at: &str, number: usize| Desk::new(at, 3_000 + number, history);
    let (mut first, mut second) = (desk(&addresses[0], 0), desk(&addresses[1], 1));
    let seats = (1..=3).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    first.create_event(&CreateEvent { id: "late-alone".to_owned(), seats, ..CreateEvent::default() }).await;
    let mut holds = Vec::new();
    for seat in ["A-1", "A-2", "A-3"] {
        holds.push(first.granted("late-alone", seat, TTL_MS).await);
    }
    let mut late: Vec<Desk> = (0..3).map(|number| desk(&slow[number], 2 + number)).collect();
    let [taken, free, unpaid] = &mut late[..] else { unreachable!("three desks") };
    let others = async {
        let other = granted_in_time(&mut second, "late-alone", &[ItemSpec::seat("A-1")], 60_000).await;
        second.sold(&other, Some("in-time")).await
    };
    let (taken, free, unpaid, booking) = tokio::join!(
        taken.confirm(&holds[0], Some("late-taken")),
        free.confirm(&holds[1], Some("late-free")),
        unpaid.confirm(&holds[2], None),
        others,
    );
    assert_eq!(told(&taken, true), Told::RefundDue, "{taken:?}");
    assert_eq!(told(&free, true), Told::Revived, "{free:?}");
    assert_eq!(told(&unpaid, false), Told::Expired, "{unpaid:?}");
    assert_eq!(second.show_booking(&booking.booking_id).await.state, "booked");
    for address in addresses {
        let again = desk(address, 9).hold("late-alone", vec![ItemSpec::seat("A-2")], TTL_MS).await;
        assert_eq!(again.code().as_deref(), Some("seat-taken"), "what was revived is sold: {again:?}");
    }
}

/// Asks for a hold of one of these until one is granted.
async fn granted_in_time(desk: &mut Desk, event: &str, items: &[ItemSpec], ttl_ms: u64) -> Granted {
    let begun = Instant::now();
    let mut items = items.iter().cycle();
    loop {
        let item = items.next().expect("something to hold");
        let answer = desk.hold(event, vec![item.clone()], ttl_ms).await;
        if let Some(hold) = Granted::of(&answer) {
            return hold;
        }
        assert!(begun.elapsed() < GRANT_TIME_MAX, "{item:?} is never free: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a late confirm was told; panics when that is not what the rules say.
fn told(answer: &Answer, has_payment: bool) -> Told {
    let revived = answer.view::<BookingView>().is_some_and(|booking| booking.revived);
    match (answer.status, answer.code().as_deref(), has_payment) {
        (201, None, true) if revived => Told::Revived,
        (409, Some("refund-due"), true) => Told::RefundDue,
        (410, Some("hold-expired"), false) => Told::Expired,
        _ => panic!("a late confirm (with a payment: {has_payment}) was told {answer:?}"),
    }
}
