//! What an operator can set, with defaults that are safe.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::link::Link;

use crate::{Network, Rush};

/// Settings of the server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Connections at a time; more are turned away with 503.
    pub connections_max: usize,
    /// Streams at a time; more are turned away with 503.
    pub streams_max: usize,
    /// Requests being worked on at a time; more are turned away with 503.
    pub requests_max: usize,
    /// The first byte of a request must come within this time of the last answer.
    pub idle_timeout: Duration,
    /// A request's head must be complete within this time of its first byte.
    pub head_timeout: Duration,
    /// A request's body must be complete within this time of its head.
    pub body_timeout: Duration,
    /// An answer that cannot be written for this long ends the connection.
    pub write_timeout: Duration,
    /// Time that requests get to finish when the server stops.
    pub drain_timeout: Duration,
    /// Requests of one address; none is no limit.
    pub address_rate: Option<Rate>,
    /// New holds of one event; none is no limit.
    pub event_rate: Option<Rate>,
    /// The Redis through which servers share these rates; none is a server that counts alone.
    pub gate: Option<Arc<Link>>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Whether writes without an `Idempotency-Key` are refused.
    pub require_idempotency_key: bool,
    /// What the buyer's page offers once something is held.
    pub checkout: Checkout,
    /// From where the console may be used.
    pub operators: Operators,
    /// A rush that the console may start. For demonstrations only.
    pub rush: Option<Rush>,
    /// This server's own address, where it shares another one with others: the console is at its own only, because it
    /// shows what one server counts and remembers.
    pub console_at: Option<SocketAddr>,
}

/// Who counts as an operator while there are no API keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operators {
    /// Whoever is on this machine.
    ThisMachine,
    /// Whoever can connect.
    Anywhere,
}

/// How the buyer's page lets buyers pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkout {
    /// Not at all: the shop around it does.
    None,
    /// With a stand-in for a payment service that moves no money. For demonstrations only.
    StandIn,
}

/// So many a second, with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run, at least 1.
    pub per_second: u32,
    /// Requests at once, at least 1.
    pub burst: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 8_192,
            streams_max: 2_048,
            requests_max: 8_192,
            idle_timeout: Duration::from_secs(60),
            head_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            address_rate: None,
            event_rate: None,
            gate: None,
            trusted_proxies: Vec::new(),
            require_idempotency_key: false,
            checkout: Checkout::None,
            operators: Operators::ThisMachine,
            rush: None,
            console_at: None,
        }
    }
}
