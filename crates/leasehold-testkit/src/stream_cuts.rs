//! The stream of changes over HTTP, cut anywhere and resumed on any server: the messages add up without a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::{CreateEvent, SeatSpec, StreamChange};

use crate::desk::Desk;
use crate::history::History;
use crate::random::Random;
use crate::raw::{RawConnection, request_bytes};

const EVENT: &str = "streamed";
const SEATS: usize = 8;
const CUTS: usize = 40;
const OK: &str = "HTTP/1.1 200";
const SOON: Duration = Duration::from_secs(10);

/// A message of the stream.
#[derive(Debug, Default)]
pub struct StreamMessage {
    /// The version after it.
    pub id: String,
    /// What it is: `hello`, `change` or `reset`.
    pub event: String,
    /// A JSON document.
    pub data: String,
}

impl StreamMessage {
    /// The complete messages in what was received; the sizes of chunks stand on lines of their own between them.
    pub fn all(bytes: &[u8]) -> Vec<Self> {
        let mut found = Vec::new();
        let mut message = Self::default();
        let text = String::from_utf8_lossy(bytes);
        // A line is complete with its end only.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match line.split_once(": ") {
                Some(("id", id)) => message.id = id.to_owned(),
                Some(("event", event)) => message.event = event.to_owned(),
                Some(("data", data)) => message.data = data.to_owned(),
                _ if line.is_empty() && !message.event.is_empty() => found.push(std::mem::take(&mut message)),
                _ => {}
            }
        }
        found
    }
}

/// Listens to an event's changes after this version.
pub fn listen(address: &str, event: &str, last_event_id: &str) -> RawConnection {
    let headers = [("last-event-id", last_event_id), ("accept", "text/event-stream")];
    let path = format!("/v1/events/{event}/stream");
    let mut connection = RawConnection::open(address).expect("the server takes connections");
    connection.write(&request_bytes("GET", &path, &headers, b"")).expect("the server reads");
    connection
}

/// Buyers at all these servers hold and release, while a listener is cut again and again, and goes on at the next
/// server each time. Panics when it misses something, or hears it twice.
pub async fn cut_streams(addresses: &[&str], history: &History) {
    let mut random = Random::new(Random::seed_of_this_run("streams"));
    let desk = |number: usize| Desk::new(addresses[number % addresses.len()], number, history);
    let seats = (1..=SEATS).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    let event = CreateEvent { id: EVENT.to_owned(), seats, ..CreateEvent::default() };
    let mut listener = Listener::after(desk(0).create_event(&event).await.version);

    let stop = Arc::new(AtomicBool::new(false));
    let sellers = (1..=SEATS).map(|number| {
        let (mut desk, stop) = (desk(number), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let hold = desk.granted(EVENT, &format!("A-{number}"), 60_000).await;
                assert!(desk.release(&hold).await.is_success());
            }
        })
    });
    let sellers: Vec<_> = sellers.collect();
    for cut in 0..CUTS {
        // Anywhere: in the head, between two messages, in the middle of one.
        let length = random.within(1..6_000) as usize;
        let mut connection = listen(addresses[cut % addresses.len()], EVENT, &listener.last);
        let received = connection.read_until(|bytes| bytes.len() >= length, SOON);
        let head = String::from_utf8_lossy(&received[..received.len().min(OK.len())]);
        assert!(OK.starts_with(&*head), "refused: {}", String::from_utf8_lossy(&received));
        assert!(received.len() >= length, "not told of changes any more after {}", listener.last);
        listener.take(&received[..length]);
    }
    assert!(listener.changes > CUTS, "{} changes under load", listener.changes);
    stop.store(true, Ordering::Relaxed);
    for seller in sellers {
        seller.await.expect("every hold is granted and released");
    }

    // Whoever made the last change knows it; the others read it a moment later.
    let now = loop {
        let mut seen = Vec::new();
        for number in 0..addresses.len() {
            seen.push(desk(number).availability(EVENT).await);
        }
        if seen.iter().all(|other| other.version == seen[0].version) {
            break seen.swap_remove(0);
        }
    };
    let missing = version_parts(&now.version).1 - version_parts(&listener.last).1;
    let is_all = |bytes: &[u8]| StreamMessage::all(bytes).len() as u64 > missing;
    let address = addresses[addresses.len() - 1];
    let received = listen(address, EVENT, &listener.last).read_until(is_all, SOON);
    assert_eq!(listener.take(&received) as u64, missing + 1, "a greeting, and what was still missing");
    assert_eq!(listener.last, now.version);
    assert_eq!(Some(String::from_iter(listener.seats)), now.seats, "the changes add up to what there is");
}

/// What a listener has heard so far.
struct Listener {
    last: String,
    seats: [char; SEATS],
    changes: usize,
}

impl Listener {
    fn after(version: String) -> Self {
        Self { last: version, seats: ['f'; SEATS], changes: 0 }
    }

    /// Returns how many messages these are.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let all = StreamMessage::all(bytes);
        for message in &all {
            match message.event.as_str() {
                "hello" => assert_eq!(message.id, self.last, "it goes on from where it was cut"),
                "change" => {
                    let (epoch, number) = version_parts(&self.last);
                    assert_eq!(message.id, format!("{epoch}-{}", number + 1), "a gap or a repetition");
                    let change: StreamChange = serde_json::from_str(&message.data).expect("a change");
                    assert_eq!(change.version, message.id);
                    change.seats.iter().for_each(|seat| self.seats[seat.0 as usize] = seat.1);
                    self.last.clone_from(&message.id);
                    self.changes += 1;
                }
                other => panic!("an unexpected {other}: {message:?}"),
            }
        }
        all.len()
    }
}

/// Epoch and number of a version.
pub fn version_parts(version: &str) -> (&str, u64) {
    let (epoch, number) = version.rsplit_once('-').expect("a version is epoch-number");
    (epoch, number.parse().expect("a number"))
}
