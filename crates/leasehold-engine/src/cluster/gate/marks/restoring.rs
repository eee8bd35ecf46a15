//! Writing marks again that Redis may have lost: those of all keys under which the ledger has an answer.
//!
//! Not before every attempt has ended whose mark may be among the lost. What was marked since is there. So a slot then has all
//! marks, and says so, unless one was found to be missing meanwhile: then all begins anew. Several servers may do it at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use super::super::super::connection::{CALL_TIME_MAX, within};
use super::super::super::shared::Reader;
use super::super::lanes::{Away, Script};
use super::{Before, MARK_TIME, Mark, Marks, SLOTS};

/// An attempt that was marked has come to its end after this time, also one that reached the ledger late.
const ENDED_AFTER: Duration = Duration::from_secs(180);
/// How often slots are asked meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Keys that are read, and marked, at a time.
const PAGE: i64 = 1_024;
/// How often a page is written before another look at the slots, and how long to wait in between.
const TRIES: u32 = 20;
const TRY_EVERY: Duration = Duration::from_millis(250);
/// Of the attempt that the ledger has granted, whichever it was. No other one has this number, so it is not taken back.
const GRANTED: i64 = 0;

/// A slot that may lack marks, and what it says.
type Lacking = (u8, i64);

/// What slots say.
#[derive(Default)]
struct Said {
    /// Of these all attempts have ended.
    ripe: Vec<Lacking>,
    /// There are others, or some could not be asked.
    others: bool,
}

impl Marks {
    /// Sees to it that all marks are written again, unless somebody does so already.
    pub(super) fn restore(self: &Arc<Self>) {
        if self.restores.swap(true, Ordering::Relaxed) {
            return;
        }
        let marks = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(marks) = marks.upgrade() {
                let said = marks.look().await;
                let is_written = said.ripe.is_empty() || marks.write_again(&said.ripe).await.is_ok();
                if is_written && !said.others {
                    marks.restores.store(false, Ordering::Relaxed);
                    return;
                }
                drop(marks);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    async fn look(self: &Arc<Self>) -> Said {
        let mut said = Said::default();
        for slot in 0..SLOTS {
            match self.ask(Script::Know, slot, None, vec!["?".to_owned()]).await.as_deref() {
                Ok([all_from, now]) if *all_from > *now => {
                    let begun = all_from - millis(MARK_TIME);
                    match begun + millis(ENDED_AFTER) <= *now {
                        true => said.ripe.push((slot, *all_from)),
                        false => said.others = true,
                    }
                }
                Ok([all_from, _]) if *all_from >= 0 => {}
                Ok(_) => {
                    self.tell(slot, Before::Unknown);
                    said.others = true;
                }
                Err(Away) => said.others = true,
            }
        }
        said
    }

    /// Writes the marks of slots, and tells these that they have all.
    async fn write_again(&self, slots: &[Lacking]) -> Result<(), Away> {
        let (mut last, mut count) = (Uuid::nil(), 0);
        loop {
            let keys = self.keys_after(last).await?;
            let marks = keys.iter().map(|key| Mark::of(key.as_u128(), GRANTED));
            let marks: Vec<Mark> =
                marks.filter(|mark| slots.iter().any(|(slot, _)| *slot == mark.slot)).collect();
            self.write_page(&marks).await?;
            count += marks.len();
            match keys.last() {
                Some(key) => last = *key,
                None => break,
            }
        }
        for (slot, all_from) in slots {
            self.ask(Script::Know, *slot, None, vec![format!("r{all_from}")]).await?;
        }
        tracing::info!(slots = slots.len(), count, "the gate has the marks of idempotency keys again");
        Ok(())
    }

    /// Keys under which the ledger has an answer, in their order.
    async fn keys_after(&self, last: Uuid) -> Result<Vec<Uuid>, Away> {
        let look = |reader: Arc<Reader>| async move {
            let sql = "SELECT scope FROM leasehold.answers WHERE scope > $1 ORDER BY scope LIMIT $2";
            within(CALL_TIME_MAX, reader.client.query(sql, &[&last, &PAGE])).await
        };
        let rows = self.shared.look_back(look).await.map_err(|_| Away)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    async fn write_page(&self, marks: &[Mark]) -> Result<(), Away> {
        for _ in 0..TRIES {
            let written = join_all(marks.iter().map(|mark| self.write(mark))).await;
            if written.iter().all(Result::is_ok) {
                return Ok(());
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
        Err(Away)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a short time")
}
