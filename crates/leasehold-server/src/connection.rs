//! One connection, and how long each of its phases may take.
//!
//! A phase has a deadline; one watchman looks at all deadlines four times a second and closes what is late. That
//! costs a request a few stores into memory instead of timers of its own.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;

/// How often the watchman looks.
const ROUND: Duration = Duration::from_millis(250);
const NEVER: u64 = u64::MAX;

/// The clock of all deadlines, in rounds, and the connections it watches.
#[derive(Debug)]
pub(crate) struct Watchman {
    round: AtomicU64,
    watched: Mutex<Vec<Weak<Phases>>>,
}

/// The deadlines of one connection.
#[derive(Debug)]
pub(crate) struct Phases {
    watchman: Arc<Watchman>,
    /// The round at which the phase is over; NEVER while a request is worked on.
    deadline: AtomicU64,
    /// The round at which a write that does not move is over.
    write_deadline: AtomicU64,
    /// 1 while waiting for a request's first byte.
    waiting: AtomicU64,
    limits: PhaseLimits,
    /// What the connection should know, and how to wake it.
    signal: AtomicU8,
    waker: AtomicWaker,
}

/// What a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Nothing.
    GoOn,
    /// The server stops: finish the request and close.
    Finish,
    /// A deadline has passed: close.
    Late,
}

#[derive(Debug, Clone, Copy)]
struct PhaseLimits {
    idle: u64,
    head: u64,
    write: u64,
}

impl Watchman {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { round: AtomicU64::new(0), watched: Mutex::default() })
    }

    /// Watches until `stop`; calls `each_round` as well.
    pub(crate) async fn watch(&self, stop: CancellationToken, mut each_round: impl FnMut(u64)) {
        let mut interval = tokio::time::interval(ROUND);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = stop.cancelled() => return,
            }
            let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            each_round(round);
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|phases| {
                let Some(phases) = phases.upgrade() else { return false };
                let due = phases
                    .deadline
                    .load(Ordering::Relaxed)
                    .min(phases.write_deadline.load(Ordering::Relaxed));
                if due <= round {
                    phases.tell(Signal::Late);
                }
                due > round
            });
        }
    }

    /// Tells every connection to finish.
    pub(crate) fn tell_all_to_finish(&self) {
        for phases in
            self.watched.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade)
        {
            phases.tell(Signal::Finish);
        }
    }

    /// Begins to watch a new connection, which should send something soon.
    pub(crate) fn admit(self: &Arc<Self>, config: &ServerConfig) -> Arc<Phases> {
        let rounds = |time: Duration| (time.as_millis() / ROUND.as_millis()) as u64 + 1;
        let limits = PhaseLimits {
            idle: rounds(config.idle_timeout),
            head: rounds(config.head_timeout),
            write: rounds(config.write_timeout),
        };
        let phases = Arc::new(Phases {
            watchman: Arc::clone(self),
            deadline: AtomicU64::new(NEVER),
            write_deadline: AtomicU64::new(NEVER),
            waiting: AtomicU64::new(1),
            limits,
            signal: AtomicU8::new(Signal::GoOn as u8),
            waker: AtomicWaker::new(),
        });
        phases.set(limits.idle);
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&phases));
        phases
    }
}

impl Phases {
    fn tell(&self, signal: Signal) {
        self.signal.fetch_max(signal as u8, Ordering::AcqRel);
        self.waker.wake();
    }

    /// What the connection is told; it is woken when that changes.
    pub(crate) fn signal(&self, cx: &Context<'_>) -> Signal {
        self.waker.register(cx.waker());
        match self.signal.load(Ordering::Acquire) {
            0 => Signal::GoOn,
            1 => Signal::Finish,
            _ => Signal::Late,
        }
    }

    fn set(&self, rounds: u64) {
        self.deadline.store(self.watchman.round.load(Ordering::Relaxed) + rounds, Ordering::Relaxed);
    }

    /// Something arrived: if a request begins with it, its head has its time.
    fn received(&self) {
        if self.waiting.swap(0, Ordering::Relaxed) == 1 {
            self.set(self.limits.head);
        }
    }

    /// The head is complete: the body has a time-out of its own, and the engine takes the time it takes.
    pub(crate) fn head_complete(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// The answer is there: the next request may take its time to begin.
    pub(crate) fn answered(&self) {
        self.waiting.store(1, Ordering::Relaxed);
        self.set(self.limits.idle);
    }

    fn writing(&self, stalled: bool) {
        if !stalled && self.waiting.load(Ordering::Relaxed) == 1 {
            // An answer that makes progress is not idleness.
            self.set(self.limits.idle);
        }
        let deadline = match stalled {
            true if self.write_deadline.load(Ordering::Relaxed) != NEVER => return,
            true => self.watchman.round.load(Ordering::Relaxed) + self.limits.write,
            false => NEVER,
        };
        self.write_deadline.store(deadline, Ordering::Relaxed);
    }
}

/// A socket that tells its phases what happens.
#[derive(Debug)]
pub(crate) struct WatchedStream {
    pub(crate) stream: TokioIo<TcpStream>,
    pub(crate) phases: Arc<Phases>,
}

impl Read for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            self.phases.received();
        }
        polled
    }
}

impl Write for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.phases.writing(polled.is_pending());
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.phases.writing(polled.is_pending());
        polled
    }
}
