//! Locks in a PostgreSQL database: a table of leases.
//!
//! Functions in the database decide, each call a transaction of its own, by the database's clock: see
//! `sql/schema.sql`. A release is told to those who wait by `NOTIFY`.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

mod database;
mod lane;
mod listener;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "redis")]
pub(crate) use database::failure;
pub use database::{BadPostgresUrl, Connected, Database};

use lane::Lane;
use listener::Listener;

use crate::backend::{Attempt, Backend, Held, ListQuery, Order, Page, Released, Renewed, Request};
use crate::bells::{Bells, Watch};
use crate::error::StoreError;
use crate::lease::{Busy, Fence, Grant, Guarantee, Guarantees, LeaseView};
use crate::name::LockName;
use crate::owner::Owner;

/// Connections on which names are taken and given back.
const LANES: usize = 4;
/// What had no answer by then, by the database's own limit, has none any more: see `lane.rs`.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// The same for renewals and looks, which may come in any order, so that one that hangs is left while there is time for
/// another.
const RENEWAL_SILENCE_MAX: Duration = Duration::from_secs(2);
/// A waiter in line that does not ask for so long has gone away.
const ALIVE: Duration = Duration::from_secs(1);
/// Most that wait in line for one name.
const QUEUE_LENGTH_MAX: i64 = 10_000;

/// Comes after every reserved name and before all others.
const BEFORE_ALL_USERS: &str = "\u{1f}";

/// Locks in a PostgreSQL database.
#[derive(Debug)]
pub struct Postgres {
    /// An owner's requests go through one of these, always the same, so that a release comes after the acquisition
    /// that it undoes, even if nobody waits for that any more.
    lanes: [Lane; LANES],
    /// Renewals and looks.
    other: Lane,
    database: Database,
    bells: Bells,
    /// Started by the first who waits.
    listener: OnceLock<Listener>,
}

impl Postgres {
    /// Locks in the database at `postgres://user@host/database`. It is connected when it is first asked, and what
    /// is missing in it is made then.
    pub fn open(url: &str) -> Result<Self, BadPostgresUrl> {
        Database::at(url).map(Self::new)
    }

    /// The same in a database whose URL was read before.
    pub fn new(database: Database) -> Self {
        let lanes = std::array::from_fn(|_| Lane::to(database.clone(), SILENCE_MAX));
        let other = Lane::to(database.clone(), RENEWAL_SILENCE_MAX);
        Self { lanes, other, database, bells: Bells::default(), listener: OnceLock::new() }
    }

    fn lane_of(&self, owner: &Owner) -> &Lane {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        &self.lanes[hasher.finish() as usize % LANES]
    }

    async fn renew_all(&self, leases: &[Held]) -> Result<Vec<Renewed>, StoreError> {
        let (mut places, mut names, mut owners, mut ttls) = (vec![], vec![], vec![], vec![]);
        for (place, lease) in leases.iter().enumerate() {
            for name in lease.names.as_slice() {
                places.push(place as i32);
                names.push(name.as_str());
                owners.push(lease.owner.as_str());
                ttls.push(millis(lease.ttl.length()));
            }
        }
        let arguments: [&(dyn ToSql + Sync); 4] = [&places, &names, &owners, &ttls];
        let rows = self.other.ask(|link| &link.renew, &arguments).await?;
        let mut renewed = vec![Renewed::Gone; leases.len()];
        for row in rows {
            if let Some(lease) = renewed.get_mut(row.get::<_, i32>(0) as usize) {
                *lease = Renewed::Extended;
            }
        }
        Ok(renewed)
    }

    async fn look(&self, name: Option<&str>, query: &ListQuery) -> Result<Vec<LeaseView>, StoreError> {
        let after = query.cursor.as_deref().unwrap_or(BEFORE_ALL_USERS);
        let limit = query.limit.clamp(1, 10_000) as i64;
        let arguments: [&(dyn ToSql + Sync); 4] = [&name, &query.prefix, &after, &limit];
        let rows = self.other.ask(|link| &link.inspect, &arguments).await?;
        Ok(rows.iter().filter_map(view).collect())
    }

    /// What a waiter listens to: the name, or its own place in line.
    async fn bell_of(&self, request: &Request<'_>, name: &LockName) -> Result<String, StoreError> {
        if request.order == Order::Fifo {
            let arguments: [&(dyn ToSql + Sync); 2] = [&name.as_str(), &request.owner.as_str()];
            let rows = self.lane_of(request.owner).ask(|link| &link.place, &arguments).await?;
            if let Some(row) = rows.first() {
                return Ok(format!("turn:{}", row.get::<_, i64>(0)));
            }
        }
        Ok(format!("free:{name}"))
    }
}

#[async_trait]
impl Backend for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            level: Guarantee::Fenced,
            because: "One PostgreSQL primary decides, by its own clock, and has every grant on its disk before it is \
                      answered. Fences grow as long as it forgets no commit: no failover to an asynchronous standby, \
                      no restored backup.",
        }
    }

    async fn try_acquire(&self, request: &Request<'_>) -> Result<Attempt, StoreError> {
        let names: Vec<&str> = request.names.as_slice().iter().map(LockName::as_str).collect();
        let (ttl, in_line) = (request.ttl.length(), request.order == Order::Fifo);
        let arguments: [&(dyn ToSql + Sync); 6] =
            [&names, &request.owner.as_str(), &millis(ttl), &in_line, &millis(ALIVE), &QUEUE_LENGTH_MAX];
        let rows = self.lane_of(request.owner).ask(|link| &link.acquire, &arguments).await?;
        let row = rows.first().ok_or_else(|| StoreError::Refused("no answer to an acquisition".into()))?;
        if let Some(fences) = row.get::<_, Option<Vec<i64>>>(0) {
            let fences = fences.into_iter().map(|fence| Fence(fence.unsigned_abs())).collect();
            return Ok(Attempt::Granted(Grant { fences: Some(fences), remaining: ttl }));
        }
        let taken: &str = row.get(1);
        let name = request.names.as_slice().iter().find(|name| name.as_str() == taken).cloned();
        let name = name.ok_or_else(|| StoreError::Refused("busy is a name that was not asked for".into()))?;
        let remaining = row.get::<_, Option<i64>>(2).map(duration);
        let ahead = row.get::<_, Option<i64>>(3).and_then(|ahead| u32::try_from(ahead).ok());
        Ok(Attempt::Busy(Busy { name, remaining, ahead }))
    }

    async fn renew(&self, leases: &[Held]) -> Vec<Result<Renewed, StoreError>> {
        match self.renew_all(leases).await {
            Ok(renewed) => renewed.into_iter().map(Ok).collect(),
            Err(error) => leases.iter().map(|_| Err(error.to_another())).collect(),
        }
    }

    async fn release(&self, lease: &Held) -> Result<Released, StoreError> {
        let names: Vec<&str> = lease.names.as_slice().iter().map(LockName::as_str).collect();
        let arguments: [&(dyn ToSql + Sync); 3] = [&names, &lease.owner.as_str(), &millis(ALIVE)];
        let rows = self.lane_of(&lease.owner).ask(|link| &link.release, &arguments).await?;
        let released = rows.first().map_or(0, |row| row.get::<_, i32>(0));
        Ok(if released as usize == names.len() { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        let query = ListQuery { limit: 1, ..ListQuery::default() };
        Ok(self.look(Some(name.as_str()), &query).await?.pop())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let leases = self.look(None, query).await?;
        let is_full = leases.len() >= query.limit.clamp(1, 10_000);
        let cursor = leases.last().filter(|_| is_full).map(|lease| lease.name.as_str().to_owned());
        Ok(Page { leases, cursor })
    }

    async fn watch(&self, request: &Request<'_>, name: &LockName) -> Result<Watch, StoreError> {
        let watch = self.bells.watch(&self.bell_of(request, name).await?);
        let start = || Listener::start(self.database.clone(), self.bells.clone());
        self.listener.get_or_init(start).is_listening().await;
        Ok(watch)
    }
}

fn view(row: &Row) -> Option<LeaseView> {
    let owner = Owner::parse(row.get(1)).ok();
    Some(LeaseView {
        name: LockName::parse(row.get(0)).ok()?,
        label: owner.as_ref().and_then(Owner::label).map(str::to_owned),
        age: Some(duration(row.get(3))),
        remaining: Some(duration(row.get(4))),
        fence: Some(Fence(row.get::<_, i64>(2).unsigned_abs())),
        waiters: u32::try_from(row.get::<_, i64>(5)).ok(),
    })
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
