//! Servers that share a Redis share their rate limits: ten times a second each tells what it let through.
//!
//! Requests never wait for it and its cost does not depend on their number. In Redis a bucket is a key that lives until
//! the bucket would be full; a server adds the tokens it gave since the last time and is told how far from full
//! that makes it. So the limit holds for all servers together, but for what they gave within one exchange, and that is
//! paid back before anything more is given. Without Redis each server goes on with what it knows itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_engine::SecretKey;
use leasehold_lock::link::{Link, Lua};
use tokio_util::sync::CancellationToken;

use super::{Limit, Limits, Subject};

/// How often servers tell each other.
const EVERY: Duration = Duration::from_millis(100);
/// An answer that is not there by then is of no use any more.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Subjects of one limit that are told of at a time.
const SUBJECTS_MAX: usize = 4_096;
/// Subjects that are told of with one call.
const PIECE: usize = 256;
/// The keys are spread over so many slots of a cluster.
const SLOTS: u8 = 16;
/// However much was given beyond the limit, it is paid back within this time.
const DEBT_MAX: Duration = Duration::from_secs(60);

/// The servers' common book of what was let through.
#[derive(Debug)]
pub(crate) struct Exchange {
    link: Arc<Link>,
    script: Lua,
    /// Addresses stand in Redis as codes that nobody else can make.
    key: SecretKey,
    works: AtomicBool,
}

/// What one subject is told of.
struct Entry {
    key: String,
    subject: Subject,
    time_ms: u64,
}

impl Exchange {
    pub(crate) fn new(link: Arc<Link>, key: SecretKey) -> Self {
        Self { link, script: Lua::new(include_str!("exchange.lua")), key, works: AtomicBool::new(true) }
    }

    /// Tells and is told until stopped.
    pub(crate) async fn run(&self, limits: &Limits, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            self.once(limits).await;
        }
    }

    /// Tells what was let through since the last time, and takes into account what others did.
    pub(crate) async fn once(&self, limits: &Limits) {
        let told = join_all(limits.all().map(|limit| self.tell(limit))).await.concat();
        // Said once for all: of a cluster, a part may be away.
        match told.iter().find_map(|told| told.as_ref().err()) {
            Some(error) if self.works.swap(false, Ordering::Relaxed) => {
                tracing::warn!(error, "rate limits are not shared: each server has its own");
            }
            None if !told.is_empty() && !self.works.swap(true, Ordering::Relaxed) => {
                tracing::info!("rate limits are shared again");
            }
            Some(_) | None => {}
        }
    }

    async fn tell(&self, limit: &Limit) -> Vec<Result<(), String>> {
        let mut slots: [Vec<Entry>; SLOTS as usize] = Default::default();
        for taken in limit.buckets.tell(SUBJECTS_MAX) {
            let (slot, key) = self.key_of(taken.subject);
            let time_ms = u64::try_from(taken.time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
            slots[usize::from(slot)].push(Entry { key, subject: taken.subject, time_ms });
        }
        join_all(slots.iter().flat_map(|slot| slot.chunks(PIECE)).map(|piece| self.add(limit, piece))).await
    }

    /// What cannot be told is not told later: by then this server has made it good by itself.
    async fn add(&self, limit: &Limit, piece: &[Entry]) -> Result<(), String> {
        let at = limit.now();
        let level_max = u64::try_from((limit.buckets.burst() + DEBT_MAX).as_millis()).unwrap_or(u64::MAX);
        let keys: Vec<&str> = piece.iter().map(|entry| entry.key.as_str()).collect();
        let arguments: Vec<u64> = piece.iter().flat_map(|entry| [entry.time_ms, level_max]).collect();
        let told = tokio::time::timeout(TIME_MAX, self.link.run(&self.script, &keys, &arguments)).await;
        let told = told.map_err(|_| "no answer in time".to_owned())?;
        let levels: Vec<u64> = told.map_err(|error| error.to_string())?;
        for (entry, level) in piece.iter().zip(levels) {
            limit.buckets.charge(entry.subject, at, Duration::from_millis(level));
        }
        Ok(())
    }

    /// A slot, and a key in it: under the prefix of the gate, so that whoever may use the one may use the other.
    fn key_of(&self, subject: Subject) -> (u8, String) {
        let code = match subject {
            Subject::Address(address) => self.key.code_of(&[b"address", address.to_string().as_bytes()]),
            Subject::Event(event) => self.key.code_of(&[b"event", &event.0.to_be_bytes()]),
            Subject::Guess(counter) => self.key.code_of(&[b"guess", &counter.to_be_bytes()]),
        };
        let slot = code[31] % SLOTS;
        let digits: String = code[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        (slot, format!("leasehold:gate:{{rate-{slot}}}:{digits}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use leasehold_core::EventNo;
    use leasehold_testkit::servers::{Persistence, RedisCluster, RedisServer};

    use super::*;
    use crate::config::{Rate, ServerConfig};

    const GALA: EventNo = EventNo(1);

    /// A server of those that have this key.
    struct Server {
        limits: Limits,
        exchange: Exchange,
    }

    impl Server {
        fn new(url: &str, rate: Rate) -> Self {
            let link = Arc::new(Link::open(url).unwrap());
            let config = ServerConfig {
                address_rate: Some(rate),
                event_rate: Some(rate),
                gate: Some(Arc::clone(&link)),
                ..ServerConfig::default()
            };
            let exchange = Exchange::new(link, SecretKey::from_bytes([7; 32]));
            Self { limits: Limits::new(&config), exchange }
        }

        /// How many of so many it gives.
        fn take(&self, event: EventNo, wanted: usize) -> usize {
            (0..wanted).filter(|_| self.limits.check_event(event).is_ok()).count()
        }

        async fn exchange(&self) {
            self.exchange.once(&self.limits).await;
        }
    }

    /// A server that nobody stops, so that a disk which is slow for a moment takes no part.
    fn start() -> RedisServer {
        RedisServer::options().persistence(Persistence::None).start()
    }

    /// What is not told in time is not told later. A machine that stands still for a moment may be the reason, so it is
    /// tried with another event; what is never told has another reason.
    const ROUNDS: u32 = 3;

    /// Has one server give all there is of an event, and the other one 20 more, which it pays back when it is told. Says
    /// for how long, or `None` when it was not told.
    async fn pays_back(one: &Server, two: &Server, event: EventNo) -> Option<Duration> {
        assert_eq!(one.take(event, 50), 50);
        one.exchange().await;
        assert_eq!(two.take(event, 20), 20, "it cannot know yet");
        two.exchange().await;
        two.limits.check_event(event).err().map(|refused| refused.wait)
    }

    #[tokio::test]
    async fn what_one_server_gave_another_does_not_give_again() {
        let redis = start();
        let rate = Rate { per_second: 1, burst: 50 };
        let (one, two) = (Server::new(&redis.url(), rate), Server::new(&redis.url(), rate));
        for round in 0..ROUNDS {
            if let Some(wait) = pays_back(&one, &two, EventNo(2 * round)).await {
                assert!(wait > Duration::from_secs(10), "first it pays back: {wait:?}");
                assert!(two.limits.check_event(EventNo(2 * round + 1)).is_ok(), "another event has its own");
                return;
            }
        }
        panic!("it gives what the other gave");
    }

    #[tokio::test]
    async fn without_redis_each_server_goes_on_alone_and_they_share_again_when_it_is_back() {
        let mut redis = RedisServer::start();
        let rate = Rate { per_second: 1, burst: 50 };
        let (one, two) = (Server::new(&redis.url(), rate), Server::new(&redis.url(), rate));
        redis.kill9();
        for server in [&one, &two] {
            assert!(server.take(GALA, 20) == 20);
            server.exchange().await;
            assert!((30..40).contains(&server.take(GALA, 50)), "its own bucket, and no more than that");
        }
        redis.restart_empty();
        let deadline = Instant::now() + Duration::from_secs(10);
        for server in [&one, &two] {
            while !server.exchange.works.load(Ordering::Relaxed) {
                assert!(Instant::now() < deadline, "it does not find Redis again");
                let _ = server.limits.check_address([127, 0, 0, 1].into());
                server.exchange().await;
            }
        }
        for round in 0..ROUNDS {
            let later = EventNo(2 + round);
            if pays_back(&one, &two, later).await.is_some() {
                assert_eq!(two.take(later, 20), 0);
                return;
            }
        }
        panic!("they do not share again");
    }

    #[tokio::test]
    async fn addresses_do_not_stand_in_redis_and_no_key_lives_for_ever() {
        let redis = start();
        let server = Server::new(&redis.url(), Rate { per_second: 1, burst: 50 });
        let address = "203.0.113.77".parse().unwrap();
        let (mut keys, mut taken) = (Vec::<String>::new(), 0);
        for _ in 0..ROUNDS {
            taken += 10;
            for _ in 0..10 {
                server.limits.check_address(address).unwrap();
                server.limits.check_event(GALA).unwrap();
            }
            server.exchange().await;
            keys = redis.command(&["KEYS", "*"]);
            if keys.len() == 2 {
                break;
            }
        }
        assert_eq!(keys.len(), 2, "{keys:?}");
        for key in keys {
            assert!(!key.contains("203") || !key.contains("113"), "{key}");
            let lives_for: i64 = redis.command(&["PTTL", &key]);
            assert!((1..=1_000 * taken).contains(&lives_for), "{key} lives for {lives_for} ms");
        }
    }

    #[tokio::test]
    async fn on_a_cluster_the_keys_are_on_many_slots() {
        let cluster = RedisCluster::options().persistence(Persistence::None).start();
        let rate = Rate { per_second: 1, burst: 50 };
        let url = cluster.url();
        let (one, two) = (Server::new(&url, rate), Server::new(&url, rate));
        let mut are_known = false;
        for round in 0..ROUNDS as u8 {
            let addresses = || (0..=255).map(|number| [10, 0, round, number].into());
            for server in [&one, &two] {
                for address in addresses() {
                    (0..40).for_each(|_| server.limits.check_address(address).unwrap());
                }
                server.exchange().await;
            }
            are_known = addresses().all(|address| two.limits.check_address(address).is_err());
            if are_known {
                break;
            }
        }
        assert!(are_known, "some addresses are given more than their rate");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn three_servers_that_all_want_more_give_as_much_as_one() {
        let redis = start();
        let rate = Rate { per_second: 200, burst: 20 };
        let stop = CancellationToken::new();
        let begun = Instant::now();
        let servers: Vec<_> = (0..3)
            .map(|_| {
                let server = Arc::new(Server::new(&redis.url(), rate));
                let (exchanging, stop) = (Arc::clone(&server), stop.clone());
                tokio::spawn(async move { exchanging.exchange.run(&exchanging.limits, stop).await });
                server
            })
            .collect();
        // A bucket that nobody looks at for long is full, and gives no more than that: such a time counts as a short one.
        let (mut given, mut wanted_for, mut looked) = (0, Duration::ZERO, begun);
        while begun.elapsed() < Duration::from_secs(3) {
            given += servers.iter().map(|server| server.take(GALA, 50)).sum::<usize>();
            wanted_for += looked.elapsed().min(Duration::from_millis(100));
            looked = Instant::now();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let wanted = wanted_for.as_secs_f64() * 200.0;
        let allowed = begun.elapsed().as_secs_f64() * 200.0 + 20.0;
        stop.cancel();
        println!("{given} of {allowed}");
        assert!((given as f64) < 1.7 * allowed, "{given} where {allowed} are allowed");
        assert!((given as f64) > 0.4 * wanted, "{given} where {wanted} could have been had");
    }
}
