//! A new event: checked by the rules, numbered by the ledger.

use std::sync::Arc;

use leasehold_core::limits::EVENTS_MAX;
use leasehold_core::{Changes, Event, EventNo, Refusal, State, Timestamp};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, Connection, Failure, at_commit, before_commit, within};
use super::desk::{Carried, Job};
use super::follower::News;
use super::halls::Halls;
use super::part::Images;
use super::remembered::{answer_row, done_of};
use super::rows::{AnswerRow, RulesRow, time};
use super::shared::Shared;
use crate::{Done, EngineError, EventSummary, IdempotencyKey, Outcome, image};

/// Carries out the only job, which creates an event.
pub(crate) async fn create_event(connection: &Connection, shared: &Shared, jobs: Vec<Job>) -> Carried {
    let halls = &shared.halls;
    let [job] = &jobs[..] else { unreachable!("events are created one by one") };
    let mut state = State::new(halls.epoch());
    let applied = state.apply(job.request.command.clone(), Timestamp::default(), &mut Changes::default());
    let created = match applied {
        Ok(_) => {
            let event = state.event(EventNo(0)).expect("it was just created");
            insert(connection, halls, event, job.request.key.as_ref(), job.in_doubt.has_begun()).await
        }
        Err(refusal) => Ok(Err(refusal.into())),
    };
    match created {
        Ok(answer) => {
            let answers = jobs.into_iter().map(|job| job.reply).zip([answer]).collect();
            Carried::Out(News { versions: Vec::new(), answers })
        }
        Err(failure) => {
            tracing::warn!(?failure, "an event could not be created");
            connection.clean_up(failure).await;
            Carried::Failed(failure, jobs)
        }
    }
}

async fn insert(
    connection: &Connection,
    halls: &Halls,
    event: &Event,
    key: Option<&IdempotencyKey>,
    in_doubt: bool,
) -> Result<Result<Done, EngineError>, Failure> {
    let client = &connection.client;
    let begun = async { client.batch_execute("BEGIN; SELECT events FROM leasehold.ledger FOR UPDATE").await };
    within(CALL_TIME_MAX, begun).await.map_err(|error| before_commit(&error))?;
    if let Some(key) = key {
        let known = known_answer(connection, key).await.map_err(|error| before_commit(&error))?;
        if let Some(row) = known {
            end(connection).await?;
            halls.get(client, row.event_no).await.map_err(|error| before_commit(&error))?;
            return Ok(done_of(&row, key, halls).map(|done| Done { replayed: !in_doubt, ..done }));
        }
    }
    let (number, at) = match add(client, event).await.map_err(|error| before_commit(&error))? {
        Ok(added) => added,
        Err(refusal) => {
            end(connection).await?;
            return Ok(Err(refusal.into()));
        }
    };
    let outcome = Outcome::Event(EventSummary::of(event, halls.epoch()));
    if let Some(key) = key {
        let number = EventNo(number.cast_unsigned());
        let mut images = Images::default();
        images.answers.push(answer_row(key, number, at, &outcome));
        let images = serde_json::to_string(&images).map_err(|_| Failure::Wrong)?;
        let written = within(CALL_TIME_MAX, client.execute(&connection.write, &[&images])).await;
        written.map_err(|error| before_commit(&error))?;
    }
    let committed = within(CALL_TIME_MAX, client.batch_execute("COMMIT")).await;
    committed.map_err(|error| at_commit(&error))?;
    // It is created, whatever comes now: a caller that asks again finds it.
    let hall = match halls.get(client, number).await {
        Ok(Some(hall)) => hall,
        Ok(None) => return Ok(Err(EngineError::Unknown)),
        Err(error) => {
            tracing::error!(%error, "an event that was created cannot be read");
            return Ok(Err(EngineError::Unknown));
        }
    };
    Ok(Ok(Done { outcome, venue: Arc::clone(&hall.venue), at, replayed: false }))
}

async fn end(connection: &Connection) -> Result<(), Failure> {
    let ended = within(CALL_TIME_MAX, connection.client.batch_execute("ROLLBACK")).await;
    ended.map_err(|error| before_commit(&error))
}

/// Adds the event's rows. Its number and time, or why there is none.
pub(crate) async fn add(
    client: &Client,
    event: &Event,
) -> Result<Result<(i32, Timestamp), Refusal>, CallError> {
    let mut bytes = Vec::new();
    image::put_event(&mut bytes, event);
    let rules = serde_json::to_string(&RulesRow::new(&event.policy, event.state))?;
    let pool_ids: Vec<&str> = event.pools().iter().map(|pool| pool.id.as_str()).collect();
    let capacities: Vec<i32> = event.pools().iter().map(|pool| pool.capacity.cast_signed()).collect();
    let arguments: [&(dyn ToSql + Sync); 7] = [
        &event.id.as_str(),
        &rules,
        &bytes,
        &event.layout.seat_count().cast_signed(),
        &pool_ids,
        &capacities,
        &(EVENTS_MAX as i32),
    ];
    let sql = "SELECT event_no, created_at, id_taken
               FROM leasehold.create_v2($1, $2::text::json, $3, $4, $5, $6, $7, $2::text::json)";
    let row = within(CALL_TIME_MAX, client.query_one(sql, &arguments)).await?;
    let (number, at, id_taken): (Option<i32>, i64, bool) = (row.get(0), row.get(1), row.get(2));
    Ok(match number {
        Some(number) => Ok((number, time(at))),
        None if id_taken => Err(Refusal::EventExists),
        None => Err(Refusal::Invalid("there are too many events or pools")),
    })
}

/// The answer that is remembered under a key, whosever it is.
pub(crate) async fn known_answer(
    connection: &Connection,
    key: &IdempotencyKey,
) -> Result<Option<AnswerRow>, CallError> {
    read_answer(&connection.client, key).await
}

/// The same on any connection.
pub(crate) async fn read_answer(
    client: &Client,
    key: &IdempotencyKey,
) -> Result<Option<AnswerRow>, CallError> {
    let sql = "SELECT fingerprint, event_no, at, encode(answer, 'hex'), number, fences,
                   (SELECT row_to_json(sale)::text FROM leasehold.bookings AS sale WHERE sale.id = answers.booking)
               FROM leasehold.answers WHERE scope = $1";
    let scope = Uuid::from_u128(key.scope);
    let row = within(CALL_TIME_MAX, client.query_opt(sql, &[&scope])).await?;
    let Some(row) = row else { return Ok(None) };
    let booking: Option<&str> = row.get(6);
    Ok(Some(AnswerRow {
        scope,
        fingerprint: row.get(0),
        event_no: row.get(1),
        at: row.get(2),
        answer: row.get(3),
        number: row.get(4),
        fences: row.get(5),
        booking: booking.map(serde_json::from_str).transpose()?,
    }))
}
