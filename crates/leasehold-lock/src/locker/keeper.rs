//! The one task behind all guards of a `Locker`: renews leases, tells holders what they lost, and gives back
//! what was dropped.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::meters::Meters;
use super::registry::{Registry, Release, Turn};
use super::tenure::{LeaseState, Tenure};
use crate::backend::{Backend, Released, Renewed};
use crate::clock::{Clock, Moment};
use crate::error::{LostReason, StoreError};

/// Leases in one call to the store.
const RENEWALS_PER_CALL: usize = 128;
/// Calls for renewal at the same time.
const RENEWAL_CALLS_MAX: usize = 16;
/// One short lease does not make the call for all others in it too short.
const RENEWAL_TIME_MIN: Duration = Duration::from_millis(100);
/// Releases at the same time.
const RELEASES_MAX: usize = 64;
/// A release that takes longer is tried again.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(5);

/// What the keeper works with.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: Clock,
    pub(crate) meters: Meters,
}

/// What a call to the store came to.
enum Done {
    Renewed(Vec<(Arc<Tenure>, Result<Renewed, StoreError>)>, Moment),
    Released(Release, bool),
}

/// Says that there is no keeper any more, also when the runtime drops it.
struct Keeping(Arc<Registry>);

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.end_keeping();
    }
}

impl Keeper {
    /// Starts the task on this runtime. The registry has been told.
    pub(crate) fn start(self) {
        let keeping = Keeping(self.registry.clone());
        tokio::spawn(self.keep(keeping));
    }

    async fn keep(self, _keeping: Keeping) {
        let mut calls = JoinSet::new();
        let (mut renewing, mut releasing) = (0, 0);
        loop {
            let now = self.clock.now();
            let renewals_max = (RENEWAL_CALLS_MAX - renewing) * RENEWALS_PER_CALL;
            let turn = self.registry.turn(now, renewals_max, RELEASES_MAX - releasing);
            if turn.finished {
                return;
            }
            releasing += turn.releases.len();
            renewing += self.begin(&turn, now, &mut calls);
            for release in turn.releases {
                calls.spawn(self.clone().release(release));
            }
            // With all hands full only a finished call helps.
            let pause = turn.next.since(self.clock.now());
            tokio::select! {
                () = self.registry.wake.notified() => {}
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
                Some(done) = calls.join_next(), if !calls.is_empty() => match done {
                    Ok(Done::Renewed(results, sent)) => {
                        renewing -= 1;
                        self.note_renewals(results, sent);
                    }
                    Ok(Done::Released(release, answered)) => {
                        releasing -= 1;
                        self.registry.released(release, self.clock.now(), answered);
                    }
                    Err(ended) => match ended.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        // The runtime is shutting down.
                        Err(_) => return,
                    },
                },
            }
        }
    }

    /// Declares lost what is over and sends for the rest. Returns how many calls it began.
    fn begin(&self, turn: &Turn, now: Moment, calls: &mut JoinSet<Done>) -> usize {
        let mut renew = Vec::new();
        for tenure in &turn.due {
            match tenure.state(now) {
                LeaseState::Lost => self.lose(tenure, tenure.reason_by_clock()),
                LeaseState::Held | LeaseState::Doubtful if tenure.may_be_renewed(now) => {
                    renew.push(tenure.clone());
                }
                LeaseState::Held | LeaseState::Doubtful => {}
            }
        }
        let mut begun = 0;
        for batch in renew.chunks(RENEWALS_PER_CALL) {
            calls.spawn(self.clone().renew(batch.to_vec()));
            begun += 1;
        }
        begun
    }

    async fn renew(self, batch: Vec<Arc<Tenure>>) -> Done {
        let sent = self.clock.now();
        let leases: Vec<_> = batch.iter().map(|tenure| tenure.held.clone()).collect();
        let shortest = leases.iter().map(|lease| lease.ttl.length()).min().unwrap_or_default();
        let time_max = (shortest / 3).max(RENEWAL_TIME_MIN);
        let answers = match tokio::time::timeout(time_max, self.backend.renew(&leases)).await {
            Ok(answers) => answers,
            Err(elapsed) => {
                let unknown = |_| Err(StoreError::Unknown(elapsed.to_string().into()));
                batch.iter().map(unknown).collect()
            }
        };
        Done::Renewed(batch.into_iter().zip(answers).collect(), sent)
    }

    fn note_renewals(&self, results: Vec<(Arc<Tenure>, Result<Renewed, StoreError>)>, sent: Moment) {
        for (tenure, result) in results {
            match result {
                Ok(Renewed::Extended) if tenure.extended(sent, self.clock.now()) => {
                    self.registry.reschedule(&tenure, tenure.renews_at(sent));
                }
                Ok(Renewed::Extended) => self.lose(&tenure, tenure.reason_by_clock()),
                Ok(Renewed::Gone) => self.lose(&tenure, LostReason::Gone),
                Err(error) => {
                    self.meters.renewal_failures.inc();
                    tracing::warn!(
                        names = %tenure.held.names,
                        error = &error as &dyn std::error::Error,
                        "a lease could not be renewed yet"
                    );
                    tenure.doubt();
                    let pause = (tenure.held.ttl.length() / 12).min(Duration::from_secs(1));
                    let again = self.clock.now() + pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                    self.registry.reschedule(&tenure, again.min(tenure.deadline()));
                }
            }
        }
    }

    /// Ends a lease for its holder, unless it was given back meanwhile.
    fn lose(&self, tenure: &Arc<Tenure>, reason: LostReason) {
        // A renewal that crossed the release finds nothing, and that is no loss.
        if self.registry.forget(tenure) && tenure.lose(reason) {
            self.meters.lost(reason);
            tracing::warn!(names = %tenure.held.names, %reason, "lost a lease");
        }
    }

    async fn release(self, release: Release) -> Done {
        let answer = tokio::time::timeout(RELEASE_TIME_MAX, self.backend.release(&release.held)).await;
        if let Ok(Ok(Released::Released)) = answer {
            self.meters.reaped.inc();
        }
        Done::Released(release, matches!(answer, Ok(Ok(_))))
    }
}
