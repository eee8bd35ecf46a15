//! What all servers have in common: one stream of changes, and one cap on payments in flight.

use leasehold_api::{CreateEvent, ItemSpec, PolicySpec, PoolSpec};
use leasehold_testkit::servers::{Postgres, RedisCluster};
use leasehold_testkit::{Answer, Desk, Granted, History, check, cut_streams, read_back};
use tokio::task::JoinSet;

use crate::replicas::{Replicas, gated};

const PAYERS: usize = 48;
const PAYMENTS_MAX: u32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_goes_on_at_any_server_without_a_gap() {
    let (ledger, redis, history) = (Postgres::start(), RedisCluster::start(), History::new());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let addresses = replicas.addresses();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    cut_streams(&addresses, &history).await;
    read_back(addresses[2], &history).await;
    check(&history).assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_in_flight_are_capped_over_all_servers_at_once() {
    let (ledger, redis, history) = (Postgres::start(), RedisCluster::start(), History::new());
    let replicas = Replicas::start(|_| gated(&ledger.url(), &redis.url()));
    let addresses = replicas.addresses();
    let desk = |number: usize| Desk::new(&addresses[number % addresses.len()], number, &history);
    let pools = vec![PoolSpec { id: "floor".to_owned(), capacity: PAYERS as u32 }];
    let policy = Some(PolicySpec { payments_in_flight_max: Some(PAYMENTS_MAX), ..PolicySpec::default() });
    let event = CreateEvent { id: "gala".to_owned(), pools, policy, ..CreateEvent::default() };
    desk(0).create_event(&event).await;
    let mut payers = Vec::new();
    for number in 0..PAYERS {
        let mut desk = desk(number);
        let answer = desk.hold("gala", vec![ItemSpec::pool("floor", 1)], 60_000).await;
        payers.push((desk, Granted::of(&answer).expect("a unit for everybody")));
    }

    // Everybody pays at once, again and again: five at a time get through, and are sold or give up.
    let mut rounds = 0;
    while !payers.is_empty() {
        let left = payers.len();
        let mut paying = JoinSet::new();
        for (mut desk, hold) in payers.drain(..) {
            paying.spawn(async move {
                let answer = desk.begin_payment(&hold, &format!("pay-{}", hold.id), 60_000).await;
                (desk, hold, answer)
            });
        }
        let (begun, told): (Vec<_>, Vec<_>) =
            paying.join_all().await.into_iter().partition(|(_, _, answer)| answer.is_success());
        assert_eq!(begun.len(), left.min(PAYMENTS_MAX as usize), "of {left} at once");
        assert!(told.iter().all(|(_, _, answer)| is_busy(answer)), "{told:?}");
        for (place, (mut desk, hold, _)) in begun.into_iter().enumerate() {
            let reference = format!("pay-{}", hold.id);
            if place % 2 == 0 {
                desk.sold(&hold, Some(&reference)).await;
            } else {
                assert!(desk.payment_failed(&hold, &reference).await.is_success());
                assert!(desk.release(&hold).await.is_success());
            }
        }
        payers = told.into_iter().map(|(desk, hold, _)| (desk, hold)).collect();
        rounds += 1;
    }
    assert_eq!(rounds, PAYERS.div_ceil(PAYMENTS_MAX as usize));
    read_back(&addresses[2], &history).await;
    check(&history).assert_clean();
}

/// Told to come back when fewer pay.
fn is_busy(answer: &Answer) -> bool {
    answer.code().as_deref() == Some("payments-busy")
}
