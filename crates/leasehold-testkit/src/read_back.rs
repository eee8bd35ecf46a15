//! Reads back everything that was ever acknowledged, so that the checker can compare.

use std::time::Duration;

use leasehold_api::RefundList;
use leasehold_client::Request;
use tokio::task::JoinSet;

use crate::facts::Facts;
use crate::history::{Answer, History, Outcome};
use crate::recording::RecordingClient;

/// How many connections read at once.
const READERS: usize = 8;
/// How often a read is repeated that was turned away or not answered.
const TRIES_MAX: usize = 50;

/// Reads every acknowledged hold, booking and event, and what the events must give back, as the final state of `history`.
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
        let (mut client, part) = (RecordingClient::new(address, 10_000 + number, history), part.to_vec());
        readers.spawn(async move { read_all(&mut client, part).await });
    }
    while let Some(reader) = readers.join_next().await {
        reader.expect("no reader panics");
    }
    let mut events = facts.created_events();
    events.extend(facts.holds.values().map(|hold| hold.event.clone()));
    let views = events.iter().flat_map(|event| {
        [format!("/v1/events/{event}"), format!("/v1/events/{event}/availability")].map(Request::get)
    });
    let mut client = RecordingClient::new(address, 10_000 + READERS, history);
    read_all(&mut client, views.collect()).await;
    for event in &events {
        read_refunds(&mut client, event).await;
    }
}

/// Reads the list of payments that must be given back, a page at a time.
async fn read_refunds(client: &mut RecordingClient, event: &str) {
    let mut path = format!("/v1/events/{event}/refunds");
    while let Some(answer) = read(client, Request::get(&path)).await {
        let Some(next) = answer.view::<RefundList>().and_then(|page| page.next) else { break };
        path = format!("/v1/events/{event}/refunds?after={next}");
    }
}

async fn read_all(client: &mut RecordingClient, requests: Vec<Request>) {
    for request in requests {
        read(client, request).await;
    }
}

async fn read(client: &mut RecordingClient, request: Request) -> Option<Answer> {
    for _ in 0..TRIES_MAX {
        match client.send(request.clone()).await {
            Outcome::Answer(answer) if !matches!(answer.status, 429 | 503) => return Some(answer),
            Outcome::Answer(_) | Outcome::NoAnswer | Outcome::NotSent => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    None
}
