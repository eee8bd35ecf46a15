//! Looking at locks on Redis: one of them, or a page of them by bounded scans of every master.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Cmd, Pipeline, Value};

use super::keys::Keys;
use super::{Redis, keys};
use crate::backend::{ListQuery, Page};
use crate::error::StoreError;
use crate::lease::{Fence, LeaseView};
use crate::name::LockName;
use crate::owner::Owner;

/// Keys looked at by one SCAN at most.
const SCAN_COUNT_MAX: usize = 1_000;

/// Looks at leases on their way at a time.
const VIEWS_MAX: usize = 64;

/// How often a listing has been through the masters.
enum Round {
    /// With the first of those that were silent, if any was.
    First { silent: Option<String> },
    /// From the first that was silent.
    Second,
}

/// Where a listing goes on: at which node, and at which cursor of its scan.
pub(crate) struct Cursor {
    pub(crate) node: String,
    pub(crate) scan: u64,
}

impl Redis {
    pub(super) async fn view(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        let place = self.place(name);
        let mut commands = Pipeline::new();
        commands.get(&place.lock).pttl(&place.lock).zcard(keys::queue(&place.lock, place.slot));
        let (value, pttl, queued): (Option<Vec<u8>>, i64, usize) = self.link.send_all(&commands).await?;
        Ok(value.and_then(|value| view(name.clone(), &value, pttl, Some(queued))))
    }

    /// Of a cluster's masters, one that is silent does not keep the leases of the others from being listed: it is asked once
    /// more when all have been asked, and only then its silence is an error.
    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let nodes = self.masters().await?;
        let (cursor, round) = query.cursor.as_deref().map(Round::read).transpose()?.unzip();
        let mut round = round.unwrap_or(Round::First { silent: None });
        let from = cursor.as_ref().map_or("", |cursor| cursor.node.as_str());
        // A node that is gone is passed over: its slots, and their locks, are at another by now.
        let node = nodes.iter().find(|node| node.as_str() >= from);
        let scan =
            cursor.as_ref().filter(|cursor| Some(&cursor.node) == node).map_or(0, |cursor| cursor.scan);
        let (mut leases, mut next) = (Vec::new(), None);
        if let Some(node) = node {
            match (self.step(node, query, scan).await, &mut round) {
                (Ok((0, found)), _) => leases = found,
                (Ok((scan, found)), _) => (leases, next) = (found, Some(Cursor { node: node.clone(), scan })),
                (Err(StoreError::Unknown(_)), Round::First { silent }) if self.link.is_cluster() => {
                    silent.get_or_insert(node.clone());
                }
                (Err(error), _) => return Err(error),
            }
            let after = || nodes.iter().find(|other| *other > node);
            next = next.or_else(|| after().map(|node| Cursor { node: node.clone(), scan: 0 }));
        }
        if next.is_none()
            && let Round::First { silent: Some(silent) } = round
        {
            (next, round) = (Some(Cursor { node: silent, scan: 0 }), Round::Second);
        }
        Ok(Page { leases, cursor: next.map(|next| round.write(&next)) })
    }

    /// One bounded step through the leases of a node.
    async fn step(
        &self,
        node: &str,
        query: &ListQuery,
        scan: u64,
    ) -> Result<(u64, Vec<LeaseView>), StoreError> {
        let command = self::scan(&self.keys, query, scan);
        let (scan, found): (u64, Vec<Vec<u8>>) = self.link.send_to(address(node), command).await?;
        let names = found.iter().filter_map(|key| self.keys.name(std::str::from_utf8(key).ok()?));
        let names: Vec<LockName> = names.collect();
        let mut leases = Vec::new();
        for some in names.chunks(VIEWS_MAX) {
            for view in futures_util::future::join_all(some.iter().map(|name| self.view(name))).await {
                leases.extend(view?);
            }
        }
        Ok((scan, leases))
    }

    /// The addresses of all masters, in order; one empty address when there is only one server.
    async fn masters(&self) -> Result<Vec<String>, StoreError> {
        if !self.link.is_cluster() {
            return Ok(vec![String::new()]);
        }
        let mut command: Cmd = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges: Vec<Vec<Value>> = self.link.send_to_any(command).await?;
        let mut nodes: Vec<String> = ranges.iter().filter_map(|range| master(range)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }
}

/// One bounded step through the keys of a server.
pub(crate) fn scan(keys: &Keys, query: &ListQuery, cursor: u64) -> Cmd {
    let pattern = format!("{}{}*", escaped(keys.prefix()), escaped(&query.prefix));
    let mut command = redis::cmd("SCAN");
    command.arg(cursor).arg("MATCH").arg(pattern).arg("TYPE").arg("string");
    command.arg("COUNT").arg(query.limit.clamp(1, SCAN_COUNT_MAX));
    command
}

/// The master in one line of CLUSTER SLOTS: first slot, last slot, master, replicas.
fn master(range: &[Value]) -> Option<String> {
    let Value::Array(node) = range.get(2)? else { return None };
    let (Value::BulkString(host), Value::Int(port)) = (node.first()?, node.get(1)?) else { return None };
    Some(format!("{}:{port}", std::str::from_utf8(host).ok()?))
}

fn address(node: &str) -> (&str, u16) {
    node.rsplit_once(':').map_or(("", 0), |(host, port)| (host, port.parse().unwrap_or_default()))
}

/// Anything in a prefix means itself.
pub(crate) fn escaped(prefix: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    prefix.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// What a lock's key tells about its holder.
pub(crate) fn view(name: LockName, value: &[u8], pttl: i64, waiting: Option<usize>) -> Option<LeaseView> {
    if pttl == -2 {
        return None;
    }
    let value = std::str::from_utf8(value).unwrap_or_default();
    let (token, fence) = match value.rsplit_once('#') {
        Some((token, fence)) => (token, fence.parse().ok().map(Fence)),
        None => (value, None),
    };
    let owner = Owner::parse(token).ok();
    let made_at = owner.as_ref().and_then(Owner::made_at_millis);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(LeaseView {
        name,
        label: owner.as_ref().and_then(Owner::label).map(str::to_owned),
        age: made_at.map(|made_at| now.saturating_sub(Duration::from_millis(made_at))),
        remaining: u64::try_from(pttl).ok().map(Duration::from_millis),
        fence,
        waiters: waiting.and_then(|waiting| u32::try_from(waiting).ok()),
    })
}

impl Cursor {
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        let parts =
            text.rsplit_once('/').and_then(|(node, scan)| Some((node.to_owned(), scan.parse().ok()?)));
        let (node, scan) = parts.ok_or_else(|| StoreError::Refused("not a cursor of a listing".into()))?;
        Ok(Self { node, scan })
    }

    pub(crate) fn write(&self) -> String {
        format!("{}/{}", self.node, self.scan)
    }
}

impl Round {
    fn read(text: &str) -> Result<(Cursor, Self), StoreError> {
        let (cursor, round) = match text.split_once(' ') {
            None => (text, Self::First { silent: None }),
            Some((cursor, "")) => (cursor, Self::Second),
            Some((cursor, silent)) => (cursor, Self::First { silent: Some(silent.to_owned()) }),
        };
        Ok((Cursor::read(cursor)?, round))
    }

    fn write(&self, cursor: &Cursor) -> String {
        match self {
            Self::First { silent: None } => cursor.write(),
            Self::First { silent: Some(silent) } => format!("{} {silent}", cursor.write()),
            Self::Second => format!("{} ", cursor.write()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_means_itself() {
        assert_eq!(escaped("a*b?[c]-\\"), "a\\*b\\?\\[c\\]\\-\\\\");
    }

    #[test]
    fn cursor_survives_the_way_to_the_caller() {
        let cursor = Cursor::read(&Cursor { node: "10.0.0.1:7000".to_owned(), scan: 77 }.write()).unwrap();
        assert_eq!((cursor.node.as_str(), cursor.scan), ("10.0.0.1:7000", 77));
        assert!(Cursor::read("nonsense").is_err());
    }
}
