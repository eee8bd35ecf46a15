//! Answers kept under idempotency keys, on disk.

use leasehold_core::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::IdempotencyKey;
use crate::answer::{Answer, get_answer};

/// What stands on disk under a number.
#[derive(Debug)]
pub(crate) enum Found {
    Answer(Box<Answer>),
    /// Another request's.
    Mismatch,
    /// It was forgotten in this moment.
    Nothing,
}

/// Writes an answer in the open transaction.
pub(crate) fn write_answer(
    connection: &Connection,
    number: u64,
    key: &IdempotencyKey,
    at: Timestamp,
    answer: &[u8],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO answers (seq, scope, fingerprint, at_ms, answer) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (scope, fingerprint) = (key.scope.to_be_bytes(), key.fingerprint.to_be_bytes());
    connection.prepare_cached(sql)?.execute((number, scope, fingerprint, at.as_millis(), answer)).map(drop)
}

/// Reads the answer under a number, if it is this request's.
pub(crate) fn read_answer(
    connection: &Connection,
    number: u64,
    key: &IdempotencyKey,
) -> rusqlite::Result<Found> {
    let sql = "SELECT scope, fingerprint, at_ms, answer FROM answers WHERE seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([number], |row| {
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
