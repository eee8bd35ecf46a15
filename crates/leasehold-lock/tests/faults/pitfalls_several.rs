//! Pitfall 31: several names in several slots of a cluster, and a holder that is killed among them.

use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_lock::{Acquired, Locker, Redis};
use leasehold_testkit::Random;
use leasehold_testkit::servers::RedisCluster;

use crate::support::{PATIENCE, granted, until};

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
    let url = format!("redis-cluster://{}", cluster.addresses().join(","));
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

fn is_held(cluster: &RedisCluster, name: &str) -> bool {
    let key = format!("lock:{name}");
    cluster.server(cluster.master_of(&key)).command::<u32>(&["EXISTS", &key]) == 1
}
