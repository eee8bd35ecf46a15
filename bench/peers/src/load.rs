//! A load that costs little itself: prepared requests on raw connections, answers read by their length.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What a load did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    /// Requests answered in the time.
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    /// The same, and those that were on their way at its end.
    pub(crate) answered: u64,
}

impl Loaded {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

/// Clients that do the same again and again until the time is over.
#[derive(Default)]
pub(crate) struct Clients {
    turns: Turns,
    waiting: Vec<Client>,
}

/// One that has not begun.
type Client = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// What every client looks at before a turn, and counts after it.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Clients {
    /// Adds one that begins when all are there.
    pub(crate) fn add<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
        &mut self,
        client: impl FnOnce(Turns) -> F,
    ) {
        self.waiting.push(Box::pin(client(self.turns.clone())));
    }

    /// Lets them go on for `duration`, and waits for all of them.
    pub(crate) async fn run_for(self, duration: Duration) -> anyhow::Result<Loaded> {
        let begun = Instant::now();
        let clients: Vec<_> = self.waiting.into_iter().map(tokio::spawn).collect();
        tokio::time::sleep(duration).await;
        let requests = self.turns.count.load(Ordering::Relaxed);
        let elapsed = begun.elapsed();
        self.turns.over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.context("a client ended badly")??;
        }
        Ok(Loaded { requests, elapsed, answered: self.turns.count.load(Ordering::Relaxed) })
    }
}

impl Turns {
    pub(crate) fn go_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn done(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4_096) })
    }

    /// Sends a request and reads the answer; its status, and where its body stands in the buffer.
    pub(crate) async fn send(&mut self, request: &[u8]) -> anyhow::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the server closed the connection");
            let Some(head) = find(&self.buffer, b"\r\n\r\n") else { continue };
            let length = content_length(&self.buffer[..head])?;
            let total = head + 4 + length;
            while self.buffer.len() < total {
                ensure!(
                    self.stream.read_buf(&mut self.buffer).await? > 0,
                    "the server closed the connection"
                );
            }
            let status = std::str::from_utf8(&self.buffer[9..12])?.parse()?;
            return Ok((status, &self.buffer[head + 4..total]));
        }
    }
}

/// Lets `connections` send requests for `duration`, each made by `request(connection, turn)`, and checks each status.
pub(crate) async fn run(
    address: SocketAddr,
    connections: usize,
    duration: Duration,
    expected: u16,
    request: impl Fn(usize, u64) -> Vec<u8> + Send + Sync + 'static,
) -> anyhow::Result<Loaded> {
    let request = Arc::new(request);
    let mut clients = Clients::default();
    for number in 0..connections {
        let mut connection = Connection::open(address).await?;
        let request = Arc::clone(&request);
        clients.add(|turns| async move {
            let mut turn = 0;
            while turns.go_on() {
                let (status, body) = connection.send(&request(number, turn)).await?;
                ensure!(
                    status == expected,
                    "{status} instead of {expected}: {}",
                    String::from_utf8_lossy(body)
                );
                turn += 1;
                turns.done();
            }
            Ok(())
        });
    }
    clients.run_for(duration).await
}

/// A POST with a JSON body.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    post_with(path, "", body)
}

/// The same with more headers, each line of them ended.
pub(crate) fn post_with(path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    let text = std::str::from_utf8(head)?;
    let line = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    Ok(line.context("an answer has a length")?.parse()?)
}
