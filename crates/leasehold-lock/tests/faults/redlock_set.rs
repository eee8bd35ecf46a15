//! Redlock and the set of its servers: who counts, how many, and what happens when they are divided.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::backend::{Attempt, Backend, Held, Order, Request};
use leasehold_lock::{Acquired, BadRedlock, LockError, Locker, Names, Owner, Redlock, Ttl};
use leasehold_testkit::servers::{RedisServer, independent};

use crate::support::{LONG, granted, in_time, owner_on, redlock, take, until};

/// Pitfall 3: two names of one server are one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_03_same_server_twice_is_refused() {
    let servers = independent(2);
    let (first, second) = (servers[0].port(), servers[1].port());
    let twice = Redlock::open(&format!("redlock://127.0.0.1:{first},127.0.0.1:{second},127.0.0.1:{first}"));
    assert!(matches!(twice, Err(BadRedlock::Twice(_))), "{twice:?}");
    let url = format!("redlock://127.0.0.1:{first},127.0.0.1:{second},localhost:{first}");
    let locker = Locker::new(Redlock::open(&url).unwrap());
    for _ in 0..3 {
        let answer = in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await;
        assert!(matches!(answer, Err(LockError::Refused { .. })), "{answer:?}");
    }
    assert!(servers.iter().all(|server| owner_on(server, "job").is_none()));
}

/// Majorities of sets of different size need not meet, so a server belongs to one size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_03_set_of_another_size_is_refused() {
    let servers = independent(5);
    let three = Locker::new(redlock(&servers[..3]));
    let before = take(&three, "job").await;
    for others in [&servers[..], &servers[..1], &servers[2..]] {
        if others.len() == 3 {
            continue;
        }
        let locker = Locker::new(redlock(others));
        let answer = in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await;
        assert!(matches!(answer, Err(LockError::Refused { .. })), "{answer:?}");
    }
    assert!(take(&three, "job").await > before, "those who were first go on");
}

/// Pitfall 4: half of the votes is no majority, and nobody is left waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_04_split_vote_ends_as_busy_and_gives_everything_back() {
    for count in [2, 4] {
        let servers = independent(count);
        let locker = Locker::new(redlock(&servers));
        take(&locker, "job").await;
        let (mine, foreign) = servers.split_at(count / 2);
        for server in foreign {
            let () = server.command(&["SET", "lock:job", "somebody-elses-token", "PX", "60000"]);
        }
        let answer = in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await;
        assert!(matches!(answer, Ok(Acquired::Busy(_))), "{count} servers: {answer:?}");
        for server in mine {
            until("own votes are given back", async || owner_on(server, "job").is_none()).await;
        }
        for server in foreign {
            assert_eq!(owner_on(server, "job").as_deref(), Some("somebody-elses-token"));
        }
    }
}

/// Pitfall 4: rivals on an even number of servers outvote each other for a while, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pitfall_04_rivals_on_an_even_number_of_servers_all_get_their_turn() {
    for count in [2, 4] {
        let servers = Arc::new(independent(count));
        let rivals: Vec<_> = (0..4)
            .map(|_| {
                let servers = servers.clone();
                tokio::spawn(async move {
                    let locker = Locker::new(redlock(&servers));
                    for _ in 0..5 {
                        take(&locker, "job").await;
                    }
                })
            })
            .collect();
        for rival in rivals {
            in_time("every rival gets its turn", rival).await.unwrap();
        }
    }
}

/// Pitfall 1: with less than a tenth of its length left a lease is refused, and given back everywhere. A server that had
/// not voted by then, or whose vote was over before anybody looked, makes it another case: then there is another round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_01_lease_that_is_almost_over_is_refused_and_given_back() {
    const ROUNDS: u32 = 5;
    let servers = independent(3);
    let store = redlock(&servers);
    let length = Duration::from_millis(1_500);
    take(&Locker::new(redlock(&servers)), "job").await;
    let names = Names::try_from("job").unwrap();
    let warm = Owner::random(None);
    let held = |owner: &Owner| Held {
        names: names.clone(),
        owner: owner.clone(),
        ttl: Ttl::new(length).unwrap(),
        order: Order::Any,
    };
    let ask = |held: Held| {
        let store = &store;
        async move {
            let Held { names, owner, ttl, order } = &held;
            store.try_acquire(&Request { names, owner, ttl: *ttl, order: *order }).await
        }
    };
    assert!(matches!(ask(held(&warm)).await, Ok(Attempt::Granted(_))));
    store.release(&held(&warm)).await.unwrap();
    for _ in 0..ROUNDS {
        let owner = Owner::random(None);
        let mut asking = Box::pin(ask(held(&owner)));
        // Asked once, then this thread is held up for as long as the lease is good; the votes come in meanwhile.
        assert!(is_pending(&mut asking).await);
        std::thread::sleep(length.mul_f64(0.87));
        let votes = servers.iter().filter(|server| owner_on(server, "job").is_some()).count();
        let answer = asking.await;
        assert!(answer.is_err(), "almost nothing was left of it: {answer:?}");
        for server in &servers {
            until("it is given back", async || owner_on(server, "job").is_none()).await;
        }
        if votes == servers.len() {
            return;
        }
    }
    panic!("not all servers had voted for it, {ROUNDS} times in a row");
}

/// Pitfall 1: whoever was held up for longer than two seconds on the way has nothing, however long the lease
/// is: a quarantine is only sure to outlast two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_01_acquisition_that_was_held_up_is_refused_and_given_back() {
    let servers = independent(3);
    let store = redlock(&servers);
    let (names, length) = (Names::try_from("job").unwrap(), Ttl::new(LONG).unwrap());
    let mut held_up = 0;
    for polls in 0.. {
        let owner = Owner::random(None);
        let request = Request { names: &names, owner: &owner, ttl: length, order: Order::Any };
        let mut asking = store.try_acquire(&request);
        if finishes_within(&mut asking, polls, Duration::from_millis(50)).await {
            break;
        }
        // This thread is held up; the next poll finds the answers there.
        std::thread::sleep(if polls == 0 { Duration::ZERO } else { Duration::from_millis(2_100) });
        let answer = in_time("an answer", asking).await;
        if polls == 0 {
            // Connected now, and everybody votes.
            assert!(matches!(answer, Ok(Attempt::Granted(_))), "{answer:?}");
        } else {
            assert!(answer.is_err(), "held up after {polls} polls: {answer:?}");
            held_up += 1;
        }
        let held = Held { names: names.clone(), owner, ttl: length, order: Order::Any };
        if polls == 0 {
            store.release(&held).await.unwrap();
        }
        for server in &servers {
            until("it is given back", async || owner_on(server, "job").is_none()).await;
        }
    }
    assert!(held_up >= 2, "it was held up in both rounds: {held_up}");
}

/// Polls so many times, with pauses in which answers to what was sent come in.
async fn finishes_within<F: Future + Unpin>(future: &mut F, polls: usize, pause: Duration) -> bool {
    for _ in 0..polls {
        if !is_pending(future).await {
            return true;
        }
        tokio::time::sleep(pause).await;
    }
    false
}

/// Polls once.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

/// A lock that was force-deleted by hand leaves its fence behind. Whoever asks twice must not be given it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_of_a_lease_that_was_deleted_by_hand_is_not_given_to_the_next_owner() {
    let servers = independent(3);
    let locker = Locker::new(redlock(&servers));
    let store = redlock(&servers);
    let length = Ttl::new(LONG).unwrap();
    // Connected before, so that the first poll sends the votes.
    let (names, owner) = (Names::try_from("first").unwrap(), Owner::random(None));
    let request = Request { names: &names, owner: &owner, ttl: length, order: Order::Any };
    assert!(matches!(store.try_acquire(&request).await, Ok(Attempt::Granted(_))));
    for polls in 1..40 {
        let name = format!("job-{polls}");
        let first = granted(locker.acquire(&name).ttl(LONG).await);
        delete_lock(&servers, &name);
        let (names, owner) = (Names::try_from(&name).unwrap(), Owner::random(None));
        let request = Request { names: &names, owner: &owner, ttl: length, order: Order::Any };
        // The first attempt is dropped somewhere on its way, the second is the same owner's.
        let mut asking = store.try_acquire(&request);
        let finished = finishes_within(&mut asking, polls, Duration::from_millis(2)).await;
        drop(asking);
        if finished {
            assert!(polls > 1, "nothing was dropped on the way");
            return;
        }
        match in_time("an answer", store.try_acquire(&request)).await {
            Ok(Attempt::Granted(grant)) => {
                let fence = grant.fences.unwrap()[0];
                assert!(
                    Some(fence) > first.fence(),
                    "given out twice: {fence:?}, dropped after {polls} polls"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it never finished");
}

fn delete_lock(servers: &[RedisServer], name: &str) {
    let delete = |server: &RedisServer| server.command::<u32>(&["DEL", &format!("lock:{name}")]);
    let deleted: u32 = servers.iter().map(delete).sum();
    assert!(deleted >= 2, "it was on most servers");
}
