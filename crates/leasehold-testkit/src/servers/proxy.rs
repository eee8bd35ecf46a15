//! A TCP proxy that a test tells how to misbehave.

mod connection;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::port::Port;
use connection::relay;

/// How long a test may wait for the traffic it expects.
const TRAFFIC_TIME_MAX: Duration = Duration::from_secs(10);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Answers,
}

/// What went through so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections taken, closed ones included.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Bytes that reached the server.
    pub request_bytes: u64,
    /// Bytes that reached the client.
    pub answer_bytes: u64,
    /// Bytes that were to reach the server and were swallowed.
    pub swallowed_request_bytes: u64,
    /// Bytes that were to reach the client and were swallowed.
    pub swallowed_answer_bytes: u64,
}

/// A proxy in front of one address. It and its connections are gone when this is dropped.
///
/// It passes everything until told otherwise, and a fault stays until [`pass`](Self::pass).
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    faults: watch::Sender<Faults>,
    counters: Arc<Counters>,
    orders: mpsc::Sender<(Order, oneshot::Sender<usize>)>,
    task: JoinHandle<()>,
}

/// What is wrong with each direction.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    requests: Flow,
    answers: Flow,
    /// How often clients were hung up on.
    hang_ups: u64,
    /// The last connection that is stranded, counted from 1.
    stranded: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Flow {
    #[default]
    Pass,
    Delay(Duration),
    Swallow,
}

#[derive(Debug)]
enum Order {
    Listen,
    Refuse,
    Cut,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    /// Directions of open connections that lost bytes.
    gaps: AtomicU64,
    requests: DirectionCounters,
    answers: DirectionCounters,
}

#[derive(Debug, Default)]
struct DirectionCounters {
    passed: AtomicU64,
    swallowed: AtomicU64,
}

impl FaultProxy {
    /// A proxy in front of `target`, `127.0.0.1:port`, on a port of its own.
    pub async fn start(target: impl Into<String>) -> Self {
        let port = Port::lease();
        let (faults, _) = watch::channel(Faults::default());
        let counters = Arc::new(Counters::default());
        let (orders, inbox) = mpsc::channel(1);
        let gate = Gate {
            port: port.number(),
            target: target.into(),
            faults: faults.clone(),
            counters: Arc::clone(&counters),
        };
        let task = tokio::spawn(gate.run(inbox));
        let proxy = Self { port, faults, counters, orders, task };
        proxy.order(Order::Listen).await;
        proxy
    }

    /// Where clients connect, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Ends every fault, and closes the connections that lost bytes: TCP never goes on after a gap.
    pub async fn pass(&self) {
        self.faults.send_modify(|faults| *faults = Faults { hang_ups: faults.hang_ups, ..Faults::default() });
        self.order(Order::Listen).await;
        self.wait_until(|counters| counters.gaps.load(Ordering::SeqCst) == 0).await;
    }

    /// Closes all connections that are open now. Returns how many that were.
    pub async fn cut(&self) -> usize {
        self.order(Order::Cut).await
    }

    /// Hangs up on the clients that are connected now. What they have sent goes on its way to the server, however late.
    pub fn hang_up(&self) {
        self.faults.send_modify(|faults| faults.hang_ups += 1);
    }

    /// Swallows everything on the connections that are open now, both ways and without closing them, as a firewall does
    /// that has forgotten them. New ones pass.
    pub fn strand(&self) {
        let last = self.counters.connections.load(Ordering::SeqCst);
        self.faults.send_modify(|faults| faults.stranded = last);
    }

    /// Refuses new connections; those that are open stay.
    pub async fn refuse(&self) {
        self.order(Order::Refuse).await;
    }

    /// Lets everything in one direction arrive this much later.
    pub fn delay(&self, direction: Direction, duration: Duration) {
        self.set(direction, Flow::Delay(duration));
    }

    /// Swallows everything in one direction. Without answers, a command still takes effect.
    pub fn swallow(&self, direction: Direction) {
        self.set(direction, Flow::Swallow);
    }

    /// What went through so far, so that a test can see that its fault hit something.
    pub fn traffic(&self) -> Traffic {
        let Counters { connections, open, requests, answers, .. } = &*self.counters;
        Traffic {
            connections: connections.load(Ordering::SeqCst),
            open: open.load(Ordering::SeqCst),
            request_bytes: requests.passed.load(Ordering::SeqCst),
            answer_bytes: answers.passed.load(Ordering::SeqCst),
            swallowed_request_bytes: requests.swallowed.load(Ordering::SeqCst),
            swallowed_answer_bytes: answers.swallowed.load(Ordering::SeqCst),
        }
    }

    /// Waits until the traffic is as described; panics when it is not within ten seconds.
    pub async fn wait_for(&self, description: impl Fn(Traffic) -> bool) {
        self.wait_until(|_| description(self.traffic())).await;
    }

    async fn wait_until(&self, condition: impl Fn(&Counters) -> bool) {
        let deadline = Instant::now() + TRAFFIC_TIME_MAX;
        while !condition(&self.counters) {
            assert!(Instant::now() < deadline, "not within {TRAFFIC_TIME_MAX:?}: {:?}", self.traffic());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn set(&self, direction: Direction, flow: Flow) {
        self.faults.send_modify(|faults| match direction {
            Direction::Requests => faults.requests = flow,
            Direction::Answers => faults.answers = flow,
        });
    }

    async fn order(&self, order: Order) -> usize {
        let (done, answer) = oneshot::channel();
        self.orders.send((order, done)).await.expect("the proxy runs until it is dropped");
        answer.await.expect("the proxy carries out every order")
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Faults {
    /// What is wrong with a direction of a connection, which has this number.
    fn of(self, direction: Direction, connection: u64) -> Flow {
        match direction {
            _ if connection <= self.stranded => Flow::Swallow,
            Direction::Requests => self.requests,
            Direction::Answers => self.answers,
        }
    }
}

impl Counters {
    fn of(&self, direction: Direction) -> &DirectionCounters {
        match direction {
            Direction::Requests => &self.requests,
            Direction::Answers => &self.answers,
        }
    }
}

/// The task of a proxy: takes connections and orders, and owns the tasks of its connections.
struct Gate {
    port: u16,
    target: String,
    faults: watch::Sender<Faults>,
    counters: Arc<Counters>,
}

impl Gate {
    async fn run(self, mut orders: mpsc::Receiver<(Order, oneshot::Sender<usize>)>) {
        let mut listener = None;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                order = orders.recv() => {
                    let Some((order, done)) = order else { return };
                    while connections.try_join_next().is_some() {}
                    let count = connections.len();
                    match order {
                        Order::Listen if listener.is_none() => listener = Some(self.listen().await),
                        Order::Listen => {}
                        Order::Refuse => listener = None,
                        Order::Cut => connections.shutdown().await,
                    }
                    // Whoever asked may have given up waiting.
                    let _ = done.send(count);
                }
                accepted = accept(&listener) => {
                    let Ok((client, _)) = accepted else { continue };
                    let (target, faults) = (self.target.clone(), self.faults.subscribe());
                    connections.spawn(relay(client, target, faults, Arc::clone(&self.counters)));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn listen(&self) -> TcpListener {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await;
        listener.unwrap_or_else(|error| panic!("somebody took the proxy's port {}: {error}", self.port))
    }
}

async fn accept(
    listener: &Option<TcpListener>,
) -> std::io::Result<(tokio::net::TcpStream, std::net::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
