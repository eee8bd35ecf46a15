//! The stream of changes over HTTP: resumed after any cut without a gap, and begun anew when there is no going on.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_api::{CreateEvent, SeatSpec, StreamReset};
use leasehold_testkit::{
    Desk, History, Launch, ServerProcess, Stage, StreamMessage, cut_streams, listen, version_parts,
};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_cut_anywhere_under_load_goes_on_without_a_gap() {
    let stage = Stage::open(Path::new(env!("CARGO_BIN_EXE_leasehold")));
    cut_streams(&[stage.address()], &stage.history).await;
    stage.judge().await.assert_clean();
}

/// A server that was restored from a backup may have forgotten what the listener has seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_an_earlier_epoch_is_told_to_begin_anew() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    let mut server = Launch::new(binary, &data).start();
    let history = History::new();
    let mut desk = Desk::new(server.address(), 0, &history);
    desk.create_event(&gala()).await;
    let args = ["backup", data.to_str().unwrap(), "--to", copy.to_str().unwrap()];
    assert!(std::process::Command::new(binary).args(args).status().unwrap().success());
    // Seen by the listener, and not in the copy.
    desk.granted("gala", "A-1", 60_000).await;
    let seen = desk.show_event("gala").await.version;
    server.kill9();

    let server = Launch::new(binary, &copy).start();
    let mut desk = Desk::new(server.address(), 0, &history);
    is_told_to_begin_anew(&server, &mut desk, &seen).await;
}

/// A demo that is started again, say: the same event, and nothing of what the listener has seen. Its versions are soon as
/// high as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_of_an_earlier_data_file_is_told_to_begin_anew() {
    let binary = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let folder = tempfile::tempdir().unwrap();
    let mut server = Launch::new(binary, &folder.path().join("first.db")).start();
    let history = History::new();
    let mut desk = Desk::new(server.address(), 0, &history);
    desk.create_event(&gala()).await;
    let seen = desk.show_event("gala").await.version;
    server.kill9();

    let made_in = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let first = made_in();
    while made_in() == first {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let server = Launch::new(binary, &folder.path().join("second.db")).start();
    let history = History::new();
    let mut desk = Desk::new(server.address(), 0, &history);
    desk.create_event(&gala()).await;
    is_told_to_begin_anew(&server, &mut desk, &seen).await;
}

fn gala() -> CreateEvent {
    let seats = ["A-1", "A-2"].map(|seat| SeatSpec::Id(seat.to_owned())).to_vec();
    CreateEvent { id: "gala".to_owned(), seats, ..CreateEvent::default() }
}

/// A listener that comes back with what it has seen elsewhere is told to begin anew, and hears what happens then.
async fn is_told_to_begin_anew(server: &ServerProcess, desk: &mut Desk, seen: &str) {
    let current = desk.show_event("gala").await.version;
    assert_ne!(version_parts(&current).0, version_parts(seen).0, "it has an epoch of its own");
    let mut listener = listen(server.address(), "gala", seen);
    let begun = Instant::now();
    listener
        .read_until(|bytes| StreamMessage::all(bytes).iter().any(|message| message.event == "reset"), SOON);
    assert!(begun.elapsed() < SOON, "no reset came");
    desk.granted("gala", "A-2", 60_000).await;
    let received = listener.read_until(|bytes| StreamMessage::all(bytes).len() >= 3, SOON);
    let told = StreamMessage::all(&received);
    let events: Vec<&str> = told.iter().map(|message| message.event.as_str()).collect();
    assert_eq!(events, ["hello", "reset", "change"]);
    let reset: StreamReset = serde_json::from_str(&told[1].data).unwrap();
    assert_eq!((&reset.version, &told[1].id), (&current, &current));
    assert_eq!(told[2].id, format!("{}-{}", version_parts(&current).0, version_parts(&current).1 + 1));
}
