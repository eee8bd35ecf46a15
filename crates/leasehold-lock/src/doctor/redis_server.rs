//! One Redis server: what it forgets, and when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, Value};

use super::secrecy::{Secrecy, is_loopback};
use super::{Chart, Level};
use crate::bells::Bells;
use crate::error::{BoxError, StoreError};
use crate::redis::inspect;
use crate::redis::keys::{self, Keys, OWN_PREFIX};
use crate::redis::link::{Ears, Link};
use crate::redis::servers::Servers;

/// Channels of shards are of 7.0.
const VERSION_MIN: (u32, u32) = (7, 0);
/// A clock that is further off is worth a word.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);
/// Steps of the look through the keys.
const SCANS_MAX: usize = 20;
const KEYS_LOOKED_AT_MAX: usize = 200;

/// What the server is there for, as far as it changes what a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It has the locks, alone or as a master of several.
    Alone,
    /// It has one vote of several.
    Voter,
}

/// A connection for questions.
pub(super) struct Server {
    link: Link,
    pub(super) secrecy: Secrecy,
    pub(super) place: String,
    /// How servers are reached that it names; none where only others know.
    pub(super) login: Option<ConnectionInfo>,
    pub(super) info: BTreeMap<String, String>,
    config: Option<BTreeMap<String, String>>,
}

impl Server {
    /// Connects and asks who it is; notes why not.
    pub(super) async fn reach(
        servers: Servers,
        secrecy: Secrecy,
        place: &str,
        chart: &mut Chart,
    ) -> Option<Self> {
        let link = Link::new(servers, Ears::Bells(Bells::default()));
        let info: String = match send(&link, &["INFO"]).await {
            Ok(info) => info,
            Err(error) => {
                chart.problem("reachable", place, format!("it cannot be asked: {}", told(&error)));
                return None;
            }
        };
        let config = send(&link, &["CONFIG", "GET", "*"]).await.ok();
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let info = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        Some(Self { link, secrecy, place: place.to_owned(), login: None, info, config })
    }

    pub(super) async fn reach_one(server: ConnectionInfo, chart: &mut Chart) -> Option<Self> {
        let place = server.addr().to_string();
        let secrecy = match server.addr() {
            ConnectionAddr::TcpTls { .. } => Secrecy::Encrypted,
            ConnectionAddr::Tcp(host, _) => Secrecy::in_the_clear(is_loopback(host)),
            _ => Secrecy::Local,
        };
        let login = Some(server.clone());
        let reached = Self::reach(Servers::One(Box::new(server)), secrecy, &place, chart).await;
        reached.map(|server| Self { login, ..server })
    }

    pub(super) fn info(&self, name: &str) -> &str {
        self.info.get(name).map_or("", String::as_str)
    }

    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.config.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, StoreError> {
        send(&self.link, words).await
    }

    /// Everything that is asked of every server.
    pub(super) async fn examine(&self, part: Part, has_epochs: bool, keys: &Keys, chart: &mut Chart) {
        self.secrecy(chart);
        self.version(chart);
        self.eviction(chart);
        self.persistence(part, has_epochs, chart);
        self.replication(part, has_epochs, chart).await;
        self.scripts(chart).await;
        self.keys(part, has_epochs, keys, chart).await;
        self.channels(chart).await;
        self.clock(chart).await;
        self.prefix(keys, chart).await;
    }

    pub(super) fn secrecy(&self, chart: &mut Chart) {
        let risk = "take and release locks";
        self.secrecy.judge("encryption", &self.place, "TLS (rediss:// and the like)", risk, chart);
    }

    pub(super) fn is_new_enough(&self) -> bool {
        is_new_enough(self.info("redis_version"))
    }

    fn version(&self, chart: &mut Chart) {
        let version = self.info("redis_version");
        if self.is_new_enough() {
            chart.ok("version", &self.place, format!("version {version}"));
        } else {
            let text = format!("version {version}; locks need 7.0 or later");
            chart.problem("version", &self.place, text);
        }
        if self.config.is_none() {
            let text = "CONFIG is not allowed, so only a part of the settings can be read, and a Redlock server \
                        that restarts is never trusted at once";
            chart.warn("config", &self.place, text);
        }
    }

    pub(super) fn eviction(&self, chart: &mut Chart) {
        let policy = self.setting("maxmemory-policy").unwrap_or_else(|| self.info("maxmemory_policy"));
        let limit = self.info("maxmemory");
        if policy == "noeviction" {
            chart.ok("eviction", &self.place, "noeviction: a lock goes only when it ends");
        } else if limit == "0" || limit.is_empty() {
            let text =
                format!("{policy}, but without a limit of memory nothing is evicted; a limit would do it");
            chart.warn("eviction", &self.place, text);
        } else {
            let text = format!(
                "{policy} with a limit of {limit} bytes: locks that are held can be evicted when memory is short, \
                 and then somebody else gets them. Set maxmemory-policy noeviction, or use another server"
            );
            chart.problem("eviction", &self.place, text);
        }
    }

    pub(super) fn persistence(&self, part: Part, has_epochs: bool, chart: &mut Chart) {
        let appends = match self.setting("appendonly") {
            Some(setting) => setting == "yes",
            None => self.info("aof_enabled") == "1",
        };
        let fsync = self.setting("appendfsync").unwrap_or("unknown");
        let saves = self.setting("save").is_some_and(|save| !save.is_empty());
        let after = match part {
            Part::Voter => {
                "after a restart it does not vote for some seconds, until it has the others' counters"
            }
            Part::Alone => "after a crash locks that were held are granted again",
        };
        let topic = "persistence";
        match (appends, fsync) {
            (true, "always") => {
                chart.ok(topic, &self.place, "every write is on the disk before it is answered")
            }
            (true, fsync) => {
                let text = format!("appendfsync {fsync}: the last second or so is forgotten, and {after}");
                chart.warn(topic, &self.place, text);
            }
            (false, _) => {
                let kept = if saves { "snapshots only" } else { "nothing is kept over a restart" };
                let text = format!("{kept}: {after}. Set appendonly yes, appendfsync always");
                match part {
                    Part::Alone if !has_epochs && !saves => chart.problem(topic, &self.place, text),
                    Part::Alone | Part::Voter => chart.warn(topic, &self.place, text),
                }
            }
        }
    }

    async fn scripts(&self, chart: &mut Chart) {
        match self.ask::<u8>(&["EVAL", "return 1", "0"]).await {
            Ok(_) => chart.ok("scripts", &self.place, "scripts are allowed"),
            Err(error) => {
                let text =
                    format!("scripts are not allowed, and nothing can be released without: {}", told(&error));
                chart.problem("scripts", &self.place, text);
            }
        }
    }

    /// Whether this user may use the locks' keys and those beside them. Tried on keys that are never there: no
    /// name has a control character.
    async fn keys(&self, part: Part, has_epochs: bool, keys: &Keys, chart: &mut Chart) {
        let needs_own = part == Part::Voter || has_epochs;
        let own = if needs_own { Level::Problem } else { Level::Warning };
        let use_of_own = if needs_own { "there are no fences" } else { "nobody can wait in order" };
        let all = [(keys.prefix(), Level::Problem, "nothing can be locked"), (OWN_PREFIX, own, use_of_own)];
        let mut may_use_all = true;
        for (prefix, level, without) in all {
            let key = format!("{prefix}\n");
            for verb in ["GET", "DEL"] {
                // Other errors are no matter of rights: a node of a cluster has only some of the keys.
                if let Err(error @ StoreError::Refused(_)) = self.ask::<Value>(&[verb, &key]).await {
                    let text = format!("without {verb} on `{prefix}*` {without}: {}", told(&error));
                    chart.note(level, "keys", &self.place, text);
                    may_use_all = false;
                    break;
                }
            }
        }
        if may_use_all {
            chart.ok("keys", &self.place, "the keys of locks can be read and written");
        }
    }

    /// Whether releases and turns can be told and heard. Nobody listens for what is told here.
    async fn channels(&self, chart: &mut Chart) {
        for channel in [keys::channel(0), keys::turns(0, "doctor")] {
            let told_of = self.ask::<Value>(&["PUBLISH", &channel, ""]).await.map(|_| ());
            if let (Err(error @ StoreError::Refused(_)), _) | (_, Err(error @ StoreError::Refused(_))) =
                (told_of, self.link.listen(channel.into()).await)
            {
                let text = format!(
                    "releases cannot be told, so whoever waits finds out by looking, and later, and those in line may \
                     miss their turn. Allow the channels `{OWN_PREFIX}*`: {}",
                    told(&error)
                );
                return chart.warn("channels", &self.place, text);
            }
        }
        chart.ok("channels", &self.place, "releases can be told and heard");
    }

    async fn clock(&self, chart: &mut Chart) {
        let (sent, began) = (SystemTime::now(), Instant::now());
        let Ok((seconds, micros)) = self.ask::<(u64, u64)>(&["TIME"]).await else {
            return chart.warn("clock", &self.place, "TIME is not allowed, so its clock cannot be read");
        };
        let round_trip = began.elapsed();
        let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
        let ours = sent.duration_since(UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
        let (level, text) = judge_clock(theirs, ours, round_trip / 2);
        chart.note(level, "clock", &self.place, text);
    }

    /// Whether others keep something under the prefix of the locks.
    async fn prefix(&self, keys: &Keys, chart: &mut Chart) {
        let pattern = format!("{}*", inspect::escaped(keys.prefix()));
        let (mut cursor, mut strangers, mut endless, mut looked_at) = ("0".to_owned(), 0, 0, 0);
        for _ in 0..SCANS_MAX {
            let scan = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"];
            let Ok((next, found)) = self.ask::<(String, Vec<Vec<u8>>)>(&scan).await else {
                return chart.warn("prefix", &self.place, "SCAN is not allowed, so locks cannot be listed");
            };
            for key in found.iter().filter_map(|key| std::str::from_utf8(key).ok()) {
                if key.starts_with(OWN_PREFIX) || looked_at >= KEYS_LOOKED_AT_MAX {
                    continue;
                }
                looked_at += 1;
                let kind: String = self.ask(&["TYPE", key]).await.unwrap_or_default();
                let end: i64 = self.ask(&["PTTL", key]).await.unwrap_or(0);
                strangers += usize::from(kind != "string" && kind != "none");
                endless += usize::from(kind == "string" && end == -1);
            }
            cursor = next;
            if cursor == "0" || looked_at >= KEYS_LOOKED_AT_MAX {
                break;
            }
        }
        let prefix = keys.prefix();
        if strangers + endless == 0 {
            let text = format!("{looked_at} keys under `{prefix}`, all of them locks as far as one can tell");
            chart.ok("prefix", &self.place, text);
        } else {
            let text = format!(
                "of {looked_at} keys under `{prefix}`, {strangers} are no strings and {endless} have no end: not locks \
                 of ours. Such a name can never be locked; use another prefix"
            );
            chart.warn("prefix", &self.place, text);
        }
    }
}

/// Two times since 1970, known up to `error`.
fn judge_clock(theirs: Duration, ours: Duration, error: Duration) -> (Level, String) {
    let difference = theirs.abs_diff(ours);
    let known = format!(
        "its clock is {:.3} s {} this machine's, give or take {:.3} s",
        difference.as_secs_f64(),
        if theirs > ours { "ahead of" } else { "behind" },
        error.as_secs_f64()
    );
    if difference.saturating_sub(error) <= CLOCK_DIFFERENCE_MAX {
        return (Level::Ok, known);
    }
    let text = format!(
        "{known}. Leases do not compare clocks, but when somebody corrects this one, locks end too early or too late. \
         Correct it while none are held, and keep it with NTP"
    );
    (Level::Warning, text)
}

async fn send<T: FromRedisValue>(link: &Link, words: &[&str]) -> Result<T, StoreError> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    let answer: Value = link.send(&command).await?;
    T::from_redis_value(answer).map_err(|error| StoreError::Refused(error.into()))
}

/// An error and its reason.
pub(super) fn told(error: &StoreError) -> String {
    let (StoreError::Unknown(source) | StoreError::Refused(source)) = error;
    let source: &BoxError = source;
    source.to_string()
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= VERSION_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_number_by_number() {
        for (version, enough) in [
            ("7.0.0", true),
            ("7.2.5", true),
            ("10.1.0", true),
            ("6.2.14", false),
            ("6.10", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version}");
        }
    }

    #[test]
    fn only_a_difference_that_is_certain_is_worth_a_warning() {
        let (noon, second) = (Duration::from_secs(43_200), Duration::from_secs(1));
        let judged = |theirs, error| judge_clock(theirs, noon, error).0;
        assert_eq!(judged(noon + second, Duration::ZERO), Level::Ok);
        assert_eq!(judged(noon + 3 * second, second), Level::Warning);
        assert_eq!(judged(noon - 3 * second, second), Level::Warning);
        assert_eq!(judged(noon - 3 * second, 2 * second), Level::Ok, "the answer may have taken that long");
    }
}
