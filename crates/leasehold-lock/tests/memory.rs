//! The promises of a lock store, kept in memory.

use std::time::Duration;

use leasehold_lock::{LockError, Locker, Memory};

leasehold_testkit::lock_suite!(async { ((), Memory::new()) });

#[tokio::test]
async fn guards_that_were_given_back_become_advice_for_their_class() {
    let locker = Locker::new(Memory::new());
    for number in 0..25 {
        assert_eq!(locker.advice("order").map(|advice| advice.samples), (number >= 20).then_some(number));
        let acquired = locker.acquire(format!("order:{number}")).await.unwrap();
        let guard = acquired.granted().expect("nobody else wants it");
        if number % 2 == 0 {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
    }
    let advice = locker.advice("order").expect("25 hold times are enough");
    assert_eq!((advice.ttl, advice.samples), (Duration::from_secs(3), 25));
    assert_eq!(locker.advice("report"), None);
}

/// As a lease that is over before its grant arrives: the store is not asked again and again as fast as it answers.
#[tokio::test]
async fn a_lease_too_short_to_be_of_use_is_asked_for_ever_more_slowly() {
    let locker = Locker::new(Memory::new());
    let fence = async || locker.acquire("job").await.unwrap().granted().unwrap().fence().unwrap().0;
    let before = fence().await;
    let acquired = locker.acquire("job").hold_max(Duration::ZERO).wait(Duration::from_secs(2)).await;
    assert!(matches!(acquired, Err(LockError::Unknown { .. })), "{acquired:?}");
    let grants = fence().await - before - 1;
    assert!((2..80).contains(&grants), "it was granted {grants} times");
}
