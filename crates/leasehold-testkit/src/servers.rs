//! Real servers of other people on loopback, each a child of the test, and what can go wrong with them.
//!
//! ```no_run
//! use leasehold_testkit::servers::RedisServer;
//!
//! let mut redis = RedisServer::start();
//! let first: i64 = redis.command(&["INCR", "counter"]);
//! redis.kill9();
//! redis.restart();
//! let second: i64 = redis.command(&["INCR", "counter"]);
//! assert!(first < second);
//! ```
//!
//! Every server has a free port and a temporary folder of its own, keeps both over a restart, and is gone
//! when its value is dropped: also by a panic, and also when the test itself is killed. A server that does
//! not start panics with its command and the end of its log; nothing here skips a test.
//!
//! Calls block, so a test that uses them from async code needs `#[tokio::test(flavor = "multi_thread")]`.

mod redis_server;

mod cluster;
mod sentinel;

mod postgres;

mod authority;
mod clock;
mod proxy;

mod instance;
mod port;
mod spawner;
mod wait;

pub use authority::{Authority, Certificate};
pub use clock::ClockShift;
pub use cluster::{ClusterNode, ClusterOptions, LostWrites, RedisCluster, Slot, SlotMove};
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::{Direction, FaultProxy, Traffic};
pub use redis_server::{Persistence, RedisOptions, RedisServer, independent};
pub use sentinel::{RedisSentinel, SentinelOptions};
