//! The feed: how an event stands after the last commit, and its recent changes, for any number of readers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use leasehold_core::{Epoch, Event, SeatStatus};
#[cfg(feature = "cluster")]
use leasehold_core::{EventState, Policy};
use tokio::sync::watch;

use crate::view::NextStep;
use crate::{
    Availability, Change, EventSummary, SeatUpdate, Since, Snapshot, StreamStep, Subscription, Version,
};

/// Changes kept in memory for one event.
const CHANGES_PER_EVENT_MAX: usize = 65_536;
/// Changes kept in memory for all events together, by their weight.
const CHANGES_MAX: usize = 1_000_000;
/// A change of many seats weighs more: one for so many seats.
const SEATS_PER_WEIGHT: usize = 16;
/// Seats of the changes given to a reader at a time, but for those of the last one.
const SEATS_PER_STEP_MAX: usize = 16_384;
/// Changes given to a reader at a time.
const CHANGES_PER_STEP_MAX: usize = 1_024;

/// One event's durable state for readers.
#[derive(Debug)]
pub(crate) struct Feed {
    inside: Mutex<Inside>,
    /// The last durable version. Readers wait on it; its end is the engine's.
    published: watch::Sender<u64>,
    /// Changes kept over all events.
    kept: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Inside {
    summary: EventSummary,
    seats: Vec<SeatStatus>,
    /// Consecutive versions, the last one being the summary's.
    changes: VecDeque<Arc<Change>>,
    snapshot: Option<Arc<Snapshot>>,
}

impl Feed {
    pub(crate) fn of(event: &Event, epoch: Epoch, kept: Arc<AtomicUsize>) -> Self {
        let seats = event.seats().iter().map(|seat| seat.owner.status()).collect();
        Self::new(EventSummary::of(event, epoch), seats, kept)
    }

    /// An event that stands so.
    pub(crate) fn new(summary: EventSummary, seats: Vec<SeatStatus>, kept: Arc<AtomicUsize>) -> Self {
        let version = summary.version.number;
        let inside = Inside { summary, seats, changes: VecDeque::new(), snapshot: None };
        Self { inside: Mutex::new(inside), published: watch::Sender::new(version), kept }
    }

    /// Adds a change that happened before the start.
    pub(crate) fn recall(&self, change: Change) {
        self.lock().keep(Arc::new(change), &self.kept);
    }

    /// Publishes changes that are durable now, and how the event stands after them.
    pub(crate) fn publish(&self, changes: impl Iterator<Item = Change>, summary: EventSummary) {
        let mut inside = self.lock();
        for change in changes {
            for update in &change.seats {
                inside.seats[update.seat.0 as usize] = update.status;
            }
            inside.keep(Arc::new(change), &self.kept);
        }
        let version = summary.version.number;
        inside.summary = summary;
        drop(inside);
        self.published.send_replace(version);
    }

    /// Publishes changes that another writer made durable, with the rules after those that changed them.
    ///
    /// What is known already is left out. False when there is a gap: the reader must begin anew.
    #[cfg(feature = "cluster")]
    pub(crate) fn follow(&self, changes: Vec<(Change, Option<(Policy, EventState)>)>) -> bool {
        let mut inside = self.lock();
        for (change, rules) in changes {
            let known = inside.summary.version.number;
            if change.version.number <= known {
                continue;
            }
            if change.version.number != known + 1 {
                return false;
            }
            for update in &change.seats {
                let seat = &mut inside.seats[update.seat.0 as usize];
                let before = std::mem::replace(seat, update.status);
                inside.summary.counts.pass(before, update.status);
            }
            for (pool, counts) in &change.pools {
                inside.summary.pools[pool.0 as usize] = *counts;
            }
            if let Some((policy, state)) = rules {
                inside.summary.policy = policy;
                inside.summary.state = state;
            }
            inside.summary.version = change.version;
            inside.keep(Arc::new(change), &self.kept);
        }
        let version = inside.summary.version.number;
        drop(inside);
        self.published.send_replace(version);
        true
    }

    /// Begins anew: readers that are behind are told so.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_anew(&self, summary: EventSummary, seats: Vec<SeatStatus>) {
        let mut inside = self.lock();
        inside.clear(&self.kept);
        // The versions that were lost are given out again, for other changes.
        inside.snapshot = None;
        inside.seats = seats;
        let version = summary.version.number;
        inside.summary = summary;
        drop(inside);
        self.published.send_replace(version);
    }

    /// The last version that readers see.
    #[cfg(feature = "cluster")]
    pub(crate) fn version(&self) -> u64 {
        self.lock().summary.version.number
    }

    /// Looks at how the event and its seats stand.
    #[cfg(feature = "cluster")]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&EventSummary, &[SeatStatus]) -> T) -> T {
        let inside = self.lock();
        look(&inside.summary, &inside.seats)
    }

    pub(crate) fn summary(&self) -> EventSummary {
        self.lock().summary.clone()
    }

    pub(crate) fn availability(&self, since: Since) -> Availability {
        let mut inside = self.lock();
        let changes: Option<Vec<Arc<Change>>> = match since {
            Since::Version(version) => inside.after(version).map(|changes| changes.cloned().collect()),
            Since::Nothing => None,
        };
        let Some(changes) = changes else { return Availability::Full(inside.snapshot()) };
        let summary = inside.summary.clone();
        // The writer needs the lock, the rest does not.
        drop(inside);
        let updates = changes.iter().rev().flat_map(|change| change.seats.iter().rev().copied());
        let mut seats: Vec<SeatUpdate> = updates.collect();
        // The sort keeps the order of equals, so the latest update of each seat stays first.
        seats.sort_by_key(|update| update.seat);
        seats.dedup_by_key(|update| update.seat);
        Availability::Changes { seats, summary }
    }

    /// The changes before a version, or the last ones; newest first.
    pub(crate) fn before(&self, version: Option<u64>, count: usize) -> Vec<Arc<Change>> {
        let inside = self.lock();
        let current = inside.summary.version.number;
        let skipped = version.map_or(0, |version| (current + 1).saturating_sub(version));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        inside.changes.iter().rev().skip(skipped).take(count).cloned().collect()
    }

    pub(crate) fn subscribe(self: &Arc<Self>, since: Since) -> Subscription {
        let feed = Arc::clone(self);
        let published = self.published.subscribe();
        let position = match since {
            Since::Nothing => Arc::new(Mutex::new(self.lock().summary.version)),
            Since::Version(version) => Arc::new(Mutex::new(version)),
        };
        Subscription::new(move || {
            let step = Step {
                feed: Arc::clone(&feed),
                published: published.clone(),
                position: Arc::clone(&position),
            };
            Box::pin(step.run()) as NextStep
        })
    }

    /// Ends all subscriptions.
    pub(crate) fn end(&self) {
        self.published.send_replace(u64::MAX);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Feed {
    /// What it kept counts no more.
    fn drop(&mut self) {
        self.lock().clear(&self.kept);
    }
}

/// One wait of one subscriber. Its position moves only when changes are handed out.
struct Step {
    feed: Arc<Feed>,
    published: watch::Receiver<u64>,
    position: Arc<Mutex<Version>>,
}

impl Step {
    async fn run(mut self) -> StreamStep {
        loop {
            let ended = *self.published.borrow_and_update() == u64::MAX;
            if let Some(step) = self.ready() {
                return step;
            }
            if ended {
                return StreamStep::End;
            }
            if self.published.changed().await.is_err() {
                return StreamStep::End;
            }
        }
    }

    fn ready(&self) -> Option<StreamStep> {
        let inside = self.feed.lock();
        let mut position = self.position.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(changes) = inside.after(*position) else {
            *position = inside.summary.version;
            return Some(StreamStep::Reset(*position));
        };
        let mut seats = 0;
        let changes = changes.take(CHANGES_PER_STEP_MAX).take_while(|change| {
            let is_next = seats < SEATS_PER_STEP_MAX;
            seats += change.seats.len();
            is_next
        });
        let changes: Vec<_> = changes.cloned().collect();
        *position = changes.last()?.version;
        Some(StreamStep::Changes(changes))
    }
}

impl Inside {
    /// The changes after a version; none when they are not known any more, or not yet.
    fn after(&self, version: Version) -> Option<impl Iterator<Item = &Arc<Change>>> {
        let current = self.summary.version;
        if version.epoch != current.epoch || version.number > current.number {
            return None;
        }
        let missing = usize::try_from(current.number - version.number).ok()?;
        let from = self.changes.len().checked_sub(missing)?;
        Some(self.changes.range(from..))
    }

    fn clear(&mut self, kept: &AtomicUsize) {
        let weight = self.changes.drain(..).map(|change| weight(&change)).sum();
        kept.fetch_sub(weight, Ordering::Relaxed);
    }

    fn keep(&mut self, change: Arc<Change>, kept: &AtomicUsize) {
        let added = weight(&change);
        self.changes.push_back(change);
        kept.fetch_add(added, Ordering::Relaxed);
        // Twice as much as was added at most: the surplus melts away without a pause.
        for _ in 0..2 * added {
            let is_full =
                self.changes.len() > CHANGES_PER_EVENT_MAX || kept.load(Ordering::Relaxed) > CHANGES_MAX;
            if !is_full || self.changes.len() <= CHANGES_PER_STEP_MAX {
                break;
            }
            let dropped = self.changes.pop_front().as_deref().map_or(0, weight);
            kept.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// The snapshot of this version, made once.
    fn snapshot(&mut self) -> Arc<Snapshot> {
        match &self.snapshot {
            Some(made) if made.summary.version == self.summary.version => Arc::clone(made),
            _ => {
                let snapshot =
                    Arc::new(Snapshot { summary: self.summary.clone(), seats: self.seats.clone() });
                self.snapshot = Some(Arc::clone(&snapshot));
                snapshot
            }
        }
    }
}

/// How much of the memory for changes it takes.
fn weight(change: &Change) -> usize {
    1 + change.seats.len() / SEATS_PER_WEIGHT
}

#[cfg(test)]
mod tests {
    use leasehold_core::{EventState, Kind, Policy, StatusCounts, Timestamp};

    use super::*;

    const SURPLUS: u64 = 10;

    fn version(number: u64) -> Version {
        Version { epoch: Epoch::FIRST, number }
    }

    fn change(number: u64) -> Change {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let (seats, pools) = (Box::default(), Box::default());
        Change {
            version: version(number),
            at,
            kind: Kind::EventUpdated,
            hold: None,
            seats,
            pools,
            reason: None,
        }
    }

    /// A feed with more changes than it keeps.
    fn full() -> (Arc<Feed>, u64) {
        let last = CHANGES_PER_EVENT_MAX as u64 + SURPLUS;
        let summary = |number| EventSummary {
            state: EventState::Open,
            version: version(number),
            counts: StatusCounts::default(),
            pools: Vec::new(),
            policy: Policy::default(),
        };
        let feed = Feed::new(summary(0), Vec::new(), Arc::default());
        feed.publish((1..=last).map(change), summary(last));
        (Arc::new(feed), last)
    }

    #[tokio::test]
    async fn a_reader_behind_what_is_kept_begins_anew_and_one_that_is_not_misses_nothing() {
        let (feed, last) = full();
        assert_eq!(feed.kept.load(Ordering::Relaxed), CHANGES_PER_EVENT_MAX);
        for behind in [0, SURPLUS - 1] {
            let mut reader = feed.subscribe(Since::Version(version(behind)));
            assert!(matches!(reader.next().await, StreamStep::Reset(to) if to == version(last)), "{behind}");
            assert!(matches!(feed.availability(Since::Version(version(behind))), Availability::Full(_)));
        }
        let mut reader = feed.subscribe(Since::Version(version(SURPLUS)));
        let mut read = SURPLUS;
        while read < last {
            let StreamStep::Changes(changes) = reader.next().await else {
                panic!("told to begin anew at {read}")
            };
            for change in changes {
                read += 1;
                assert_eq!(change.version, version(read));
            }
        }
    }
}
