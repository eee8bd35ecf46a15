//! One name: taking, keeping, giving back, looking.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, ListQuery, Released, Renewed};
use leasehold_lock::{Label, LockName, Owner};

use super::{
    LONG, PATIENCE, SHORT, Store, ask, give_back, granted, held, inspect, is_free_within, name, names, owner,
    release_is, renew,
};

/// The first owner gets it, the second is told that it is taken.
pub async fn free_name_is_granted_and_taken_name_is_busy(store: Store) {
    let name = name("free");
    granted(ask(&store, &held(&names(&name), &owner(), LONG)).await);
    match ask(&store, &held(&names(&name), &owner(), LONG)).await {
        Attempt::Busy(busy) => assert_eq!(busy.name, name),
        Attempt::Granted(grant) => panic!("two owners: {grant:?}"),
    }
}

/// Whoever is refused learns how long at most.
pub async fn busy_tells_the_remaining_time(store: Store) {
    let name = name("busy");
    granted(ask(&store, &held(&names(&name), &owner(), LONG)).await);
    let Attempt::Busy(busy) = ask(&store, &held(&names(&name), &owner(), LONG)).await else {
        panic!("two owners");
    };
    let remaining = busy.remaining.expect("a lease has an end");
    assert!(remaining <= LONG && remaining > LONG - PATIENCE, "{remaining:?}");
}

/// A lost answer is safe to ask for again.
pub async fn same_owner_asking_again_has_it_at_full_length(store: Store) {
    let (name, me) = (name("again"), owner());
    granted(ask(&store, &held(&names(&name), &me, SHORT)).await);
    granted(ask(&store, &held(&names(&name), &me, LONG)).await);
    let lease = inspect(&store, &name).await.expect("held");
    assert!(lease.remaining.expect("an end") > LONG - PATIENCE, "{lease:?}");
}

/// A release says whether it released; a second one changes nothing.
pub async fn release_frees_and_says_so_only_once(store: Store) {
    let (name, me, next) = (name("release"), owner(), owner());
    let mine = held(&names(&name), &me, LONG);
    granted(ask(&store, &mine).await);
    release_is(&store, &mine, Released::Released).await;
    assert_eq!(inspect(&store, &name).await, None);
    granted(ask(&store, &held(&names(&name), &next, LONG)).await);
    release_is(&store, &mine, Released::NotHeld).await;
    assert!(inspect(&store, &name).await.is_some(), "the late release freed its successor's lock");
}

/// Only the token that acquired can renew or release.
pub async fn another_owner_cannot_release_or_renew(store: Store) {
    let name = name("foreign");
    granted(ask(&store, &held(&names(&name), &owner(), LONG)).await);
    let foreign = held(&names(&name), &owner(), LONG);
    release_is(&store, &foreign, Released::NotHeld).await;
    assert_eq!(renew(&store, &foreign).await, Renewed::Gone);
    assert!(inspect(&store, &name).await.is_some());
}

/// A holder that slept past its end finds the lock another's, and leaves it alone.
pub async fn late_owner_cannot_touch_its_successor(store: Store) {
    let name = name("late");
    let late = held(&names(&name), &owner(), SHORT);
    granted(ask(&store, &late).await);
    is_free_within(&store, &name, PATIENCE).await;
    let current = held(&names(&name), &owner(), LONG);
    granted(ask(&store, &current).await);
    assert_eq!(renew(&store, &late).await, Renewed::Gone);
    release_is(&store, &late, Released::NotHeld).await;
    release_is(&store, &current, Released::Released).await;
}

/// A holder that dies keeps others out for the length of the lease, not longer, not shorter.
pub async fn lease_ends_by_itself(store: Store) {
    let name = name("ends");
    let began = Instant::now();
    granted(ask(&store, &held(&names(&name), &owner(), SHORT)).await);
    is_free_within(&store, &name, PATIENCE).await;
    assert!(began.elapsed() >= SHORT - Duration::from_millis(5), "ended early: {:?}", began.elapsed());
    granted(ask(&store, &held(&names(&name), &owner(), SHORT)).await);
}

/// A renewal counts the full length from now. On a machine that stands still for a moment it may come after the end, but
/// not every time.
pub async fn renewal_lengthens_the_lease(store: Store) {
    const ROUNDS: u32 = 5;
    let (name, me) = (name("renew"), owner());
    let longer = held(&names(&name), &me, LONG);
    let mut is_renewed = false;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        granted(ask(&store, &held(&names(&name), &me, SHORT)).await);
        is_renewed = renew(&store, &longer).await == Renewed::Extended;
        if is_renewed {
            break;
        }
        assert!(began.elapsed() >= SHORT, "it ended early");
    }
    assert!(is_renewed, "the renewal was late {ROUNDS} times in a row");
    tokio::time::sleep(SHORT * 2).await;
    let lease = inspect(&store, &name).await.expect("renewed");
    assert!(lease.remaining.expect("an end") > LONG - PATIENCE, "{lease:?}");
}

/// A renewal that arrives after the release, or after the end, does nothing.
pub async fn renewal_never_brings_back_what_was_released_or_ended(store: Store) {
    let (released, ended) = (name("gone"), name("gone"));
    let mine = held(&names(&released), &owner(), LONG);
    granted(ask(&store, &mine).await);
    give_back(&store, &mine).await;
    assert_eq!(renew(&store, &mine).await, Renewed::Gone);
    assert_eq!(inspect(&store, &released).await, None);

    let late = held(&names(&ended), &owner(), SHORT);
    granted(ask(&store, &late).await);
    is_free_within(&store, &ended, PATIENCE).await;
    assert_eq!(renew(&store, &late).await, Renewed::Gone);
    assert_eq!(inspect(&store, &ended).await, None);
}

/// Many leases are renewed in one call, and each gets its own answer.
pub async fn many_renewals_are_answered_in_order(store: Store) {
    let leases: Vec<_> = (0..50).map(|_| held(&names(&name("many")), &owner(), LONG)).collect();
    for lease in leases.iter().step_by(2) {
        granted(ask(&store, lease).await);
    }
    let answers = store.renew(&leases).await;
    assert_eq!(answers.len(), leases.len());
    for (index, answer) in answers.into_iter().enumerate() {
        let expected = if index % 2 == 0 { Renewed::Extended } else { Renewed::Gone };
        assert_eq!(answer.unwrap(), expected, "lease {index}");
    }
}

/// People see who holds a lock, and nothing with which they could release it.
pub async fn inspection_shows_label_and_time_but_never_the_token(store: Store) {
    let name = name("inspect");
    assert_eq!(inspect(&store, &name).await, None);
    let me = Owner::random(Some(&Label::parse("host-1/pid-2").unwrap()));
    granted(ask(&store, &held(&names(&name), &me, LONG)).await);
    let lease = inspect(&store, &name).await.expect("held");
    assert_eq!(lease.name, name);
    assert_eq!(lease.label.as_deref(), Some("host-1/pid-2"));
    assert!(lease.age.expect("ours tell their age") < PATIENCE, "{lease:?}");
    assert!(lease.remaining.expect("an end") <= LONG, "{lease:?}");
    assert!(!format!("{lease:?}").contains(&me.as_str()[..32]), "the token is shown");
}

/// Braces, stars, spaces and other scripts mean themselves.
pub async fn names_with_odd_characters_are_different_names(store: Store) {
    let unique = name("odd");
    let odd = ["{a}", "a}b", "{}", "a*", "a?", "[ab]", "a b", "a/b", "\u{e9}", "%41", "'; --", "\"", "\\"];
    for text in odd {
        let odd = LockName::parse(&format!("{text}{unique}{text}")).unwrap();
        let mine = held(&names(&odd), &owner(), LONG);
        granted(ask(&store, &mine).await);
        assert!(matches!(ask(&store, &held(&names(&odd), &owner(), LONG)).await, Attempt::Busy(_)));
        let query = ListQuery { prefix: format!("{text}{unique}"), limit: 1_000, cursor: None };
        let found = all(&store, query).await;
        assert_eq!(found, BTreeSet::from([odd.as_str().to_owned()]), "prefix {text}");
        release_is(&store, &mine, Released::Released).await;
    }
}

/// A listing goes through all leases in bounded pages.
pub async fn listing_finds_every_lease_of_a_prefix_page_by_page(store: Store) {
    let prefix = name("list");
    let mut expected = BTreeSet::new();
    for number in 0..60 {
        let name = LockName::parse(&format!("{prefix}/{number}")).unwrap();
        granted(ask(&store, &held(&names(&name), &owner(), LONG)).await);
        expected.insert(name.as_str().to_owned());
    }
    let other = LockName::parse(&format!("{prefix}-other")).unwrap();
    granted(ask(&store, &held(&names(&other), &owner(), LONG)).await);
    let query = ListQuery { prefix: format!("{prefix}/"), limit: 7, cursor: None };
    assert_eq!(all(&store, query).await, expected);
}

/// What ended is not shown.
pub async fn many_ended_names_are_not_listed(store: Store) {
    let prefix = name("ended");
    let mut last = None;
    for number in 0..100 {
        let name = LockName::parse(&format!("{prefix}/{number}")).unwrap();
        granted(ask(&store, &held(&names(&name), &owner(), SHORT)).await);
        last = Some(name);
    }
    is_free_within(&store, &last.expect("there were some"), PATIENCE).await;
    let query = ListQuery { prefix: format!("{prefix}/"), limit: 1_000, cursor: None };
    assert_eq!(all(&store, query).await, BTreeSet::new());
}

async fn all(store: &Store, mut query: ListQuery) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for _ in 0..10_000 {
        let page = store.list(&query).await.expect("the store answers");
        found.extend(page.leases.iter().map(|lease| lease.name.as_str().to_owned()));
        match page.cursor {
            None => return found,
            cursor => query.cursor = cursor,
        }
    }
    panic!("the listing does not end");
}
