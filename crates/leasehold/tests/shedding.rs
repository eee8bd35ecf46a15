//! Too much at a time and too slow: what is turned away and told so, and what is shown out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_api::{CreateEvent, CreateHold, EventView, ItemSpec, LayoutSpec, SectionSpec};
use leasehold_client::Request;
use leasehold_engine::{EmbeddedEngine, EmbeddedOptions};
use leasehold_lock::{Locker, Memory};
use leasehold_server::ServerConfig;
use leasehold_testkit::{
    Answer, History, RawConnection, RecordingClient, check, exchange, read_back, request_bytes,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

const SEATS: u32 = 500;
const SOON: Duration = Duration::from_secs(10);

/// A server in this process, with limits that the command does not offer, and the history of its clients.
struct Server {
    address: String,
    history: History,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Serves the event `gala` of one row, with this length of the engine's queue.
    async fn start(queue_length_max: usize, config: ServerConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options =
            EmbeddedOptions::new(folder.path().join("shedding.db")).queue_length_max(queue_length_max);
        let engine = Arc::new(EmbeddedEngine::open(options).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let locker = Locker::new(Memory::new());
        let task = tokio::spawn(leasehold_server::serve(listener, engine, locker, config, stop.clone()));
        let server = Self { address, history: History::new(), stop, task, _folder: folder };
        let sections = vec![SectionSpec { name: "A".to_owned(), rows: 1, seats_per_row: SEATS }];
        let layout = Some(LayoutSpec { sections });
        let event = CreateEvent { id: "gala".to_owned(), layout, ..CreateEvent::default() };
        assert_eq!(server.send(Request::post("/v1/events", &event)).await.status, 201);
        server
    }

    /// A client on a connection of its own.
    fn client(&self) -> RecordingClient {
        RecordingClient::new(&self.address, 0, &self.history)
    }

    /// One request on a connection of its own.
    async fn send(&self, request: Request) -> Answer {
        self.client().send(request).await.answered("a request")
    }

    async fn counter(&self, name: &str) -> u64 {
        let metrics = self.send(Request::get("/metrics")).await;
        let text = String::from_utf8(metrics.body.to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// Whoever was turned away has nothing, and nobody else has lost anything.
    async fn end(self) {
        read_back(&self.address, &self.history).await;
        let checked = check(&self.history);
        checked.assert_meaningful(1);
        checked.assert_clean();
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn hold(seat: u32) -> Request {
    let body = CreateHold { items: vec![ItemSpec::seat(format!("A-1-{seat}"))], ..CreateHold::default() };
    Request::post("/v1/events/gala/holds", &body)
}

fn assert_overloaded(answer: &Answer) {
    assert_eq!((answer.status, answer.code().as_deref()), (503, Some("overloaded")), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_sheds_newcomers_and_what_it_took_is_done() {
    let server = Server::start(8, ServerConfig::default()).await;
    let mut buyers = JoinSet::new();
    for seat in 1..=SEATS {
        let mut client = server.client();
        buyers.spawn(async move { client.send(hold(seat)).await.answered("a buyer") });
    }
    let answers = buyers.join_all().await;
    let (granted, shed): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    shed.iter().for_each(|answer| assert_overloaded(answer));
    assert!(!granted.is_empty() && !shed.is_empty(), "{} granted, {} shed", granted.len(), shed.len());
    let event: EventView = server.send(Request::get("/v1/events/gala")).await.view().unwrap();
    assert_eq!(event.seats.held as usize, granted.len());
    assert_eq!(server.send(Request::get("/readyz")).await.status, 200, "the queue is empty again");
    server.end().await;
}

/// A queue of one has no room for newcomers at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_is_not_ready_and_goes_on_reading() {
    let server = Server::start(1, ServerConfig::default()).await;
    assert_overloaded(&server.send(Request::get("/readyz")).await);
    assert_overloaded(&server.send(hold(1)).await);
    assert_eq!(server.send(Request::get("/healthz")).await.status, 200, "it is alive");
    assert_eq!(server.send(Request::get("/v1/events/gala/availability")).await.status, 200);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_too_many_is_turned_away_until_another_is_done() {
    let config = ServerConfig { requests_max: 1, ..ServerConfig::default() };
    let server = Server::start(1_024, config).await;
    let body = br#"{"id":"slow","seats":["A-1-1"]}"#;
    let whole = request_bytes("POST", "/v1/events", &[("expect", "100-continue")], body);
    let (first_half, second_half) = whole.split_at(whole.len() - body.len() / 2);
    let mut slow = RawConnection::open(&server.address).unwrap();
    slow.write(first_half).unwrap();
    assert_eq!(slow.read_answer(SOON).unwrap().status, 100, "it is being worked on");
    for request in [Request::get("/v1/events"), hold(2), Request::get("/readyz")] {
        assert_overloaded(&server.send(request).await);
    }
    slow.write(second_half).unwrap();
    assert_eq!(slow.read_answer(SOON).unwrap().status, 201);
    assert_eq!(server.send(hold(2)).await.status, 201);
    assert_eq!(server.counter("leasehold_http_turned_away_total").await, 3);
    server.end().await;
}

/// An event of the size of a large body: its seats have long names.
fn large_event(id: &str) -> Vec<u8> {
    let seats: Vec<String> = (0..2_000).map(|seat| format!("\"{seat:-<100}\"")).collect();
    format!("{{\"id\":\"{id}\",\"seats\":[{}]}}", seats.join(",")).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn few_large_bodies_are_in_memory_at_a_time_and_small_ones_do_not_wait_for_them() {
    const AT_A_TIME: usize = 4;
    let server = Server::start(1_024, ServerConfig::default()).await;
    let mut stalled = Vec::new();
    for number in 0..AT_A_TIME {
        let body = large_event(&format!("stalled-{number}"));
        let whole = request_bytes("POST", "/v1/events", &[], &body);
        let (first_part, rest) = whole.split_at(whole.len() - body.len() / 2);
        let mut connection = RawConnection::open(&server.address).unwrap();
        connection.write(first_part).unwrap();
        stalled.push((connection, rest.to_vec()));
    }
    let ask = |id: &str| {
        exchange(&server.address, &request_bytes("POST", "/v1/events", &[], &large_event(id)), SOON)
    };
    // The stalled ones have their places as soon as the server has read so much of them.
    let begun = Instant::now();
    let mut asked =
        (0..).take_while(|_| begun.elapsed() < SOON).map(|number| ask(&format!("early-{number}")));
    let refused = asked.find(|answer| answer.status != 201);
    let refused = refused.expect("the places are taken at some time");
    assert_eq!((refused.status, refused.code().as_deref()), (503, Some("overloaded")), "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.send(hold(1)).await.status, 201, "a small body has its own room");
    for (mut connection, rest) in stalled {
        connection.write(&rest).unwrap();
        assert_eq!(connection.read_answer(SOON).unwrap().status, 201, "it had its place");
    }
    assert_eq!(ask("late").status, 201, "the places are free again");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_too_many_is_turned_away_until_another_ends() {
    let config = ServerConfig { streams_max: 1, ..ServerConfig::default() };
    let server = Server::start(1_024, config).await;
    let listen = request_bytes("GET", "/v1/events/gala/stream", &[], b"");
    let mut first = RawConnection::open(&server.address).unwrap();
    first.write(&listen).unwrap();
    assert_eq!(first.read_answer(SOON).unwrap().status, 200);
    assert_overloaded(&server.send(Request::get("/v1/events/gala/stream")).await);
    assert_eq!(server.send(hold(1)).await.status, 201, "only streams are full");
    drop(first);
    let begun = Instant::now();
    while exchange(&server.address, &listen, SOON).status != 200 {
        assert!(begun.elapsed() < SOON, "the place of a stream that ended is given again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed_and_a_quiet_stream_is_not() {
    let idle_timeout = Duration::from_secs(2);
    let config = ServerConfig { idle_timeout, ..ServerConfig::default() };
    let server = Server::start(1_024, config).await;
    let mut stream = RawConnection::open(&server.address).unwrap();
    stream.write(&request_bytes("GET", "/v1/events/gala/stream", &[], b"")).unwrap();
    assert_eq!(stream.read_answer(SOON).unwrap().status, 200);
    let mut silent = RawConnection::open(&server.address).unwrap();
    let mut asked_once = RawConnection::open(&server.address).unwrap();
    let asked = Instant::now();
    asked_once.write(&request_bytes("GET", "/v1/events/gala", &[], b"")).unwrap();
    assert_eq!(asked_once.read_answer(SOON).unwrap().status, 200);
    assert!(asked_once.closed_within(SOON), "a connection that asks nothing more");
    assert!(asked.elapsed() >= idle_timeout, "closed after {:?}", asked.elapsed());
    assert!(silent.closed_within(SOON), "a connection that never asked");
    assert_eq!(server.counter("leasehold_http_timed_out_total").await, 2);
    assert_eq!(server.send(hold(1)).await.status, 201);
    let told = stream.read_until(|bytes| bytes.windows(13).any(|part| part == b"event: change"), SOON);
    assert!(String::from_utf8_lossy(&told).contains("event: change"), "the stream goes on");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_its_answers_is_shown_out() {
    const REQUESTS: usize = 200;
    let write_timeout = Duration::from_secs(1);
    let config = ServerConfig { write_timeout, ..ServerConfig::default() };
    let server = Server::start(1_024, config).await;
    // Small buffers, so that few answers fill them.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut reader = socket.connect(server.address.parse().unwrap()).await.unwrap();
    let request = request_bytes("GET", "/docs/reference.js", &[("accept-encoding", "gzip")], b"");
    let length = exchange(&server.address, &request, SOON).body.len();
    reader.write_all(&request.repeat(REQUESTS)).await.unwrap();
    let begun = Instant::now();
    while server.counter("leasehold_http_timed_out_total").await == 0 {
        assert!(begun.elapsed() < SOON, "nobody reads, and the connection stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() >= write_timeout, "shown out after {:?}", begun.elapsed());
    let mut received = Vec::new();
    // What is in the buffers comes, then the connection ends, with or without an error.
    let _ = tokio::time::timeout(SOON, reader.read_to_end(&mut received))
        .await
        .expect("the connection is closed");
    assert!(received.len() < REQUESTS * length, "all {} bytes came", received.len());
    server.end().await;
}
