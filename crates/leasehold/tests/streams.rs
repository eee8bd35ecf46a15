//! The stream of changes over HTTP: resumed after any cut without a gap, and begun anew when there is no going on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold_api::{CreateEvent, SeatSpec, StreamChange, StreamReset};
use leasehold_testkit::{Launch, Random, RawConnection, Stage, request_bytes};

const SEATS: usize = 8;
const SOON: Duration = Duration::from_secs(10);

/// A message of the stream.
#[derive(Debug, Default)]
struct Message {
    id: String,
    event: String,
    data: String,
}

/// The complete messages in what was received; the sizes of chunks stand on lines of their own between them.
fn messages(bytes: &[u8]) -> Vec<Message> {
    let mut found = Vec::new();
    let mut message = Message::default();
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

fn listen(address: &str, last_event_id: &str) -> RawConnection {
    let headers = [("last-event-id", last_event_id), ("accept", "text/event-stream")];
    let mut connection = RawConnection::open(address).unwrap();
    connection.write(&request_bytes("GET", "/v1/events/gala/stream", &headers, b"")).unwrap();
    connection
}

fn event() -> CreateEvent {
    let seats = (1..=SEATS).map(|number| SeatSpec::Id(format!("A-{number}"))).collect();
    CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() }
}

/// Epoch and number.
fn parts(version: &str) -> (&str, u64) {
    let (epoch, number) = version.rsplit_once('-').expect("a version is epoch-number");
    (epoch, number.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_anywhere_under_load_goes_on_without_a_gap() {
    const CUTS: usize = 40;
    let mut random = Random::new(Random::seed_of_this_run("streams"));
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    let mut last = stage.desk(0).create_event(&event()).await.version;
    let stop = Arc::new(AtomicBool::new(false));
    let sellers: Vec<_> = (1..=SEATS)
        .map(|number| {
            let (mut desk, stop) = (stage.desk(number), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let hold = desk.granted("gala", &format!("A-{number}"), 60_000).await;
                    assert!(desk.release(&hold).await.is_success());
                }
            })
        })
        .collect();
    let mut seats = ['f'; SEATS];
    let mut changes = 0;
    let mut take = |bytes: &[u8], last: &mut String| {
        let all = messages(bytes);
        for message in &all {
            match message.event.as_str() {
                "hello" => assert_eq!(message.id, *last, "it goes on from where it was cut"),
                "change" => {
                    let (epoch, number) = parts(last);
                    assert_eq!(message.id, format!("{epoch}-{}", number + 1), "a gap or a repetition");
                    let change: StreamChange = serde_json::from_str(&message.data).unwrap();
                    assert_eq!(change.version, message.id);
                    change.seats.iter().for_each(|seat| seats[seat.0 as usize] = seat.1);
                    last.clone_from(&message.id);
                    changes += 1;
                }
                other => panic!("an unexpected {other}: {message:?}"),
            }
        }
        all.len()
    };
    for _ in 0..CUTS {
        // Anywhere: in the head, between two messages, in the middle of one.
        let length = random.within(1..6_000) as usize;
        let received = listen(stage.address(), &last).read_until(|bytes| bytes.len() >= length, SOON);
        take(&received[..length.min(received.len())], &mut last);
    }
    stop.store(true, Ordering::Relaxed);
    for seller in sellers {
        seller.await.unwrap();
    }
    let now = stage.desk(0).availability("gala").await;
    let missing = parts(&now.version).1 - parts(&last).1;
    let is_all = |bytes: &[u8]| messages(bytes).len() as u64 > missing;
    let received = listen(stage.address(), &last).read_until(is_all, SOON);
    assert_eq!(take(&received, &mut last) as u64, missing + 1, "a greeting, and what was still missing");
    assert_eq!(last, now.version);
    assert_eq!(String::from_iter(seats), now.seats.unwrap(), "the changes add up to what there is");
    assert!(changes > CUTS, "{changes} changes under load");
    stage.judge().await.assert_clean();
}

/// A server that was restored from a backup may have forgotten what the listener has seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_an_earlier_epoch_is_told_to_begin_anew() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    let mut server = Launch::new(binary, &data).start();
    let history = leasehold_testkit::History::new();
    let mut desk = leasehold_testkit::Desk::new(server.address(), 0, &history);
    desk.create_event(&event()).await;
    let args = ["backup", data.to_str().unwrap(), "--to", copy.to_str().unwrap()];
    assert!(std::process::Command::new(binary).args(args).status().unwrap().success());
    // Seen by the listener, and not in the copy.
    desk.granted("gala", "A-1", 60_000).await;
    let seen = desk.show_event("gala").await.version;
    server.kill9();

    let server = Launch::new(binary, &copy).start();
    let mut desk = leasehold_testkit::Desk::new(server.address(), 0, &history);
    let current = desk.show_event("gala").await.version;
    assert_ne!(parts(&current).0, parts(&seen).0, "a copy has an epoch of its own");
    let mut listener = listen(server.address(), &seen);
    let begun = Instant::now();
    listener.read_until(|bytes| messages(bytes).iter().any(|message| message.event == "reset"), SOON);
    assert!(begun.elapsed() < SOON, "no reset came");
    desk.granted("gala", "A-2", 60_000).await;
    let received = listener.read_until(|bytes| messages(bytes).len() >= 3, SOON);
    let told = messages(&received);
    let events: Vec<&str> = told.iter().map(|message| message.event.as_str()).collect();
    assert_eq!(events, ["hello", "reset", "change"]);
    let reset: StreamReset = serde_json::from_str(&told[1].data).unwrap();
    assert_eq!((&reset.version, &told[1].id), (&current, &current));
    assert_eq!(told[2].id, format!("{}-{}", parts(&current).0, parts(&current).1 + 1));
}
