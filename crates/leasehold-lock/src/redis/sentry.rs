//! A look at the servers now and then: whether they may evict locks, and whether somebody has set their clock.
//!
//! Nobody waits for it, nothing is decided by it, and a server that does not allow it is left alone. What it finds stands
//! in the log once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, Value};

use super::link::Connection;
use crate::clock::{Clock, Moment};

/// The servers are looked at no more often than this, and only while they are used.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// A look that has no answer by then is given up.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// A clock that is off by more than this all at once was set.
const JUMP_MIN_MICROS: i64 = 1_000_000;
/// Clocks that are corrected gently drift apart by a thousandth at most: each runs wrong by half of that.
const DRIFT_DIVISOR: i64 = 1_000;
/// Beyond so many, all are forgotten and looked at anew.
const SERVERS_MAX: usize = 1_024;

/// What is known of the servers behind one link.
#[derive(Debug)]
pub(super) struct Sentry {
    clock: Clock,
    /// When the next look is due, by this clock; never, while one is under way.
    due_nanos: AtomicU64,
    /// The settings are asked for once after each connection, and with a server that was not there before.
    asks_for_settings: AtomicBool,
    /// Until a server says that this user may not.
    asks_for_time: AtomicBool,
    servers: Mutex<Servers>,
}

#[derive(Debug, Default)]
struct Servers {
    /// Where a connection leads that is not a cluster's.
    address: String,
    known: HashMap<String, Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The policy that the log tells of.
    evicts_by: Option<String>,
    read: Option<Reading>,
}

/// A server's wall clock, read at some moment between these two.
#[derive(Debug, Clone, Copy)]
struct Reading {
    server_micros: i64,
    sent: Moment,
    answered: Moment,
}

/// One look under way. When it is over, however it ends, the next one is due after a while.
struct Look(Arc<Sentry>);

impl Sentry {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::system(),
            due_nanos: AtomicU64::new(0),
            asks_for_settings: AtomicBool::new(true),
            asks_for_time: AtomicBool::new(true),
            servers: Mutex::default(),
        }
    }

    /// There is a new connection, to this server unless it is a cluster's.
    pub(super) fn connected_to(&self, address: Option<String>) {
        self.servers().address = address.unwrap_or_default();
        self.asks_for_settings.store(true, Ordering::Relaxed);
        self.asks_for_time.store(true, Ordering::Relaxed);
    }

    /// Told whenever a connection is about to be used. Looks by a task of its own, if it is time to.
    pub(super) fn glance(self: &Arc<Self>, connection: &Connection) {
        let due = self.due_nanos.load(Ordering::Relaxed);
        let is_first =
            || self.due_nanos.compare_exchange(due, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if self.clock.now().as_nanos() >= due && is_first() {
            let (look, connection) = (Look(self.clone()), connection.clone());
            tokio::spawn(async move { tokio::time::timeout(LOOK_TIME_MAX, look.0.look(connection)).await });
        }
    }

    async fn look(&self, mut connection: Connection) {
        let address = self.servers().address.clone();
        if self.asks_for_settings.load(Ordering::Relaxed) {
            let mut info = redis::cmd("INFO");
            info.arg("memory");
            let answer = connection.send_to_each(&address, info).await;
            if !answer.as_ref().is_err_and(is_unanswered) {
                self.asks_for_settings.store(false, Ordering::Relaxed);
            }
            for (server, info) in answer.unwrap_or_default() {
                if let Ok(info) = String::from_redis_value(info) {
                    self.note_settings(&server, &info);
                }
            }
        }
        if self.asks_for_time.load(Ordering::Relaxed) {
            let sent = self.clock.now();
            let answer = connection.send_to_each(&address, redis::cmd("TIME")).await;
            let answered = self.clock.now();
            let may_ask = answer.as_ref().map_or_else(is_unanswered, |_| true);
            self.asks_for_time.store(may_ask, Ordering::Relaxed);
            for (server, time) in answer.unwrap_or_default() {
                if let Some(server_micros) = micros(time) {
                    self.note_time(&server, Reading { server_micros, sent, answered });
                }
            }
        }
    }

    fn note_settings(&self, server: &str, info: &str) {
        let evicts_by = evicts_by(info).map(str::to_owned);
        let mut servers = self.servers();
        let known = servers.of(server);
        let is_news = known.evicts_by != evicts_by;
        known.evicts_by = evicts_by.clone();
        drop(servers);
        if let Some(policy) = evicts_by.filter(|_| is_news) {
            let what = match policy.starts_with("volatile-") {
                true => "locks, because they have an end, though not the counters of fences, which have none",
                false => "locks, and everything else",
            };
            tracing::warn!(
                server,
                policy,
                "when its memory is full, this Redis server evicts {what}: somebody else is then given a lock that is \
                 held. Set maxmemory-policy noeviction, or use another server"
            );
        }
    }

    fn note_time(&self, server: &str, reading: Reading) {
        let mut servers = self.servers();
        if !servers.known.contains_key(server) {
            // Of a cluster: it has come since the settings were asked for.
            self.asks_for_settings.store(true, Ordering::Relaxed);
        }
        let before = servers.of(server).read.replace(reading);
        drop(servers);
        if let Some(jump) = before.and_then(|before| jump_micros(before, reading)) {
            let seconds = Duration::from_micros(jump.unsigned_abs()).as_secs_f64();
            let what = if jump > 0 {
                "forward: locks end too early there"
            } else {
                "back: locks end too late there"
            };
            tracing::warn!(
                server,
                seconds,
                "the wall clock of this Redis server was set {what}, as this machine's own clock has it. Keep it with NTP, \
                 which corrects it gently"
            );
        }
    }

    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Servers {
    fn of(&mut self, server: &str) -> &mut Known {
        if self.known.len() >= SERVERS_MAX && !self.known.contains_key(server) {
            self.known.clear();
        }
        self.known.entry(server.to_owned()).or_default()
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let next = self.0.clock.now() + LOOK_EVERY;
        self.0.due_nanos.store(next.as_nanos(), Ordering::Relaxed);
    }
}

/// Whether the same may be asked again: what a server refuses it refuses the next time, too.
fn is_unanswered(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout()
}

/// The policy by which a server evicts locks, from what it says of its memory. All policies but one do: `allkeys-` those of
/// everybody, `volatile-` keys that have an end, as locks have. Without a limit none does.
fn evicts_by(info: &str) -> Option<&str> {
    let value = |name: &str| {
        info.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    };
    let is_limited = value("maxmemory")?.parse::<u64>().is_ok_and(|limit| limit > 0);
    value("maxmemory_policy").filter(|policy| is_limited && *policy != "noeviction")
}

fn micros(time: Value) -> Option<i64> {
    let (seconds, micros) = <(i64, i64)>::from_redis_value(time).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// By how much a clock was set between two readings, if it was. However long the answers took, that alone is none.
fn jump_micros(before: Reading, after: Reading) -> Option<i64> {
    let micros = |moment: Moment| i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX);
    let least = micros(after.sent).saturating_sub(micros(before.answered));
    let most = micros(after.answered).saturating_sub(micros(before.sent));
    let advanced = after.server_micros.saturating_sub(before.server_micros);
    let jump = advanced.saturating_sub(advanced.clamp(least.min(most), most));
    let drift = most.saturating_abs() / DRIFT_DIVISOR;
    (jump.saturating_abs() > JUMP_MIN_MICROS.saturating_add(drift)).then_some(jump)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    fn reading(server_seconds: i64, sent: u64, answered: u64) -> Reading {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        Reading { server_micros: server_seconds * 1_000_000, sent: at(sent), answered: at(answered) }
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_answers_that_took_long() {
        let before = reading(1_000_000, 100, 100);
        for (after, expected) in [
            (reading(1_000_010, 110, 110), None),
            (reading(1_000_011, 110, 110), None),
            (reading(1_000_070, 110, 110), Some(60)),
            (reading(1_000_010 - HOUR, 110, 110), Some(-HOUR)),
            // It may have been read at any moment in between.
            (reading(1_000_010, 110, 190), None),
            (reading(1_000_090, 110, 190), None),
            (reading(1_000_100, 110, 190), Some(10)),
            (reading(1_000_000, 110, 190), Some(-10)),
        ] {
            assert_eq!(jump_micros(before, after), expected.map(|seconds| seconds * 1_000_000), "{after:?}");
        }
    }

    #[test]
    fn clocks_that_drift_apart_in_a_day_were_not_set() {
        let (before, day) = (reading(1_000_000, 100, 100), 24 * HOUR);
        assert_eq!(jump_micros(before, reading(1_000_000 + day + 40, 86_500, 86_500)), None);
        assert!(jump_micros(before, reading(1_000_000 + day + HOUR, 86_500, 86_500)).is_some());
    }

    #[test]
    fn only_a_limit_with_a_policy_evicts() {
        let info = |limit: &str, policy: &str| {
            format!("# Memory\r\nused_memory:1\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(evicts_by(&info("100", "allkeys-lru")), Some("allkeys-lru"));
        assert_eq!(evicts_by(&info("100", "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(evicts_by(&info("100", "noeviction")), None);
        assert_eq!(evicts_by(&info("0", "allkeys-lru")), None);
        assert_eq!(evicts_by("# Memory\r\n"), None);
    }

    #[test]
    fn servers_are_bounded() {
        let sentry = Sentry::new();
        for number in 0..3 * SERVERS_MAX {
            sentry.note_time(&number.to_string(), reading(1, 1, 1));
            assert!(sentry.servers().known.len() <= SERVERS_MAX);
        }
    }
}
