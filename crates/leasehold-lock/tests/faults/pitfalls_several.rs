//! Pitfalls 16 and 31: names and keys in several slots of a cluster, and a holder that is killed among them.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_lock::backend::Released;
use leasehold_lock::{Acquired, Epochs, LockError, Locker, Redis};
use leasehold_testkit::Random;
use leasehold_testkit::servers::{Postgres, RedisCluster};

use crate::support::{LONG, PATIENCE, granted, in_time, until};

const STORE: &str = "LEASEHOLD_TEST_CRASHING_STORE";
const THIS: &str = "pitfalls_several::pitfall_31_holder_killed_between_names_leaves_them_to_their_end";
const NAMES: [&str; 4] = ["{a}", "{b}", "{c}", "{d}"];
const TTL: Duration = Duration::from_secs(1);

/// Takes all names and gives them back, until it is killed.
async fn crash(store: &str) {
    let locker = Locker::new(Redis::open(store).unwrap());
    println!("ready");
    loop {
        if let Ok(Acquired::Granted(guard)) = locker.acquire(NAMES).ttl(TTL).await {
            let _ = guard.release().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_31_holder_killed_between_names_leaves_them_to_their_end() {
    if let Ok(store) = std::env::var(STORE) {
        return crash(&store).await;
    }
    let cluster = RedisCluster::start();
    let url = cluster.url();
    let mut random = Random::new(Random::seed_of_this_run("pitfall_31"));
    let slots: std::collections::HashSet<_> =
        NAMES.iter().map(|name| cluster.slot_of(&format!("lock:{name}"))).collect();
    assert_eq!(slots.len(), NAMES.len(), "every name is in a slot of its own");
    let locker = Locker::new(Redis::open(&url).unwrap());
    let held = || NAMES.iter().filter(|name| is_held(&cluster, name)).count();
    let mut partial = 0;
    for _ in 0..12 {
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new(program);
        command.args([THIS, "--exact", "--nocapture"]).env(STORE, &url).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        until("it is at work", async || held() > 0).await;
        tokio::time::sleep(Duration::from_micros(random.within(0..20_000))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let left = held();
        partial += usize::from(left > 0 && left < NAMES.len());
        // All of them can be had again, at the latest when their time is up.
        let guard = granted(locker.acquire(NAMES).ttl(TTL).wait(PATIENCE).await);
        guard.release().await.unwrap();
        assert_eq!(held(), 0);
    }
    assert!(partial > 0, "it was never killed between two names");
}

/// Two of three names share a slot, so one script takes both, and the third is taken beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_16_names_that_share_a_slot_are_taken_all_or_none_with_one_that_does_not() {
    let (cluster, postgres) = (RedisCluster::start(), Postgres::start());
    let url = cluster.url();
    let names = ["{a}:1", "{a}:2", "{b}"];
    let slot = |name: &str| cluster.slot_of(&format!("lock:{name}"));
    assert!(slot(names[0]) == slot(names[1]) && slot(names[0]) != slot(names[2]));
    let plain = Redis::open(&url).unwrap();
    let fenced = Redis::open(&url).unwrap().with_epochs(Epochs::open(&postgres.url()).unwrap());
    for locker in [Locker::new(plain), Locker::new(fenced)] {
        for taken in names {
            let other = granted(locker.acquire(taken).ttl(LONG).await);
            match locker.acquire(names).no_wait().await.unwrap() {
                Acquired::Busy(busy) => assert_eq!(busy.name.as_str(), taken),
                Acquired::Granted(_) => panic!("{taken} was taken"),
            }
            assert_eq!(names.iter().filter(|name| is_held(&cluster, name)).count(), 1, "something was left");
            assert_eq!(other.release().await.unwrap(), Released::Released);
        }
        let all = granted(locker.acquire(names).ttl(Duration::from_millis(4_500)).await);
        if let Some(fences) = all.fences() {
            // Names of one slot share its counter: each has a fence of its own, in the order of the names.
            assert!(fences.len() == 3 && fences[0] < fences[1], "{fences:?}");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        all.check().expect("it was renewed in both slots");
        assert_eq!(all.release().await.unwrap(), Released::Released);
        assert!(!names.iter().any(|name| is_held(&cluster, name)));
    }
}

/// A slot in the middle has no master any more, and the others go on. What can be given back is, whether the
/// lock was held or only asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pitfall_31_slot_that_cannot_be_reached_does_not_keep_the_names_in_the_others() {
    let mut cluster = RedisCluster::options().args(&["--cluster-require-full-coverage", "no"]).start();
    let url = cluster.url();
    let locker = Locker::new(Redis::open(&url).unwrap());
    // One name per master, in the order in which they are taken.
    let mut names: Vec<String> = Vec::new();
    for name in (0..).map(|number| format!("job-{number}")) {
        let key = |name: &String| format!("lock:{name}");
        if names.iter().all(|other| cluster.master_of(&key(other)) != cluster.master_of(&key(&name))) {
            names.push(name);
        }
        if names.len() == 3 {
            names.sort_by_key(|name| cluster.slot_of(&key(name)).number());
            break;
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let guard = granted(locker.acquire(names.as_slice()).ttl(LONG).await);
    let middle = format!("lock:{}", names[1]);
    for node in [cluster.replica_of(&middle), cluster.master_of(&middle)] {
        cluster.server_mut(node).kill9();
    }
    let others_are_free = async |what: &str| {
        until(what, async || !is_held(&cluster, names[0]) && !is_held(&cluster, names[2])).await;
    };
    let released = in_time("an answer", guard.release()).await;
    assert!(matches!(released, Err(LockError::Unknown { .. })), "{released:?}");
    others_are_free("what was held is given back").await;
    let asked =
        in_time("an answer", locker.acquire(names.as_slice()).ttl(LONG).no_wait().into_future()).await;
    assert!(matches!(asked, Err(LockError::Unknown { .. })), "{asked:?}");
    others_are_free("what was asked for is given back").await;
}

fn is_held(cluster: &RedisCluster, name: &str) -> bool {
    let key = format!("lock:{name}");
    cluster.server(cluster.master_of(&key)).command::<u32>(&["EXISTS", &key]) == 1
}
