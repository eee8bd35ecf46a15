//! Several names at once: all or none.

use std::time::Duration;

use leasehold_lock::backend::{Attempt, Released, Renewed};
use leasehold_lock::{Acquired, Locker, Names, Settings};

use super::{
    LONG, PATIENCE, Store, ask, give_back, granted, held, inspect, let_go, name, names, owner, release_is,
    renew,
};

/// One taken name keeps the others free.
pub async fn names_are_taken_all_or_none(store: Store) {
    let (a, b, c) = (name("all-a"), name("all-b"), name("all-c"));
    let other = held(&names(&b), &owner(), LONG);
    granted(ask(&store, &other).await);
    let three = Names::new([a.clone(), b.clone(), c.clone()]).unwrap();
    let mine = held(&three, &owner(), LONG);
    match ask(&store, &mine).await {
        Attempt::Busy(busy) => assert_eq!(busy.name, b),
        Attempt::Granted(grant) => panic!("one of them was taken: {grant:?}"),
    }
    for free in [&a, &c] {
        assert_eq!(inspect(&store, free).await, None, "something was left behind");
    }
    give_back(&store, &other).await;
    let grant = granted(ask(&store, &mine).await);
    if let Some(fences) = &grant.fences {
        assert_eq!(fences.len(), 3);
    }
    for held in [&a, &b, &c] {
        assert!(inspect(&store, held).await.is_some());
    }
    assert_eq!(renew(&store, &mine).await, Renewed::Extended);
    release_is(&store, &mine, Released::Released).await;
}

/// Two owners that name the same locks in opposite orders both get them, one after the other.
pub async fn opposite_orders_never_wait_for_each_other(store: Store) {
    let locker = Locker::with_settings(store, Settings::default());
    let (a, b) = (name("order-a"), name("order-b"));
    let mut tasks = Vec::new();
    for order in [[a.clone(), b.clone()], [b, a]] {
        let locker = locker.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let names = Names::new(order.clone()).unwrap();
                let acquired = locker.acquire(names).ttl(LONG).wait(PATIENCE).await.unwrap();
                let Acquired::Granted(guard) = acquired else { panic!("waited in vain: {acquired:?}") };
                let_go(guard).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Part of a lease is no lease, and what is left of it can be freed.
pub async fn losing_one_name_is_losing_the_lease_and_frees_the_rest(store: Store) {
    let (a, b) = (name("part-a"), name("part-b"));
    let me = owner();
    let both = held(&Names::new([a.clone(), b.clone()]).unwrap(), &me, LONG);
    granted(ask(&store, &both).await);
    assert_eq!(store.release(&held(&names(&a), &me, LONG)).await.unwrap(), Released::Released);
    assert_eq!(renew(&store, &both).await, Renewed::Gone);
    release_is(&store, &both, Released::NotHeld).await;
    assert_eq!(inspect(&store, &b).await, None, "the rest was not freed");
}

/// A name given twice is asked for once.
pub async fn same_name_twice_is_one_name(store: Store) {
    let name = name("twice");
    let twice = Names::new([name.clone(), name.clone()]).unwrap();
    let mine = held(&twice, &owner(), Duration::from_secs(30));
    granted(ask(&store, &mine).await);
    release_is(&store, &mine, Released::Released).await;
}
