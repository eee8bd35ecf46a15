//! Who sweeps: one server at a time, by a lease in the ledger's own database.
//!
//! The lease says who should sweep, and its fence, which goes along with every sweep, who may: a server that stood still
//! while its lease passed on changes nothing when it wakes. Where no leases can be had, every server sweeps.

use std::sync::Arc;
use std::time::Duration;

use leasehold_lock::{
    Acquired, Guard, LockError, LockName, Locker, Names, Owner, Postgres, PostgresDatabase, Settings,
};
use tokio::time::Instant;

use super::connection::with_reasons;

/// How long a sweeper that was killed keeps the others from sweeping.
const TERM: Duration = Duration::from_secs(3);
/// How often a server asks whether it is its turn.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The same where the ledger's database has no leases for it.
const ASK_REFUSED_EVERY: Duration = Duration::from_secs(30);
/// How long the lease's end may take when the server stops. It ends by itself, too.
const RESIGN_TIME_MAX: Duration = Duration::from_secs(1);

/// By what right a server sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mandate {
    /// It was elected; the ledger checks this.
    Fence(i64),
    /// No leases can be had, or their fences began anew.
    Unelected,
}

impl Mandate {
    pub(crate) fn fence(self) -> Option<i64> {
        match self {
            Self::Fence(fence) => Some(fence),
            Self::Unelected => None,
        }
    }
}

/// See this module's documentation.
#[derive(Debug)]
pub(crate) struct Election {
    database: PostgresDatabase,
    candidate: Candidate,
    elected: Option<Elected>,
    /// The database has no leases for this server.
    refused: bool,
    ask_at: Instant,
}

/// This server until it is elected, and while it is.
#[derive(Debug)]
struct Candidate {
    locker: Locker,
    owner: Owner,
    names: Names,
}

#[derive(Debug)]
struct Elected {
    guard: Guard,
    mandate: Mandate,
}

impl Candidate {
    fn new(database: &PostgresDatabase) -> Self {
        let settings = Settings::default();
        let owner = Owner::random(settings.label.as_ref());
        let leases = Postgres::new(database.clone().named("leasehold sweeper"));
        let name = LockName::reserved("leasehold:sweeper").expect("it is short and printable");
        Self { locker: Locker::with_settings(Arc::new(leases), settings), owner, names: name.into() }
    }
}

impl Election {
    pub(crate) fn new(database: &PostgresDatabase) -> Self {
        Self {
            database: database.clone(),
            candidate: Candidate::new(database),
            elected: None,
            refused: false,
            ask_at: Instant::now(),
        }
    }

    /// By what right this server sweeps now; none when it is another server's turn, or nobody knows whose.
    pub(crate) async fn mandate(&mut self) -> Option<Mandate> {
        if let Some(elected) = &self.elected {
            if elected.guard.check().is_ok() {
                return Some(elected.mandate);
            }
            tracing::info!("this server does not sweep the ledger any more");
            self.elected = None;
            // The next lease is another acquisition. Its connections go with it.
            self.candidate = Candidate::new(&self.database);
        }
        if Instant::now() >= self.ask_at {
            self.ask().await;
        }
        match &self.elected {
            Some(elected) => Some(elected.mandate),
            None => self.refused.then_some(Mandate::Unelected),
        }
    }

    async fn ask(&mut self) {
        let Candidate { locker, owner, names } = &self.candidate;
        let asked = locker.acquire(names.clone()).owner(owner.clone()).ttl(TERM).no_wait().await;
        self.ask_at = Instant::now() + ASK_EVERY;
        match asked {
            Ok(Acquired::Granted(guard)) => {
                let fence = guard.fence().map(|fence| Mandate::Fence(fence.0.cast_signed()));
                let mandate = fence.unwrap_or(Mandate::Unelected);
                tracing::info!(?mandate, "this server sweeps the ledger");
                self.elected = Some(Elected { guard, mandate });
                self.refused = false;
            }
            Ok(Acquired::Busy(_)) => self.refused = false,
            Err(error @ LockError::Refused { .. }) => {
                if !std::mem::replace(&mut self.refused, true) {
                    let error = with_reasons(&error);
                    tracing::warn!(
                        error,
                        "no lease for the sweeper of the ledger can be had: every server sweeps"
                    );
                }
                self.ask_at = Instant::now() + ASK_REFUSED_EVERY;
            }
            // The ledger is away, which is told of elsewhere.
            Err(error) => tracing::debug!(error = with_reasons(&error), "nobody knows who sweeps the ledger"),
        }
    }

    /// The ledger knows a higher fence than this server's. Its lease has passed on; or, if that is not so, the fences of
    /// leases began anew, as they do when the ledger's schema alone is restored elsewhere.
    pub(crate) fn was_outranked(&mut self) {
        if let Some(elected) = &mut self.elected
            && elected.guard.check().is_ok()
        {
            tracing::warn!("the fences of leases began anew: the ledger is swept without one");
            elected.mandate = Mandate::Unelected;
        }
    }

    /// Lets another server sweep at once.
    pub(crate) async fn resign(self) {
        if let Some(elected) = self.elected {
            // What is not answered by then is tried again in the background.
            let _ = tokio::time::timeout(RESIGN_TIME_MAX, elected.guard.release()).await;
        }
    }
}
