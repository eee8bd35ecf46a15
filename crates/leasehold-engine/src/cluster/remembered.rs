//! Answers under idempotency keys, as the ledger keeps them.

use std::sync::Arc;

use leasehold_core::{EventNo, Fence, Hold, Item, Millis, Timestamp};
use uuid::Uuid;

use super::halls::Halls;
use super::rows::{AnswerRow, millis, time};
use crate::answer::{get_answer, put_answer};
use crate::bytes::Damaged;
use crate::{Done, EngineError, IdempotencyKey, Outcome};

/// The row that remembers an answer.
pub(crate) fn answer_row(
    key: &IdempotencyKey,
    event: EventNo,
    at: Timestamp,
    outcome: &Outcome,
) -> AnswerRow {
    let mut bytes = Vec::with_capacity(128);
    put_answer(&mut bytes, event, outcome);
    AnswerRow {
        scope: Uuid::from_u128(key.scope),
        fingerprint: Uuid::from_u128(key.fingerprint),
        event_no: event.0.cast_signed(),
        at: millis(at),
        answer: to_hex(&bytes),
        number: None,
        fences: None,
        booking: None,
    }
}

/// The answer that a row remembers, if it is this request's.
pub(crate) fn done_of(row: &AnswerRow, key: &IdempotencyKey, halls: &Halls) -> Result<Done, EngineError> {
    if row.fingerprint != Uuid::from_u128(key.fingerprint) {
        return Err(EngineError::KeyMismatch);
    }
    let at = time(row.at);
    let outcome = outcome_of(row, at).map_err(|error: Damaged| {
        tracing::error!(%error, "an answer could not be read");
        EngineError::Unknown
    })?;
    let hall = halls.known(row.event_no).ok_or(EngineError::Unknown)?;
    Ok(Done { outcome, venue: Arc::clone(&hall.venue), at, replayed: true })
}

fn outcome_of(row: &AnswerRow, at: Timestamp) -> Result<Outcome, Damaged> {
    if let Some(booking) = &row.booking {
        return Ok(Outcome::Booking(booking.as_made(EventNo(row.event_no.cast_unsigned()))?));
    }
    let bytes = from_hex(&row.answer).ok_or(Damaged)?;
    let mut outcome = get_answer(&bytes, at)?.outcome;
    if let (Outcome::Hold(hold), Some(number), Some(fences)) = (&mut outcome, row.number, &row.fences) {
        place_in_time(hold, at, number.unsigned_abs(), fences);
    }
    Ok(outcome)
}

/// Makes of a hold as if made at 0, without fences, the one that the ledger granted.
pub(crate) fn place_in_time(hold: &mut Hold, at: Timestamp, number: u64, fences: &[i64]) {
    hold.number = number;
    for moment in [&mut hold.created_at, &mut hold.expires_at, &mut hold.hard_deadline, &mut hold.life_end] {
        *moment = at.after(Millis(moment.as_millis()));
    }
    let seats = hold.items.iter_mut().filter_map(|item| match item {
        Item::Seat { fence, .. } => Some(fence),
        Item::Pool { .. } => None,
    });
    seats.zip(fences).for_each(|(fence, issued)| *fence = Fence(issued.unsigned_abs()));
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}
