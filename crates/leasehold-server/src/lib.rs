//! The HTTP server: every route, limit and time-out. It knows no store, only an [`Engine`] and a [`Locker`].
//!
//! [`serve`] takes a listener, an engine, a locker and a signal to stop; the caller owns ports and signals, so a test
//! binds `127.0.0.1:0` and the command passes Ctrl-C. Reading order: `accept` (connections and their
//! time-outs), `service` (what happens to every request), `router` (all routes on one screen), `http` (a file for
//! each kind of thing), `wire` (JSON to the engine's words and back), `problem` (refusals).
//!
//! [`Engine`]: leasehold_engine::Engine
//! [`Locker`]: leasehold_lock::Locker

mod accept;
mod address;
mod app;
mod body;
mod config;
mod connection;
mod http;
mod idempotency;
mod limits;
mod locks;
mod meters;
mod openapi;
mod operators;
mod percent;
mod problem;
mod query;
mod recent;
mod router;
mod rush;
mod service;
mod wire;

pub use accept::serve;
pub use address::{BadNetwork, Network};
pub use config::{Checkout, Operators, Rate, ServerConfig};
pub use openapi::openapi;
pub use rush::{Rush, RushRun};
