//! Answers kept under idempotency keys, as bytes and on disk.

use leasehold_core::{EventNo, Reference, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::bytes::{Damaged, Get, Put};
use super::image;
use crate::{IdempotencyKey, Outcome};

/// An answer as it was given.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) event: EventNo,
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
}

/// What stands on disk under a number.
#[derive(Debug)]
pub(crate) enum Found {
    Answer(Box<Answer>),
    /// Another request's.
    Mismatch,
    /// It was forgotten in this moment.
    Nothing,
}

pub(crate) fn put_answer(out: &mut Vec<u8>, event: EventNo, outcome: &Outcome) {
    out.put_u8(image::FORMAT);
    out.put_u64(event.0.into());
    match outcome {
        Outcome::Event(summary) => {
            out.put_u8(0);
            image::put_summary(out, summary);
        }
        Outcome::Hold(hold) => {
            out.put_u8(1);
            image::put_hold(out, hold);
        }
        Outcome::Booking(booking) => {
            out.put_u8(2);
            image::put_booking(out, booking);
        }
        Outcome::Block(block) => {
            out.put_u8(3);
            image::put_block(out, block);
        }
        Outcome::BlockGone => out.put_u8(4),
        Outcome::RefundDue(reference) => {
            out.put_u8(5);
            out.put_text(reference.as_str());
        }
    }
}

fn get_answer(bytes: &[u8], at: Timestamp) -> Result<Answer, Damaged> {
    let mut get = Get(bytes);
    if get.u8()? != image::FORMAT {
        return Err(Damaged);
    }
    let event = EventNo(get.u32()?);
    let outcome = match get.u8()? {
        0 => Outcome::Event(image::get_summary(&mut get)?),
        1 => Outcome::Hold(image::get_hold(&mut get)?),
        2 => Outcome::Booking(image::get_booking(&mut get)?),
        3 => Outcome::Block(image::get_block(&mut get)?),
        4 => Outcome::BlockGone,
        5 => Outcome::RefundDue(Reference::parse(get.text()?).map_err(|_| Damaged)?),
        _ => return Err(Damaged),
    };
    Ok(Answer { event, at, outcome })
}

/// Writes an answer in the open transaction.
pub(crate) fn write_answer(
    connection: &Connection,
    seq: u64,
    key: &IdempotencyKey,
    at: Timestamp,
    answer: &[u8],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO answers (seq, scope, fingerprint, at_ms, answer) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (scope, fingerprint) = (key.scope.to_be_bytes(), key.fingerprint.to_be_bytes());
    connection.prepare_cached(sql)?.execute((seq, scope, fingerprint, at.as_millis(), answer)).map(drop)
}

/// Reads the answer under a number, if it is this request's.
pub(crate) fn read_answer(
    connection: &Connection,
    seq: u64,
    key: &IdempotencyKey,
) -> rusqlite::Result<Found> {
    let sql = "SELECT scope, fingerprint, at_ms, answer FROM answers WHERE seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([seq], |row| {
        let same = row.get::<_, [u8; 16]>(0)? == key.scope.to_be_bytes()
            && row.get::<_, [u8; 16]>(1)? == key.fingerprint.to_be_bytes();
        if !same {
            return Ok(Found::Mismatch);
        }
        let at = Timestamp::from_millis(row.get(2)?);
        let bytes: Vec<u8> = row.get(3)?;
        let answer = get_answer(&bytes, at).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Blob, error.into())
        })?;
        Ok(Found::Answer(Box::new(answer)))
    });
    Ok(found.optional()?.unwrap_or(Found::Nothing))
}
