//! The promises of a lock store, kept on a real Redis Cluster of six nodes: alone, and with fences.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::backend::{Attempt, Backend, Held, Order, Renewed, Request};
use leasehold_lock::{Epochs, Names, Owner, Redis, Ttl};
use leasehold_testkit::lock_suite::single;
use leasehold_testkit::servers::{Persistence, Postgres, RedisCluster};

/// A cluster whose nodes nobody stops, so that a disk which is slow for a moment takes no part.
fn start() -> RedisCluster {
    RedisCluster::options().persistence(Persistence::None).start()
}

fn on(cluster: &RedisCluster) -> Redis {
    let url = cluster.url();
    Redis::open(&url).unwrap().with_claim_time(Duration::from_secs(1))
}

mod alone {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let cluster = start();
        let store = on(&cluster);
        (cluster, store)
    });
}

mod with_epochs {
    use super::*;

    leasehold_testkit::lock_suite!(async {
        let (cluster, postgres) = (start(), Postgres::start());
        let store = on(&cluster).with_epochs(Epochs::open(&postgres.url()).unwrap());
        ((cluster, postgres), store)
    });
}

/// Listing goes through every master, a step at a time, and never stops one to look at all its keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_scans_every_master() {
    let cluster = start();
    single::listing_finds_every_lease_of_a_prefix_page_by_page(Arc::new(on(&cluster))).await;
    for master in cluster.masters() {
        let commands: String = cluster.server(master).command(&["INFO", "commandstats"]);
        assert!(commands.contains("cmdstat_scan:") && !commands.contains("cmdstat_keys:"), "{commands}");
    }
}

/// A name that is gone is gone, also when another of the same lease cannot be asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_lost_one_name_is_gone_whatever_the_other_slots_say() {
    let mut cluster = start();
    let store = on(&cluster);
    let key = |number: u32| format!("lock:job-{number}");
    let master = cluster.master_of(&key(0));
    let other = (1..).find(|number| cluster.master_of(&key(*number)) != master).unwrap();
    // Whichever answers first.
    for (lost, silent) in [(0, other), (other, 0)] {
        let names = Names::try_from(["job-0", &format!("job-{other}")]).unwrap();
        let (owner, ttl) = (Owner::random(None), Ttl::new(Duration::from_secs(60)).unwrap());
        let request = Request { names: &names, owner: &owner, ttl, order: Order::Any };
        let attempt = store.try_acquire(&request).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
        let on_lost = cluster.server(cluster.master_of(&key(lost)));
        assert_eq!(on_lost.command::<u32>(&["DEL", &key(lost)]), 1);
        let nodes = [cluster.replica_of(&key(silent)), cluster.master_of(&key(silent))];
        nodes.iter().for_each(|node| cluster.server_mut(*node).pause());
        let held = Held { names, owner, ttl, order: Order::Any };
        let renewed = store.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewed.as_slice(), [Ok(Renewed::Gone)]), "{renewed:?}");
        nodes.iter().for_each(|node| cluster.server_mut(*node).resume());
        cluster.wait_until_settled();
        let on_silent = cluster.server(cluster.master_of(&key(silent)));
        let _: u32 = on_silent.command(&["DEL", &key(silent)]);
    }
}
