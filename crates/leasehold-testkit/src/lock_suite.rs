//! The promises that every lock store keeps, each a named test, run on the real store.
//!
//! ```text
//! leasehold_testkit::lock_suite!(async {
//!     let server = RedisServer::start();
//!     let store = Redis::open(&server.url()).unwrap();
//!     (server, store)
//! });
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_lock::backend::{Attempt, Backend, Held, Order, Released, Renewed, Request};
use leasehold_lock::{
    Fence, Grant, Guarantee, Guard, Label, LeaseView, LockError, LockName, Names, Owner, StoreError, Ttl,
};

pub mod cancel;
pub mod fences;
pub mod guards;
pub mod in_order;
pub mod several;
pub mod single;
pub mod waiting;

/// A store under test. Cloning shares it.
pub type Store = Arc<dyn Backend>;

/// One promise.
type Case = fn(Store) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A lease that is short enough to wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// A lease that no test waits for: a name that is free before its end was given back.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How long anything may take that is not a matter of waiting.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Names the promises once, for the tests and for whoever wants to run them all.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_lock_case {
    ($use:ident $argument:tt) => {
        $crate::$use! { $argument
            single::free_name_is_granted_and_taken_name_is_busy,
            single::busy_tells_the_remaining_time,
            single::same_owner_asking_again_has_it_at_full_length,
            single::release_frees_and_says_so_only_once,
            single::another_owner_cannot_release_or_renew,
            single::late_owner_cannot_touch_its_successor,
            single::lease_ends_by_itself,
            single::renewal_lengthens_the_lease,
            single::renewal_never_brings_back_what_was_released_or_ended,
            single::many_renewals_are_answered_in_order,
            single::inspection_shows_label_and_time_but_never_the_token,
            single::names_with_odd_characters_are_different_names,
            single::listing_finds_every_lease_of_a_prefix_page_by_page,
            single::many_ended_names_are_not_listed,
            fences::fences_grow_with_every_change_of_owner,
            fences::fence_stays_with_renewal_and_with_asking_again,
            fences::fences_of_many_tasks_are_distinct_and_in_order_of_the_grants,
            several::names_are_taken_all_or_none,
            several::opposite_orders_never_wait_for_each_other,
            several::losing_one_name_is_losing_the_lease_and_frees_the_rest,
            several::same_name_twice_is_one_name,
            waiting::watch_rings_at_the_release,
            waiting::waiter_gets_the_lock_when_it_is_released,
            waiting::waiter_gets_the_lock_when_the_lease_ends,
            waiting::waiting_in_vain_is_busy_with_the_remaining_time,
            waiting::one_at_a_time_under_contention,
            waiting::many_waiters_all_get_their_turn,
            guards::guard_is_renewed_beyond_its_length,
            guards::dropped_guard_gives_the_lock_back,
            guards::release_tells_whether_it_still_was_held,
            guards::holder_learns_that_its_lease_is_gone,
            guards::renewal_stops_at_the_cap_and_the_holder_is_told_before_the_end,
            guards::run_cancels_the_work_before_anybody_else_can_have_the_lock,
            guards::detached_lease_stays_until_its_owner_releases_it,
            cancel::acquisition_dropped_at_any_await_leaves_nothing,
            cancel::waiting_dropped_at_any_await_leaves_nothing,
            cancel::owner_that_gave_up_and_asks_again_keeps_the_lock,
            cancel::release_dropped_at_any_await_still_releases,
            cancel::release_without_a_guard_dropped_at_any_await_still_releases,
            cancel::renewal_dropped_at_any_await_harms_nothing,
            in_order::waiters_get_the_lock_in_the_order_they_came,
            in_order::dead_waiter_costs_the_next_one_little,
            in_order::waiter_that_gives_up_leaves_the_line,
            in_order::asking_again_keeps_the_place_in_line,
            in_order::plain_release_hands_over_to_the_first_in_line,
        }
    };
}

/// Makes a test of every promise. The argument is an async block that gives what must live as long as the
/// store, and the store.
#[macro_export]
macro_rules! lock_suite {
    ($make:expr) => {
        $crate::for_each_lock_case!(lock_tests { $make });
    };
}

/// Makes the tests, each with a store of its own.
#[macro_export]
#[doc(hidden)]
macro_rules! lock_tests {
    ({ $make:expr } $($group:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (_alive, store) = $make.await;
                $crate::lock_suite::$group::$case(std::sync::Arc::new(store)).await;
            }
        )*
    };
}

/// Makes the list of all promises.
#[macro_export]
#[doc(hidden)]
macro_rules! lock_cases {
    ({} $($group:ident :: $case:ident,)*) => {
        vec![$((stringify!($case), (|store| Box::pin($group::$case(store))) as Case)),*]
    };
}

fn all() -> Vec<(&'static str, Case)> {
    for_each_lock_case!(lock_cases {})
}

/// Runs promises that together use every kind of exchange with a store, for another way to reach one: with encryption, or
/// with a password.
pub async fn keep_one_of_each_kind(store: &Store) {
    let is_one = |(name, _): &(&str, Case)| {
        [
            "release_frees_and_says_so_only_once",
            "many_renewals_are_answered_in_order",
            "listing_finds_every_lease_of_a_prefix_page_by_page",
            "fences_grow_with_every_change_of_owner",
            "names_are_taken_all_or_none",
            "waiter_gets_the_lock_when_it_is_released",
            "acquisition_dropped_at_any_await_leaves_nothing",
            "waiters_get_the_lock_in_the_order_they_came",
        ]
        .contains(name)
    };
    let cases: Vec<_> = all().into_iter().filter(is_one).collect();
    assert_eq!(cases.len(), 8, "one of them has another name now");
    keep(store, cases).await;
}

/// Runs promises, saying which one is at work, and panics in the end with the names of all that were broken.
async fn keep(store: &Store, cases: Vec<(&'static str, Case)>) {
    let mut broken = Vec::new();
    for (name, case) in cases {
        let began = Instant::now();
        eprintln!("promise: {name}");
        let kept = tokio::spawn(case(store.clone())).await.is_ok();
        eprintln!("promise: {name} {} in {:?}", if kept { "kept" } else { "BROKEN" }, began.elapsed());
        if !kept {
            broken.push(name);
        }
    }
    assert!(broken.is_empty(), "broken promises: {}", broken.join(", "));
}

/// A name that no other test uses.
pub(crate) fn name(text: &str) -> LockName {
    LockName::parse(&format!("{text}:{}", uuid::Uuid::new_v4().simple())).expect("a name")
}

pub(crate) fn names(name: &LockName) -> Names {
    Names::from(name.clone())
}

pub(crate) fn owner() -> Owner {
    Owner::random(Some(&Label::parse("suite").expect("a label")))
}

pub(crate) fn ttl(length: Duration) -> Ttl {
    Ttl::new(length).expect("a length")
}

/// A lease to ask for.
pub(crate) fn held(names: &Names, owner: &Owner, length: Duration) -> Held {
    Held { names: names.clone(), owner: owner.clone(), ttl: ttl(length), order: Order::Any }
}

/// What the store says in the end. On a machine that stands still for a moment an answer may come too late to count, so
/// the same is asked again. That is for questions that may be asked twice.
async fn answer<T, F>(mut question: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + PATIENCE;
    loop {
        match question().await {
            Err(StoreError::Unknown(_)) if Instant::now() < until => {}
            answer => return answer.expect("the store answers"),
        }
    }
}

/// Asks for a lease. The same owner may ask again.
pub(crate) async fn ask(store: &Store, held: &Held) -> Attempt {
    let Held { names, owner, ttl, order } = held;
    let request = Request { names, owner, ttl: *ttl, order: *order };
    answer(|| store.try_acquire(&request)).await
}

pub(crate) async fn renew(store: &Store, held: &Held) -> Renewed {
    answer(|| async { store.renew(std::slice::from_ref(held)).await.remove(0) }).await
}

pub(crate) async fn inspect(store: &Store, name: &LockName) -> Option<LeaseView> {
    answer(|| store.inspect(name)).await
}

/// Gives back what may be held.
pub(crate) async fn give_back(store: &Store, held: &Held) {
    answer(|| store.release(held)).await;
}

/// Gives back, and wants to be told this. After a release that got no answer, that nothing is held is right as well.
pub(crate) async fn release_is(store: &Store, held: &Held, expected: Released) {
    let mut asked = 0;
    let released = answer(|| {
        asked += 1;
        store.release(held)
    });
    let released = released.await;
    if asked == 1 || released == Released::Released {
        assert_eq!(released, expected);
    }
}

/// Gives a guard back that is held. When the answer is late, it is given back all the same.
pub(crate) async fn let_go(guard: Guard) {
    match guard.release().await {
        Ok(Released::Released) | Err(LockError::Unknown { .. }) => {}
        other => panic!("it was held: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn granted(attempt: Attempt) -> Grant {
    match attempt {
        Attempt::Granted(grant) => grant,
        Attempt::Busy(busy) => panic!("expected a grant, not {busy:?}"),
    }
}

/// The only fence of a grant; `None` on a store that has none, which must then say so.
#[track_caller]
pub(crate) fn fence(store: &Store, grant: &Grant) -> Option<Fence> {
    let fenced = store.guarantees().level == Guarantee::Fenced;
    assert_eq!(grant.fences.is_some(), fenced, "fences and the stated guarantee go together");
    grant.fences.as_ref().map(|fences| fences[0])
}

/// Waits until a name is free, and fails unless that is before the end of its lease.
pub(crate) async fn is_free_within(store: &Store, name: &LockName, time_max: Duration) {
    let until = Instant::now() + time_max;
    while let Some(lease) = inspect(store, name).await {
        assert!(Instant::now() < until, "still held after {time_max:?}: {lease:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
