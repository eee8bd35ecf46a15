//! Reads back everything that was ever acknowledged, so that the checker can compare.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_client::Request;
use tokio::task::JoinSet;

use crate::facts::Facts;
use crate::history::{History, Outcome};
use crate::recording::RecordingClient;

/// How many connections read at once.
const READERS: usize = 8;
/// How often a read is repeated that was turned away or not answered.
const TRIES_MAX: usize = 50;

/// Reads every acknowledged hold and booking, and their events, as the final state of `history`.
pub async fn read_back(address: &str, history: &History) {
    let facts = Facts::of(history);
    history.begin_final_state();
    let mut requests: Vec<Request> = Vec::new();
    for hold in facts.holds.values() {
        let request = Request::get(format!("/v1/holds/{}", hold.id));
        requests.push(request.secret(hold.secret.as_deref().unwrap_or_default()));
    }
    requests.extend(facts.bookings.keys().map(|booking| Request::get(format!("/v1/bookings/{booking}"))));
    let mut readers = JoinSet::new();
    for (number, part) in requests.chunks(requests.len().div_ceil(READERS).max(1)).enumerate() {
        let client = RecordingClient::new(address, 10_000 + number, history);
        readers.spawn(read_all(client, part.to_vec()));
    }
    while let Some(reader) = readers.join_next().await {
        reader.expect("no reader panics");
    }
    let events: BTreeSet<&str> = facts.holds.values().map(|hold| hold.event.as_str()).collect();
    let views = events.into_iter().flat_map(|event| {
        [format!("/v1/events/{event}"), format!("/v1/events/{event}/availability")].map(Request::get)
    });
    read_all(RecordingClient::new(address, 10_000 + READERS, history), views.collect()).await;
}

async fn read_all(mut client: RecordingClient, requests: Vec<Request>) {
    for request in requests {
        for _ in 0..TRIES_MAX {
            match client.send(request.clone()).await {
                Outcome::Answer(answer) if !matches!(answer.status, 429 | 503) => break,
                Outcome::Answer(_) | Outcome::NoAnswer | Outcome::NotSent => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}
