//! Looking at locks over several servers: what most of them say counts.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Pipeline;

use super::Inner;
use crate::backend::{ListQuery, Page};
use crate::error::StoreError;
use crate::lease::LeaseView;
use crate::name::LockName;
use crate::redis::inspect;

/// How long one server may take to answer a question.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// A lock's value and the time it has left.
type Seen = (Option<Vec<u8>>, i64);

impl Inner {
    pub(super) async fn view(&self, name: &LockName) -> Result<Option<LeaseView>, StoreError> {
        let lock = self.keys.lock(name);
        let mut commands = Pipeline::new();
        commands.get(&lock).pttl(&lock);
        let commands = &commands;
        let calls = self.nodes.iter().map(|node| async move {
            tokio::time::timeout(ANSWER_TIME_MAX, node.link.send_all::<Seen>(commands)).await
        });
        let answers = join_all(calls).await;
        let seen: Vec<Seen> = answers.into_iter().filter_map(|answer| answer.ok()?.ok()).collect();
        if seen.len() < self.quorum() {
            return Err(StoreError::Unknown("too few servers answered".into()));
        }
        // Most servers must name the same owner; the fence may be on its way to some of them.
        let mut by_token: HashMap<&[u8], Vec<(&[u8], i64)>> = HashMap::new();
        for (value, pttl) in &seen {
            if let Some(value) = value {
                let token = value.split(|byte| *byte == b'#').next().unwrap_or_default();
                by_token.entry(token).or_default().push((value, *pttl));
            }
        }
        let Some(mut held) = by_token.into_values().find(|held| held.len() >= self.quorum()) else {
            return Ok(None);
        };
        // It is held until the first of the servers that make the majority lets go.
        held.sort_unstable_by_key(|(_, pttl)| std::cmp::Reverse(*pttl));
        let end = held[self.quorum() - 1].1;
        let value = held.iter().map(|(value, _)| *value).max_by_key(|value| value.len()).unwrap_or_default();
        Ok(inspect::view(name.clone(), value, end, None))
    }

    /// Looks through one server after the other, so a lease that most of them have is found.
    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let (mut index, scan) = match &query.cursor {
            Some(cursor) => {
                inspect::Cursor::read(cursor).map(|cursor| (cursor.node.parse().ok(), cursor.scan))?
            }
            None => (Some(0), 0),
        };
        let at = index.take().ok_or_else(|| StoreError::Refused("not a cursor of a listing".into()))?;
        let Some(node) = self.nodes.get(at) else { return Ok(Page::default()) };
        let command = inspect::scan(&self.keys, query, scan);
        let next = |scan: u64| match scan {
            0 if at + 1 < self.nodes.len() => Some(inspect::Cursor { node: (at + 1).to_string(), scan: 0 }),
            0 => None,
            scan => Some(inspect::Cursor { node: at.to_string(), scan }),
        };
        let found: Result<(u64, Vec<Vec<u8>>), _> = node.link.send(&command).await;
        if found.is_err() {
            self.require_quorum().await?;
        }
        // A server that does not answer is passed over: if most of them do, one of these has what it had.
        let found = found.unwrap_or_default();
        let mut leases = Vec::new();
        for name in found.1.iter().filter_map(|key| self.keys.name(std::str::from_utf8(key).ok()?)) {
            leases.extend(self.view(&name).await?);
        }
        Ok(Page { leases, cursor: next(found.0).map(|cursor| cursor.write()) })
    }
    /// Whether most servers answer at all.
    async fn require_quorum(&self) -> Result<(), StoreError> {
        let command = redis::cmd("PING");
        let pings = self.nodes.iter().map(|node| {
            let ping = node.link.send::<String>(&command);
            tokio::time::timeout(ANSWER_TIME_MAX, ping)
        });
        let answers = join_all(pings).await;
        match answers.iter().filter(|answer| matches!(answer, Ok(Ok(_)))).count() >= self.quorum() {
            true => Ok(()),
            false => Err(StoreError::Unknown("too few servers answered".into())),
        }
    }
}
