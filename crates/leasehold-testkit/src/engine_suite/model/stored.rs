//! Everything that an engine shows of what it keeps, against the model: what a restart has brought back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use leasehold_core::{Block, BlockId, Changes, Hold, HoldId, PaymentState, Reference, SeatStatus, State};
use leasehold_engine::{Availability, Engine, EngineError, Outcome, Since, Venue};
use tokio::time::Instant;

use super::ModelStore;
use crate::engine_suite::PATIENCE;

/// More than a model ever has of anything.
const PAGE: usize = 10_000;

type Blocks = BTreeMap<BlockId, Outcome>;
type Refunds = BTreeMap<HoldId, BTreeSet<Reference>>;

/// Panics unless holds, bookings, blocks, payments to give back and seats are shown as the model has them. The fences are
/// in the holds and bookings.
pub(super) async fn compare(engine: &dyn Engine, store: &impl ModelStore, model: &mut State, context: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        model.expire_due(store.time().await, usize::MAX, &mut Changes::default());
        let differences = differences(engine, store, model).await;
        if differences.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{context}, after a restart: {differences:#?}");
        // By a clock that goes on, a hold may have run out between two looks.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn differences(engine: &dyn Engine, store: &impl ModelStore, model: &State) -> Vec<String> {
    let mut differences = Vec::new();
    for (_, hold) in model.holds() {
        let shown = engine.hold(hold.id, Some(engine.secret_of(hold.id))).await;
        let shown = shown.map(|done| store.comparable(done.outcome));
        note(&mut differences, shown, &store.comparable(Outcome::Hold(hold.clone())));
    }
    for (_, booking) in model.bookings() {
        let shown = engine.booking(booking.id).await.map(|done| store.comparable(done.outcome));
        note(&mut differences, shown, &store.comparable(Outcome::Booking(booking.clone())));
    }
    for event in model.events() {
        let venue = match engine.venue(event.id.as_str()).await {
            Ok(Some(venue)) => venue,
            other => {
                differences.push(format!("event {} is {other:?}", event.id));
                continue;
            }
        };
        let seats: Vec<SeatStatus> = event.seats().iter().map(|seat| seat.owner.status()).collect();
        let shown = engine.availability(&venue, Since::Nothing).await.map(|shown| match shown {
            Availability::Full(snapshot) => snapshot.seats.clone(),
            Availability::Changes { .. } => Vec::new(),
        });
        note(&mut differences, shown, &seats);
        let blocks = model.blocks().map(|(_, block)| block).filter(|block| block.event == event.number);
        let blocks = blocks.map(|block| (block.id, store.comparable(Outcome::Block(block.clone()))));
        note(&mut differences, shown_blocks(engine, store, &venue).await, &blocks.collect());
        note(&mut differences, shown_refunds(engine, &venue).await, &refunds(model, &venue));
    }
    differences
}

fn note<T: PartialEq + Debug, E: Debug>(differences: &mut Vec<String>, shown: Result<T, E>, expected: &T) {
    if shown.as_ref().ok() != Some(expected) {
        differences.push(format!("expected {expected:?}, shown {shown:?}"));
    }
}

async fn shown_blocks(
    engine: &dyn Engine,
    store: &impl ModelStore,
    venue: &Venue,
) -> Result<Blocks, EngineError> {
    let page = engine.blocks(venue, 0, PAGE).await?;
    let block = |(_, block): (u64, Block)| (block.id, store.comparable(Outcome::Block(block)));
    Ok(page.items.into_iter().map(block).collect())
}

async fn shown_refunds(engine: &dyn Engine, venue: &Venue) -> Result<Refunds, EngineError> {
    let page = engine.refunds(venue, 0, PAGE).await?;
    Ok(page.items.into_iter().map(|(_, due)| (due.hold, due.payments.into_iter().collect())).collect())
}

/// Of a hold that still keeps something, an operator is not told: its money may yet become a sale.
fn refunds(model: &State, venue: &Venue) -> Refunds {
    let mut refunds = Refunds::new();
    for payment in model.payments() {
        let keeps = model.hold(payment.hold).is_some_and(Hold::keeps_items);
        if payment.event == venue.number && payment.state == PaymentState::RefundDue && !keeps {
            refunds.entry(payment.hold).or_default().insert(payment.reference.clone());
        }
    }
    refunds
}
