//! What is asked of the file, one transaction at a time.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::backend::{Attempt, Held, ListQuery, Order, Page, Released, Renewed};
use crate::clock::Moment;
use crate::lease::{Busy, Fence, Grant, LeaseView};
use crate::name::LockName;
use crate::owner::Owner;

/// A waiter in line that does not ask for so long has gone away.
const ALIVE: Duration = Duration::from_secs(1);
/// Most that wait in line for one name.
const QUEUE_LENGTH_MAX: u32 = 10_000;
/// One that was silent for so long is forgotten, although nobody asks for its name any more.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
/// Leases that ended, and waiters that are gone, are cleared away a few at a time.
const SWEEP: u32 = 16;
/// One start of the machine has so many fences; all of them together stay below 2^53.
const FENCES_PER_EPOCH: u64 = 1 << 32;

/// The tables, within a transaction that holds the file's write lock.
pub(super) struct Table<'a> {
    pub(super) transaction: Transaction<'a>,
    pub(super) now: Moment,
}

/// Makes the file ready for this start of the machine: leases of an earlier one are over.
pub(super) fn prepare(connection: &mut Connection, boot_id: &str) -> rusqlite::Result<()> {
    connection.execute_batch(include_str!("sql/schema.sql"))?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let known: Option<String> =
        transaction.query_row("SELECT boot_id FROM lock_boot", [], |row| row.get(0)).optional()?;
    if known.as_deref() != Some(boot_id) {
        transaction.execute_batch("DELETE FROM leases; DELETE FROM waiting;")?;
        transaction.execute(
            "INSERT INTO lock_boot (id, boot_id, epoch, last_count) VALUES (1, ?1, 1, 0)
             ON CONFLICT (id) DO UPDATE SET boot_id = ?1, epoch = epoch + 1, last_count = 0",
            [boot_id],
        )?;
    }
    transaction.commit()
}

impl Table<'_> {
    pub(super) fn acquire(&self, held: &Held) -> rusqlite::Result<Attempt> {
        self.sweep()?;
        for name in held.names.as_slice() {
            if let Some(busy) = self.taken(name, held)? {
                return Ok(Attempt::Busy(busy));
            }
        }
        let mut fences = Vec::with_capacity(held.names.as_slice().len());
        for name in held.names.as_slice() {
            self.leave_line(name, &held.owner)?;
            let mine = self.lease(name)?.filter(|lease| self.is_valid(lease));
            let fence = match mine {
                Some(lease) => lease.fence,
                None => self.next_fence()?,
            };
            self.transaction
                .prepare_cached(
                    "INSERT INTO leases (name, owner, fence, since, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at,
                        since = iif(fence = excluded.fence, since, excluded.since), fence = excluded.fence",
                )?
                .execute(params![
                    name.as_str(),
                    held.owner.as_str(),
                    fence.0,
                    self.now.as_nanos(),
                    (self.now + held.ttl.length()).as_nanos(),
                ])?;
            fences.push(fence);
        }
        Ok(Attempt::Granted(Grant { fences: Some(fences), remaining: held.ttl.length() }))
    }

    pub(super) fn renew(&self, held: &Held) -> rusqlite::Result<Renewed> {
        for name in held.names.as_slice() {
            let lease = self.lease(name)?;
            if !lease.is_some_and(|lease| self.is_valid(&lease) && lease.owner == held.owner.as_str()) {
                return Ok(Renewed::Gone);
            }
        }
        let expires_at = (self.now + held.ttl.length()).as_nanos();
        for name in held.names.as_slice() {
            self.transaction
                .prepare_cached("UPDATE leases SET expires_at = ?2 WHERE name = ?1")?
                .execute(params![name.as_str(), expires_at])?;
        }
        Ok(Renewed::Extended)
    }

    /// Gives back what is the owner's, and says who is next in line for each name.
    pub(super) fn release(&self, held: &Held) -> rusqlite::Result<(Released, Vec<String>)> {
        let mut released = Released::Released;
        let mut next = Vec::new();
        for name in held.names.as_slice() {
            self.leave_line(name, &held.owner)?;
            let was_mine: Option<u64> = self
                .transaction
                .prepare_cached("DELETE FROM leases WHERE name = ?1 AND owner = ?2 RETURNING expires_at")?
                .query_row(params![name.as_str(), held.owner.as_str()], |row| row.get(0))
                .optional()?;
            if was_mine.is_none_or(|expires_at| expires_at <= self.now.as_nanos()) {
                released = Released::NotHeld;
            }
            next.extend(self.first_in_line(name)?);
        }
        Ok((released, next))
    }

    pub(super) fn view(&self, name: &LockName) -> rusqlite::Result<Option<LeaseView>> {
        let Some(lease) = self.lease(name)?.filter(|lease| self.is_valid(lease)) else { return Ok(None) };
        let waiters = self
            .transaction
            .prepare_cached("SELECT count(*) FROM waiting WHERE name = ?1 AND heard_of >= ?2")?
            .query_row(params![name.as_str(), self.before(ALIVE)], |row| row.get(0))?;
        let owner = Owner::parse(&lease.owner).ok();
        Ok(Some(LeaseView {
            name: name.clone(),
            label: owner.as_ref().and_then(Owner::label).map(str::to_owned),
            age: Some(self.now.since(lease.since)),
            remaining: Some(lease.expires_at.since(self.now)),
            fence: Some(lease.fence),
            waiters: Some(waiters),
        }))
    }

    pub(super) fn page(&self, query: &ListQuery) -> rusqlite::Result<Page> {
        let limit = query.limit.max(1);
        let mut statement = self.transaction.prepare_cached(
            "SELECT name FROM leases WHERE name >= ?1 AND name > ?2 AND expires_at > ?3 ORDER BY name LIMIT ?4",
        )?;
        let after = query.cursor.as_deref().unwrap_or_default();
        let arguments = params![query.prefix, after, self.now.as_nanos(), limit as u64];
        let names = statement.query_map(arguments, |row| row.get::<_, String>(0))?;
        let names = names.collect::<rusqlite::Result<Vec<String>>>()?;
        let within = names.iter().take_while(|name| name.starts_with(&query.prefix)).count();
        let mut leases = Vec::with_capacity(within);
        for name in &names[..within] {
            if let Ok(name) = LockName::parse(name) {
                leases.extend(self.view(&name)?);
            }
        }
        let cursor = names.last().filter(|_| within == limit).cloned();
        Ok(Page { leases, cursor })
    }

    /// Whoever keeps the asking owner from this name, and for how long.
    fn taken(&self, name: &LockName, held: &Held) -> rusqlite::Result<Option<Busy>> {
        let mut busy = Busy { name: name.clone(), remaining: None, ahead: None };
        match self.lease(name)?.filter(|lease| self.is_valid(lease)) {
            Some(lease) if lease.owner == held.owner.as_str() => return Ok(None),
            Some(lease) => busy.remaining = Some(lease.expires_at.since(self.now)),
            None => {}
        }
        if held.order == Order::Any {
            // Whoever does not stand in line still lets those go first who do.
            let free = busy.remaining.is_none() && self.first_in_line(name)?.is_none();
            return Ok((!free).then_some(busy));
        }
        let first = self.first_in_line(name)?;
        if busy.remaining.is_none() && first.is_none_or(|first| first == held.owner.as_str()) {
            return Ok(None);
        }
        busy.ahead = self.stand_in_line(name, &held.owner)?;
        Ok(Some(busy))
    }

    /// The first in line that was heard of lately. Whoever was not is dropped from the line.
    fn first_in_line(&self, name: &LockName) -> rusqlite::Result<Option<String>> {
        self.transaction
            .prepare_cached("DELETE FROM waiting WHERE name = ?1 AND heard_of < ?2")?
            .execute(params![name.as_str(), self.before(ALIVE)])?;
        self.transaction
            .prepare_cached("SELECT owner FROM waiting WHERE name = ?1 ORDER BY place LIMIT 1")?
            .query_row([name.as_str()], |row| row.get(0))
            .optional()
    }

    /// Puts the owner in line, or notes that it is still there. Returns how many are ahead; `None` when the line is full.
    fn stand_in_line(&self, name: &LockName, owner: &Owner) -> rusqlite::Result<Option<u32>> {
        let heard_of = params![name.as_str(), owner.as_str(), self.now.as_nanos()];
        let is_there = self
            .transaction
            .prepare_cached("UPDATE waiting SET heard_of = ?3 WHERE name = ?1 AND owner = ?2")?
            .execute(heard_of)?;
        if is_there == 0 {
            self.transaction
                .prepare_cached(
                    "INSERT INTO waiting (name, owner, heard_of) SELECT ?1, ?2, ?3
                     WHERE (SELECT count(*) FROM waiting WHERE name = ?1) < ?4",
                )?
                .execute(params![name.as_str(), owner.as_str(), self.now.as_nanos(), QUEUE_LENGTH_MAX])?;
        }
        self.transaction
            .prepare_cached(
                "SELECT (SELECT count(*) FROM waiting AS before WHERE before.name = ?1 AND before.place < mine.place)
                 FROM waiting AS mine WHERE mine.name = ?1 AND mine.owner = ?2",
            )?
            .query_row(params![name.as_str(), owner.as_str()], |row| row.get(0))
            .optional()
    }

    fn leave_line(&self, name: &LockName, owner: &Owner) -> rusqlite::Result<()> {
        let mut statement =
            self.transaction.prepare_cached("DELETE FROM waiting WHERE name = ?1 AND owner = ?2")?;
        statement.execute(params![name.as_str(), owner.as_str()]).map(drop)
    }

    fn next_fence(&self) -> rusqlite::Result<Fence> {
        let mut statement = self
            .transaction
            .prepare_cached("UPDATE lock_boot SET last_count = last_count + 1 RETURNING epoch, last_count")?;
        statement.query_row([], |row| {
            Ok(Fence((row.get::<_, u64>(0)? - 1) * FENCES_PER_EPOCH + row.get::<_, u64>(1)?))
        })
    }

    /// Names that nobody asks for again must not stay for ever.
    fn sweep(&self) -> rusqlite::Result<()> {
        let mut statement = self.transaction.prepare_cached(
            "DELETE FROM leases WHERE name IN (SELECT name FROM leases WHERE expires_at <= ?1 LIMIT ?2)",
        )?;
        statement.execute(params![self.now.as_nanos(), SWEEP])?;
        let mut statement = self.transaction.prepare_cached(
            "DELETE FROM waiting WHERE place IN (SELECT place FROM waiting WHERE heard_of < ?1 LIMIT ?2)",
        )?;
        statement.execute(params![self.before(FORGOTTEN), SWEEP]).map(drop)
    }

    /// The time so long ago, in nanoseconds.
    fn before(&self, time: Duration) -> u64 {
        self.now.as_nanos().saturating_sub(time.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    fn lease(&self, name: &LockName) -> rusqlite::Result<Option<StoredLease>> {
        self.transaction
            .prepare_cached("SELECT owner, fence, since, expires_at FROM leases WHERE name = ?1")?
            .query_row([name.as_str()], StoredLease::read)
            .optional()
    }

    fn is_valid(&self, lease: &StoredLease) -> bool {
        self.now < lease.expires_at
    }
}

/// A lease as it stands in the file.
struct StoredLease {
    owner: String,
    fence: Fence,
    since: Moment,
    expires_at: Moment,
}

impl StoredLease {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            owner: row.get(0)?,
            fence: Fence(row.get(1)?),
            since: Moment::from_nanos(row.get(2)?),
            expires_at: Moment::from_nanos(row.get(3)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Ttl;
    use crate::name::Names;

    const HOUR: u64 = 3_600_000_000_000;

    fn wanted(name: &str, order: Order) -> Held {
        Held {
            names: Names::try_from(name).unwrap(),
            owner: Owner::random(None),
            ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
            order,
        }
    }

    fn acquire(connection: &mut Connection, now: u64, held: &Held) -> Option<Fence> {
        let table = Table { transaction: connection.transaction().unwrap(), now: Moment::from_nanos(now) };
        let attempt = table.acquire(held).unwrap();
        table.transaction.commit().unwrap();
        match attempt {
            Attempt::Granted(grant) => grant.fences.map(|fences| fences[0]),
            Attempt::Busy(_) => None,
        }
    }

    /// The clock of leases counts from the start of the machine, so it begins again with the next.
    #[test]
    fn leases_end_with_the_machine_and_fences_go_on_growing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let mut last = Some(Fence(0));
        for boot_id in ["first", "second", "third"] {
            prepare(&mut connection, boot_id).unwrap();
            let fence = acquire(&mut connection, HOUR, &wanted("job", Order::Any));
            assert!(last < fence, "{last:?}, then {fence:?} after {boot_id} start");
            // Another process opens the file meanwhile, of the same start.
            prepare(&mut connection, boot_id).unwrap();
            let held = acquire(&mut connection, HOUR + 1, &wanted("job", Order::Any));
            assert_eq!(held, None, "it is held");
            last = fence;
        }
    }

    #[test]
    fn whoever_stands_in_a_full_line_keeps_the_place_and_nobody_else_has_one() {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection, "boot").unwrap();
        acquire(&mut connection, HOUR, &wanted("job", Order::Any)).expect("free");
        let first = wanted("job", Order::Fifo);
        assert_eq!(acquire(&mut connection, HOUR, &first), None);
        let many = "WITH RECURSIVE other (number) AS (SELECT 2 UNION ALL SELECT number + 1 FROM other WHERE number < ?1)
                    INSERT INTO waiting (name, owner, heard_of) SELECT 'job', 'owner-' || number, ?2 FROM other";
        connection.execute(many, params![QUEUE_LENGTH_MAX, HOUR]).unwrap();
        let later = HOUR + 1_000_000;
        let ahead = |connection: &mut Connection, held: &Held| {
            let table =
                Table { transaction: connection.transaction().unwrap(), now: Moment::from_nanos(later) };
            let ahead = table.stand_in_line(held.names.first(), &held.owner).unwrap();
            table.transaction.commit().unwrap();
            ahead
        };
        assert_eq!(ahead(&mut connection, &first), Some(0));
        assert_eq!(ahead(&mut connection, &wanted("job", Order::Fifo)), None, "there is no room");
        let sql = "SELECT count(*) FROM waiting WHERE heard_of = ?1";
        let heard: u32 = connection.query_row(sql, [later], |row| row.get(0)).unwrap();
        assert_eq!(heard, 1, "it is still there");
    }

    /// Those who were killed release nothing, and nobody may ever ask for these names again.
    #[test]
    fn what_the_killed_leave_behind_is_not_counted_and_goes() {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection, "boot").unwrap();
        for number in 0..50 {
            let name = format!("job-{number}");
            assert!(acquire(&mut connection, HOUR, &wanted(&name, Order::Fifo)).is_some());
            for _ in 0..2 {
                assert_eq!(acquire(&mut connection, HOUR, &wanted(&name, Order::Fifo)), None);
            }
        }
        let waiters = |connection: &mut Connection, now: u64| {
            let table =
                Table { transaction: connection.transaction().unwrap(), now: Moment::from_nanos(now) };
            table.view(&LockName::parse("job-7").unwrap()).unwrap().expect("held").waiters
        };
        assert_eq!(waiters(&mut connection, HOUR), Some(2));
        assert_eq!(waiters(&mut connection, HOUR + 2_000_000_000), Some(0), "they ask no more");
        for number in 0..20 {
            let other = wanted(&format!("other-{number}"), Order::Any);
            assert!(acquire(&mut connection, 3 * HOUR, &other).is_some());
        }
        let count = "SELECT (SELECT count(*) FROM leases), (SELECT count(*) FROM waiting)";
        let left: (u32, u32) = connection.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(left, (20, 0), "leases and waiters");
    }
}
