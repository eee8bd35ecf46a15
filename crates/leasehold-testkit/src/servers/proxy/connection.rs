//! One connection through the proxy: two directions, each with its own fault.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Counters, Direction, Faults, Flow};

/// How many pieces may be on their way at once.
const PIECES_MAX: usize = 1024;
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Bytes that are on their way.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
}

/// One direction of one connection.
struct Pipe {
    direction: Direction,
    connection: u64,
    faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
    /// True once a byte was swallowed: nothing after it may arrive.
    has_gap: Arc<AtomicBool>,
}

/// The gaps of a connection, by direction.
type Gaps = [(Direction, Arc<AtomicBool>); 2];

/// Counts an open connection and its gaps for as long as it lives, however it ends.
struct Open {
    number: u64,
    counters: Arc<Counters>,
    gaps: Gaps,
}

/// Relays between a client and the target until both are done, one fails, or a gap makes going on wrong.
pub(super) async fn relay(
    client: TcpStream,
    target: String,
    faults: watch::Receiver<Faults>,
    counters: Arc<Counters>,
) {
    let gaps = [Direction::Requests, Direction::Answers].map(|direction| (direction, Arc::default()));
    let open = Open::new(Arc::clone(&counters), gaps);
    let hang_ups = faults.borrow().hang_ups;
    let Ok(server) = TcpStream::connect(target).await else { return };
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let [requests, answers] = open.gaps.clone().map(|(direction, has_gap)| Pipe {
        direction,
        connection: open.number,
        faults: faults.clone(),
        counters: Arc::clone(&counters),
        has_gap,
    });
    let hung_up = || async {
        let mut faults = faults.clone();
        let _ = faults.wait_for(|faults| faults.hang_ups != hang_ups).await;
    };
    let answers = async {
        tokio::select! {
            ended = answers.run(from_server, to_client, std::future::pending()) => ended,
            () = hung_up() => Ok(()),
        }
    };
    tokio::select! {
        _ = async { tokio::try_join!(requests.run(from_client, to_server, hung_up()), answers) } => {}
        () = healed_after_gap(faults.clone(), &open) => {}
    }
}

impl Pipe {
    /// Takes from the reader until it ends or `no_more` comes, and delivers all of that.
    async fn run(
        self,
        reader: OwnedReadHalf,
        writer: OwnedWriteHalf,
        no_more: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let (pieces, arriving) = mpsc::channel(PIECES_MAX);
        let taking = async {
            tokio::select! {
                ended = self.take(reader, pieces) => ended,
                () = no_more => Ok(()),
            }
        };
        tokio::try_join!(taking, self.deliver(writer, arriving)).map(|_| ())
    }

    async fn take(&self, mut reader: OwnedReadHalf, pieces: mpsc::Sender<Piece>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            let count = reader.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let due = match self.flow() {
                Flow::Delay(duration) => Instant::now() + duration,
                Flow::Pass | Flow::Swallow => Instant::now(),
            };
            let piece = Piece { due, bytes: buffer[..count].to_vec() };
            if pieces.send(piece).await.is_err() {
                return Ok(());
            }
        }
    }

    /// What is to be swallowed is decided when it would arrive, so a fault also hits what is on its way.
    async fn deliver(&self, mut writer: OwnedWriteHalf, mut pieces: mpsc::Receiver<Piece>) -> io::Result<()> {
        let counters = self.counters.of(self.direction);
        while let Some(Piece { due, bytes }) = pieces.recv().await {
            tokio::time::sleep_until(due).await;
            let count = bytes.len() as u64;
            if self.flow() == Flow::Swallow || self.has_gap.load(Ordering::SeqCst) {
                if !self.has_gap.swap(true, Ordering::SeqCst) {
                    self.counters.gaps.fetch_add(1, Ordering::SeqCst);
                }
                counters.swallowed.fetch_add(count, Ordering::SeqCst);
                if self.flow() != Flow::Swallow {
                    // The fault ended in this very moment, before anybody could see the gap.
                    return Err(io::Error::other("bytes were lost"));
                }
            } else {
                writer.write_all(&bytes).await?;
                counters.passed.fetch_add(count, Ordering::SeqCst);
            }
        }
        if self.flow() == Flow::Swallow {
            // The end of the stream is swallowed too: the other side hears nothing at all.
            let mut faults = self.faults.clone();
            let _ =
                faults.wait_for(|faults| faults.of(self.direction, self.connection) != Flow::Swallow).await;
        }
        writer.shutdown().await
    }

    fn flow(&self) -> Flow {
        self.faults.borrow().of(self.direction, self.connection)
    }
}

impl Open {
    fn new(counters: Arc<Counters>, gaps: Gaps) -> Self {
        let number = counters.connections.fetch_add(1, Ordering::SeqCst) + 1;
        counters.open.fetch_add(1, Ordering::SeqCst);
        Self { number, counters, gaps }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let gaps = self.gaps.iter().filter(|(_, gap)| gap.load(Ordering::SeqCst)).count();
        self.counters.gaps.fetch_sub(gaps as u64, Ordering::SeqCst);
        self.counters.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns when a direction that lost bytes no longer swallows; its connection cannot be used any more.
async fn healed_after_gap(mut faults: watch::Receiver<Faults>, open: &Open) {
    let is_broken = |faults: &Faults| {
        open.gaps.iter().any(|(direction, gap)| {
            gap.load(Ordering::SeqCst) && faults.of(*direction, open.number) != Flow::Swallow
        })
    };
    // Without a sender the proxy is gone, and this connection with it.
    let _ = faults.wait_for(is_broken).await;
}
