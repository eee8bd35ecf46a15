//! Fences: higher with every change of owner, the same otherwise.

use leasehold_lock::backend::{Attempt, Released};
use leasehold_lock::{Fence, Guarantee};

use super::{
    LONG, PATIENCE, SHORT, Store, ask, fence, granted, held, inspect, is_free_within, name, names, owner,
    release_is, renew,
};

/// By release and by expiry, the next owner has a higher fence.
pub async fn fences_grow_with_every_change_of_owner(store: Store) {
    let name = name("fence");
    let mut last: Option<Fence> = None;
    for round in 0..6 {
        let length = if round % 2 == 0 { LONG } else { SHORT };
        let mine = held(&names(&name), &owner(), length);
        let fence = fence(&store, &granted(ask(&store, &mine).await));
        assert!(fence.is_none() || last < fence, "round {round}: {last:?} then {fence:?}");
        last = fence;
        // A short lease may be over before anybody looks.
        match inspect(&store, &name).await {
            Some(shown) => assert_eq!(shown.fence, fence),
            None => assert_eq!(length, SHORT, "it is not held"),
        }
        if length == LONG {
            release_is(&store, &mine, Released::Released).await;
        } else {
            is_free_within(&store, &name, PATIENCE).await;
        }
    }
}

/// Neither a renewal nor a repeated request makes a new fence.
pub async fn fence_stays_with_renewal_and_with_asking_again(store: Store) {
    let mine = held(&names(&name("stays")), &owner(), LONG);
    let first = fence(&store, &granted(ask(&store, &mine).await));
    renew(&store, &mine).await;
    let again = fence(&store, &granted(ask(&store, &mine).await));
    assert_eq!(first, again);
}

/// Many tasks, one name: no fence twice, and in the order in which the lock was had.
pub async fn fences_of_many_tasks_are_distinct_and_in_order_of_the_grants(store: Store) {
    let name = name("order");
    let (seen, mut tasks) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), Vec::new());
    for _ in 0..8 {
        let (store, name, seen) = (store.clone(), name.clone(), seen.clone());
        tasks.push(tokio::spawn(async move {
            let mut had = 0;
            while had < 10 {
                let mine = held(&names(&name), &owner(), LONG);
                if let Attempt::Granted(grant) = ask(&store, &mine).await {
                    seen.lock().unwrap().push(fence(&store, &grant));
                    release_is(&store, &mine, Released::Released).await;
                    had += 1;
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 80);
    if store.guarantees().level == Guarantee::Fenced {
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    }
}
