//! The promises that every reservation engine keeps beyond the rules, each a named test, run on the real store.
//!
//! ```text
//! leasehold_testkit::engine_suite!(async {
//!     let folder = tempfile::tempdir().unwrap();
//!     DataFile { path: folder.path().join("a.db"), _folder: folder }
//! });
//! ```
//!
//! The rules themselves are compared by [`model`], which drives an engine and the rules with the same commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_core::*;
use leasehold_engine::*;

pub mod contention;
pub mod durability;
pub mod expiry;
pub mod history;
pub mod idempotency;
pub mod model;
pub mod operator;
pub mod payments;
pub mod stream;

/// Where an engine keeps what it was told. It outlives the engines that are opened on it.
#[async_trait]
pub trait EngineStore: Send + Sync + 'static {
    /// Opens an engine on the store, the first or another one; panics when that fails.
    async fn open(&self) -> Arc<dyn Engine>;
}

/// How long anything may take that is not a matter of waiting.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// A life that no test waits for, in milliseconds.
pub const LONG_MS: u64 = 60_000;

/// Names the promises once.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_engine_case {
    ($use:ident $argument:tt) => {
        $crate::$use! { $argument
            durability::what_was_answered_is_there_after_a_restart_and_fences_go_on_growing,
            durability::a_sale_is_there_after_a_restart_and_its_seat_is_sold_once,
            expiry::expired_holds_come_back_on_their_own_within_a_second,
            expiry::taking_a_seat_of_a_hold_that_is_over_ends_the_whole_hold,
            expiry::what_holds_that_are_over_had_is_never_sold_out,
            idempotency::the_same_key_has_one_effect_and_one_answer,
            idempotency::two_keys_that_make_one_id_harm_nobody,
            idempotency::a_refusal_is_not_remembered,
            idempotency::a_success_that_changed_nothing_is_remembered,
            idempotency::an_answer_is_remembered_as_it_was_given,
            idempotency::without_the_secret_a_hold_looks_absent,
            stream::a_reader_that_comes_back_misses_nothing_also_over_a_restart,
            stream::a_reader_of_another_epoch_is_told_to_start_anew,
            stream::whoever_has_an_answer_sees_its_effect_and_a_stream_ends_after_its_last_change,
            stream::what_changed_adds_up_to_what_is_there,
            payments::a_refund_that_is_due_is_remembered,
            payments::a_late_payment_brings_the_hold_back_if_everything_is_free,
            payments::a_payment_in_progress_keeps_the_hold_and_its_failure_gives_time,
            payments::no_more_payments_are_in_progress_than_the_event_allows,
            operator::closing_takes_away_what_nobody_pays_for,
            operator::blocked_seats_are_not_sold_and_come_back,
            operator::a_capacity_does_not_fall_below_what_is_in_use,
            operator::a_change_of_rules_forgets_nothing_of_what_each_holder_has,
            operator::events_are_listed_in_the_order_of_creation,
            operator::the_pages_of_a_list_of_holds_have_each_live_hold_once_whatever_else_happens,
            history::the_log_says_who_had_a_seat_and_how_it_was_lost_also_after_a_restart,
            history::the_log_of_a_seat_tells_of_the_payments_for_it,
            history::pages_of_the_log_follow_each_other_without_a_gap,
            history::a_blocked_seat_names_its_block,
            contention::three_seats_and_a_pool_are_sold_exactly_once_to_many_callers,
            contention::best_seats_are_together_and_the_last_ones_are_found,
            contention::a_holder_never_has_more_than_the_event_allows,
        }
    };
}

/// Makes a test of every promise. The argument is an async block that gives the store.
#[macro_export]
macro_rules! engine_suite {
    ($make:expr) => {
        $crate::for_each_engine_case!(engine_tests { $make });
    };
}

/// Makes one test of all promises, for stores that take long to start. The argument is an async closure that gives
/// another store on the same servers.
#[macro_export]
macro_rules! engine_suite_in_turn {
    ($make:expr) => {
        $crate::for_each_engine_case!(engine_turns { $make });
    };
}

/// Keeps the promises one after the other.
#[macro_export]
#[doc(hidden)]
macro_rules! engine_turns {
    ({ $make:expr } $($group:ident :: $case:ident,)*) => {{
        let make = $make;
        $(
            println!("{}", stringify!($case));
            $crate::engine_suite::$group::$case(&make().await).await;
        )*
    }};
}

/// Makes the tests, each with a store of its own.
#[macro_export]
#[doc(hidden)]
macro_rules! engine_tests {
    ({ $make:expr } $($group:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let store = $make.await;
                $crate::engine_suite::$group::$case(&store).await;
            }
        )*
    };
}

/// An event with seats in rows and a pool of ten units.
pub async fn create_event(engine: &dyn Engine, rows: u32, seats: u32) -> Arc<Venue> {
    create_event_with(engine, "gala", rows, seats, Policy::default()).await
}

/// The same with this id and these rules.
pub async fn create_event_with(
    engine: &dyn Engine,
    id: &str,
    rows: u32,
    seats: u32,
    policy: Policy,
) -> Arc<Venue> {
    let layout = Layout::grid(&[(Name::parse("A").expect("a name"), rows, seats)]).expect("a layout");
    let create = Command::CreateEvent(CreateEvent {
        id: Name::parse(id).expect("a name"),
        name: Text::parse("Gala").expect("a text"),
        layout: Arc::new(layout),
        pools: vec![(Name::parse("floor").expect("a name"), 10)],
        policy,
    });
    engine.execute(Request::new(create)).await.expect("the event is created").venue
}

/// A request to hold these items, for nobody in particular.
pub fn hold_items(venue: &Venue, items: Vec<ItemRequest>, ttl_ms: u64) -> Request {
    Request::new(Command::CreateHold(CreateHold {
        event: venue.number,
        id: new_hold_id(),
        items,
        holder: None,
        ttl: Some(Millis(ttl_ms)),
    }))
}

/// A request to hold one seat.
pub fn hold_seat(venue: &Venue, seat: u32, ttl_ms: u64) -> Request {
    hold_items(venue, vec![ItemRequest::Seat(SeatNo(seat))], ttl_ms)
}

/// A request to hold units of the pool.
pub fn hold_units(venue: &Venue, quantity: u32, ttl_ms: u64) -> Request {
    hold_items(venue, vec![ItemRequest::Pool(PoolNo(0), quantity)], ttl_ms)
}

/// The hold that was granted, or stands as it now does.
#[track_caller]
pub fn held(done: Result<Done, EngineError>) -> Hold {
    match done.expect("a hold").outcome {
        Outcome::Hold(hold) => hold,
        other => panic!("not a hold: {other:?}"),
    }
}

/// The same command of this hold's owner.
pub fn by_owner(engine: &dyn Engine, hold: HoldId, command: Command) -> Request {
    Request::new(command).with_secret(Some(engine.secret_of(hold)))
}

/// Waits for what happens in its own time.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A request to give a hold back.
pub fn release(engine: &dyn Engine, hold: HoldId) -> Request {
    by_owner(engine, hold, Command::ReleaseHold(hold))
}

/// A request to turn a hold into a sale, with a payment or without.
pub fn confirm(engine: &dyn Engine, hold: HoldId, payment: Option<&str>) -> Request {
    let confirm = ConfirmHold {
        hold,
        booking: new_booking_id(),
        payment_ref: payment.map(reference),
        order_ref: None,
        items: None,
    };
    by_owner(engine, hold, Command::ConfirmHold(confirm))
}

/// A reference of a caller's.
pub fn reference(text: &str) -> Reference {
    Reference::parse(text).expect("a reference")
}

/// An idempotency key of two small numbers.
pub fn key(scope: u128, fingerprint: u128) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { scope: scope << 64 | scope, fingerprint: fingerprint << 64 | fingerprint })
}

/// The fence of a hold's only seat.
#[track_caller]
pub(crate) fn fence(items: &[Item]) -> Fence {
    match items {
        [Item::Seat { fence, .. }] => *fence,
        other => panic!("not one seat: {other:?}"),
    }
}

/// Lets an engine go, and opens another on the same store.
pub(crate) async fn restart(store: &dyn EngineStore, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    engine.close().await;
    drop(engine);
    store.open().await
}
