//! One Redis server that loses its memory, and the authority that keeps its fences from going back.

use std::time::Duration;

use leasehold_lock::{Epochs, Fence, LeaseState, LockError, Locker, LostReason, Redis};
use leasehold_testkit::servers::{Direction, FaultProxy, Persistence, Postgres, RedisServer};

use crate::support::{LONG, fenced, granted, in_time, owner_on, take, until};

const PLAIN_COUNTER: &str = "plain";

/// A few fences, growing, and above `floor`.
async fn some_fences(locker: &Locker, floor: Option<Fence>) -> Fence {
    let mut last = floor;
    for _ in 0..5 {
        let fence = take(locker, "job").await;
        assert!(last < Some(fence), "{last:?}, then {fence:?}");
        last = Some(fence);
    }
    last.unwrap()
}

fn count(server: &RedisServer) -> i64 {
    server.command(&["INCR", PLAIN_COUNTER])
}

/// Pitfall 13: a flush takes locks and counters away. The holder is told, fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_flushed_server_goes_on_with_higher_fences_and_its_holders_are_told() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    let before = some_fences(&locker, None).await;
    let holder = granted(locker.acquire("held").ttl(Duration::from_secs(6)).await);
    let plain = count(&server);
    let () = server.command(&["FLUSHALL"]);
    assert!(count(&server) <= plain, "the plain counter went on: nothing was flushed");
    let after = some_fences(&locker, Some(before)).await;
    assert_eq!(in_time("the holder is told", holder.lost()).await, LostReason::Gone);
    assert_eq!(holder.state(), LeaseState::Lost);
    assert!(take(&locker, "held").await > holder.fence().unwrap());
    assert!(before < after);
}

/// Pitfall 13: clients with other key prefixes share the server's counters, so they share the epochs, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_clients_with_other_prefixes_do_not_bring_fences_back_after_a_flush() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let with_prefix = |prefix| {
        let redis = Redis::open(&server.url()).unwrap().with_prefix(prefix);
        Locker::new(redis.with_epochs(Epochs::open(&postgres.url()).unwrap()))
    };
    // One lock key under two prefixes: the same slot, and the same counter.
    let (jobs, tasks) = (with_prefix("jobs:{"), with_prefix("tasks:{"));
    let mut last = None;
    for _ in 0..3 {
        for locker in [&jobs, &tasks] {
            let fence = take(locker, "a}").await;
            assert!(last < Some(fence), "{last:?}, then {fence:?}");
            last = Some(fence);
            let () = server.command(&["FLUSHALL"]);
        }
    }
}

/// Pitfall 13: killed, and started again with an empty disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_server_restarted_empty_goes_on_with_higher_fences() {
    let (mut server, postgres) = (RedisServer::start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    let mut last = some_fences(&locker, None).await;
    for _ in 0..3 {
        let plain = count(&server);
        server.kill9();
        server.restart_empty();
        assert!(count(&server) <= plain, "the plain counter went on: nothing was lost");
        last = some_fences(&locker, Some(last)).await;
    }
}

/// Pitfall 13: started again from a snapshot of an earlier time, which brings old counters back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_server_restarted_from_an_old_snapshot_goes_on_with_higher_fences() {
    let postgres = Postgres::start();
    let mut server = RedisServer::options().persistence(Persistence::None).start();
    let locker = fenced(&server, &postgres);
    some_fences(&locker, None).await;
    let old = count(&server);
    let () = server.command(&["SAVE"]);
    let last = some_fences(&locker, None).await;
    assert_eq!((count(&server), count(&server)), (old + 1, old + 2));
    server.kill9();
    server.restart();
    assert_eq!(count(&server), old + 1, "the plain counter must be reissued, or no snapshot was loaded");
    some_fences(&locker, Some(last)).await;
}

/// Pitfall 13: a master that was replaced while it ran comes back as a replica, the other one dies, and it is promoted
/// again. It was never restarted, and has its old epoch if the later one had not come over by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_old_master_that_is_promoted_again_begins_a_new_epoch() {
    for came_over in [false, true] {
        let (first, mut second) = (RedisServer::start(), RedisServer::start());
        let postgres = Postgres::start();
        let (on_first, on_second) = (fenced(&first, &postgres), fenced(&second, &postgres));
        follow(&second, &first);
        until("the copy is there", async || is_in_step(&second)).await;
        let before = some_fences(&on_first, None).await;
        let () = second.command(&["REPLICAOF", "NO", "ONE"]);
        // Both are masters for a while.
        let of_the_second = some_fences(&on_second, Some(before)).await;
        assert!(
            some_fences(&on_first, Some(before)).await < of_the_second,
            "the later epoch is the higher one"
        );
        let plain: i64 = second.command(&["INCRBY", PLAIN_COUNTER, "10"]);
        if came_over {
            follow(&first, &second);
            until("the copy is there", async || is_in_step(&first)).await;
        } else {
            second.pause();
            follow(&first, &second);
        }
        second.kill9();
        let () = first.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(count(&first) > plain, came_over, "the plain counter tells whether the copy was there");
        some_fences(&on_first, Some(of_the_second)).await;
    }
}

/// Pitfall 13: a master that was cut off and replaced, but is still asked by somebody. Of this name it has no epoch yet: one that it
/// got now would be above its successor's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_replaced_master_gets_no_epoch_above_its_successors() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let postgres = Postgres::start();
    let (on_first, on_second) = (fenced(&first, &postgres), fenced(&second, &postgres));
    follow(&second, &first);
    until("the copy is there", async || is_in_step(&second)).await;
    let () = second.command(&["REPLICAOF", "NO", "ONE"]);
    let fence = take(&on_second, "job").await;
    for _ in 0..3 {
        let late = in_time("an answer", async { on_first.acquire("job").ttl(LONG).no_wait().await }).await;
        assert!(matches!(late, Err(LockError::Unknown { .. })), "{late:?}");
        until("nothing is left of it", async || owner_on(&first, "job").is_none()).await;
    }
    some_fences(&on_second, Some(fence)).await;
    // Of a name for which the successor has not been asked, its epoch is the lower one.
    let late = take(&on_first, "another-job").await;
    assert!(take(&on_second, "another-job").await > late);
}

/// Pitfall 13: an epoch that arrives after a later one, and after everything was flushed that would tell so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_13_epoch_that_arrives_late_and_after_a_flush_is_not_put_into_force() {
    let (server, postgres) = (RedisServer::start(), Postgres::start());
    let proxy = FaultProxy::start(postgres.address()).await;
    let authority = format!("postgres://postgres@{}/postgres", proxy.address());
    let redis = Redis::open(&server.url()).unwrap().with_epochs(Epochs::open(&authority).unwrap());
    let (slow, quick) = (Locker::new(redis), fenced(&server, &postgres));
    take(&slow, "connected").await;
    let client = postgres.client().await;
    let mut was_late = 0;
    for _ in 0..4 {
        let before = epochs(&client).await;
        proxy.delay(Direction::Answers, Duration::from_millis(400));
        let asking = tokio::spawn({
            let slow = slow.clone();
            async move { take(&slow, "late").await }
        });
        // It has its epoch, but not heard of it; somebody else's comes after it, and is in force before it.
        until("it has an epoch", async || epochs(&client).await > before).await;
        let fence = take(&quick, "late").await;
        let () = server.command(&["FLUSHALL"]);
        let is_late = !asking.is_finished();
        let late = in_time("the late one", asking).await.unwrap();
        assert!(!is_late || late > fence, "{fence:?}, and after it {late:?}");
        was_late += usize::from(is_late);
        proxy.pass().await;
        assert!(take(&quick, "late").await > late.max(fence));
        let () = server.command(&["FLUSHALL"]);
    }
    assert!(was_late >= 1, "only {was_late} times an epoch was late");
}

/// How many epochs were given out.
async fn epochs(client: &tokio_postgres::Client) -> i64 {
    let sql = "SELECT coalesce(sum(epoch), 0)::bigint FROM leasehold_redis_epochs";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Makes a server the replica of another one.
fn follow(replica: &RedisServer, master: &RedisServer) {
    let () = replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
}

fn is_in_step(replica: &RedisServer) -> bool {
    replica.info("replication", "master_link_status") == "up"
}

/// Without the authority a server that forgot its epoch grants nothing: never a lock without a fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_authority_nothing_is_granted_and_nothing_is_left() {
    let (server, mut postgres) = (RedisServer::start(), Postgres::start());
    let locker = fenced(&server, &postgres);
    let before = some_fences(&locker, None).await;
    postgres.kill9();
    // The epoch that is in force goes on without the authority.
    let with_the_old_epoch = some_fences(&locker, Some(before)).await;
    let () = server.command(&["FLUSHALL"]);
    for _ in 0..2 {
        match in_time("an answer", async { locker.acquire("job").ttl(LONG).no_wait().await }).await {
            Err(LockError::Unknown { .. } | LockError::Refused { .. }) => {}
            other => panic!("granted without an epoch: {other:?}"),
        }
    }
    until("nothing is left of the attempts", async || owner_on(&server, "job").is_none()).await;
    postgres.restart();
    some_fences(&locker, Some(with_the_old_epoch)).await;
}

/// A server that was never asked before, and an authority that never was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_that_is_not_there_is_no_ground_for_a_lease() {
    let (server, mut postgres) = (RedisServer::start(), Postgres::start());
    postgres.stop();
    let locker = fenced(&server, &postgres);
    let answer = in_time("an answer", async { locker.acquire("job").no_wait().await }).await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(owner_on(&server, "job"), None);
}
