//! Work, kill -9, restart, and again; and the same for one request that is repeated under its key.

use std::time::{Duration, Instant};

use leasehold_api::{CreateEvent, CreateHold, ItemSpec, PoolSpec};
use leasehold_client::Request;

use crate::desk::Granted;
use crate::history::Outcome;
use crate::random::Random;
use crate::recording::RecordingClient;
use crate::stage::Stage;
use crate::workload::Workload;

/// What many kills hit.
#[derive(Debug, Default, Clone, Copy)]
pub struct Kills {
    /// How often the server was killed.
    pub kills: usize,
    /// Kills before which the server had acknowledged something in that life.
    pub after_work: usize,
    /// Kills that left requests without an answer.
    pub in_flight: usize,
    /// The longest restart.
    pub restart_max: Duration,
}

/// What many kills of a server with one request did to that request.
#[derive(Debug, Default, Clone)]
pub struct KeyRounds {
    /// Requests that got their answer before the kill.
    pub answered_first: usize,
    /// Requests without an answer.
    pub unanswered: usize,
    /// Those of them that were committed: the kill fell between the commit and the answer.
    pub committed_unanswered: usize,
    /// What went wrong, in words; empty when every repetition found its one effect.
    pub complaints: Vec<String>,
}

/// Lets the buyers work and kills the server after 5 to 400 ms, `kills` times; the server runs afterwards.
pub async fn kill_rounds(
    stage: &mut Stage,
    workload: &mut Workload,
    random: &mut Random,
    kills: usize,
) -> Kills {
    kill_rounds_with(stage, workload, random, kills, |_| {}).await
}

/// The same, with a look at what the `n`th kill left, before the next start; the first is 1.
pub async fn kill_rounds_with(
    stage: &mut Stage,
    workload: &mut Workload,
    random: &mut Random,
    kills: usize,
    mut look: impl FnMut(usize),
) -> Kills {
    let mut seen = Kills::default();
    for _ in 0..kills {
        workload.begin_round(stage.address());
        tokio::time::sleep(Duration::from_millis(random.within(5..400))).await;
        stage.server.kill9();
        let round = workload.end_round().await;
        seen.kills += 1;
        seen.after_work += usize::from(round.acknowledged > 0);
        seen.in_flight += usize::from(round.unanswered > 0);
        look(seen.kills);
        let restarted = Instant::now();
        stage.restart();
        seen.restart_max = seen.restart_max.max(restarted.elapsed());
    }
    seen
}

/// Sends one request, kills the server within `kill_micros_max`, repeats it under the same key; `rounds` times.
///
/// Each round asks for a unit of which there are more than enough, so the repetition must be granted; and as nothing
/// but its key keeps it from being granted a second time, the numbers show when that was lost.
pub async fn repeat_after_kill(
    stage: &mut Stage,
    random: &mut Random,
    rounds: usize,
    kill_micros_max: u64,
) -> KeyRounds {
    let capacity = u32::try_from(rounds * 2).expect("a few rounds");
    let pools = vec![PoolSpec { id: "units".to_owned(), capacity }];
    let event = CreateEvent { id: "keys".to_owned(), pools, ..CreateEvent::default() };
    stage.desk(0).create_event(&event).await;
    let mut seen = KeyRounds::default();
    for round in 1..=rounds {
        let items = vec![ItemSpec::pool("units", 1)];
        let body = CreateHold { items, holder: Some(format!("holder-{round}")), ttl_ms: Some(600_000) };
        let request = Request::post("/v1/events/keys/holds", &body).idempotency_key(format!("key-{round}"));
        let first = send_and_kill(stage, request.clone(), random.within(1..kill_micros_max)).await;
        stage.restart();
        let answer = stage.desk(1).send(request).await;
        let again = Granted::of(&answer);
        match (first, &again) {
            (_, None) => {
                seen.complaints.push(format!("round {round}: the repetition was refused: {answer:?}"))
            }
            (Outcome::Answer(first), Some(_)) => {
                seen.answered_first += 1;
                if first.body != answer.body {
                    seen.complaints.push(format!("round {round}: {first:?} became {answer:?}"));
                }
            }
            (Outcome::NoAnswer, Some(_)) => {
                seen.unanswered += 1;
                seen.committed_unanswered += usize::from(answer.header("idempotency-replayed").is_some());
            }
            (Outcome::NotSent, Some(_)) => {}
        }
        let view = stage.desk(1).show_event("keys").await;
        let held = view.pools.first().map_or(0, |pool| pool.held) as usize;
        if held != round {
            seen.complaints.push(format!("round {round}: {held} units are held"));
            return seen;
        }
    }
    seen
}

/// The server dies while the request is on its way, being worked on, or just answered.
async fn send_and_kill(stage: &mut Stage, request: Request, kill_micros: u64) -> Outcome {
    let mut client = RecordingClient::new(stage.address(), 1, &stage.history);
    assert!(client.connect().await, "the server was ready a moment ago");
    let sending = tokio::spawn(async move { client.send(request).await });
    // Sleeping is too coarse for microseconds.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(kill_micros) {
        tokio::task::yield_now().await;
    }
    stage.server.kill9();
    sending.await.expect("sending does not panic")
}
