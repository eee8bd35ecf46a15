//! What a store's grants are really worth where it runs: reads its settings and explains them.
//!
//! Nothing here changes a store, and nothing here is needed to lock.
//!
//! ```no_run
//! # async fn look() -> Result<(), leasehold_lock::OpenError> {
//! let report = leasehold_lock::doctor::examine("redis://cache:6379", &Default::default()).await?;
//! for finding in &report.findings {
//!     println!("{}: {} ({})", finding.level.as_str(), finding.text, finding.place);
//! }
//! println!("{}", report.verdict);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "redis")]
mod cluster_view;
mod file_system;
#[cfg(feature = "redis")]
mod gate;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis_server;
#[cfg(feature = "redis")]
mod redis_servers;
#[cfg(feature = "redis")]
mod replicas;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod secrecy;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use file_system::is_on_network;
#[cfg(feature = "redis")]
pub use gate::examine_gate;

use crate::lease::Guarantee;
use crate::store::{OpenError, StoreOptions, open};

/// What was found out about a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which kind of store.
    pub store: &'static str,
    /// One by one.
    pub findings: Vec<Finding>,
    /// Whether enough of the store answered to be used at all.
    pub is_reachable: bool,
    /// What its grants are worth, all things considered.
    pub guarantee: Guarantee,
    /// The same in a sentence or two.
    pub verdict: String,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at, in a word that does not change: `eviction`, `persistence`.
    pub topic: &'static str,
    /// Where: an address or a file. Never a password.
    pub place: String,
    /// What is there, why it matters, and what to do.
    pub text: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// The guarantee holds under an assumption that this puts weight on.
    Warning,
    /// The guarantee does not hold, or the store cannot be used.
    Problem,
}

impl Level {
    /// The level in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// Looks at the store that a URL names, as [`open`] would open it.
pub async fn examine(url: &str, options: &StoreOptions) -> Result<Report, OpenError> {
    // In a box, as it is deep: the compiler's limit is for the futures of whoever awaits it.
    Box::pin(report(url, options)).await
}

async fn report(url: &str, options: &StoreOptions) -> Result<Report, OpenError> {
    let mut chart = Chart::default();
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if scheme == "sqlite" {
        #[cfg(feature = "sqlite")]
        sqlite::examine(url, &mut chart);
        #[cfg(not(feature = "sqlite"))]
        return Err(OpenError::NotBuiltIn("sqlite"));
    } else {
        // Opening connects nothing, and says what is wrong with the URL.
        open(url, options)?;
        #[cfg(feature = "redis")]
        match scheme {
            "redlock" | "redlocks" => redis_servers::examine_redlock(url, options, &mut chart).await,
            "memory" | "postgres" | "postgresql" => {}
            _ => redis_servers::examine(url, options, &mut chart).await,
        }
        #[cfg(feature = "postgres")]
        if scheme.starts_with("postgres") {
            postgres::examine(url, postgres::Use::Leases, &mut chart).await;
        } else if let Some(epochs) = &options.epochs {
            postgres::examine(epochs, postgres::Use::Epochs, &mut chart).await;
        }
    }
    if scheme == "memory" {
        chart.ok("store", "memory:", "one process's own memory: one owner at a time within it, and no other");
    }
    let is_redis = scheme.starts_with("redis") || scheme.starts_with("valkey");
    let has_epochs = options.epochs.is_some() && is_redis;
    let (store, granted) = match scheme {
        "sqlite" => ("sqlite", Guarantee::Fenced),
        "memory" => ("memory", Guarantee::Fenced),
        "redlock" | "redlocks" => ("redlock", Guarantee::Fenced),
        "postgres" | "postgresql" => ("postgres", Guarantee::Fenced),
        _ if has_epochs => ("redis", Guarantee::Fenced),
        _ => ("redis", Guarantee::Lease),
    };
    Ok(chart.report(store, granted, has_epochs))
}

/// Findings as they are made.
#[derive(Debug, Default)]
struct Chart {
    findings: Vec<Finding>,
    is_unreachable: bool,
}

impl Chart {
    fn ok(&mut self, topic: &'static str, place: &str, text: impl Into<String>) {
        self.note(Level::Ok, topic, place, text.into());
    }

    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    fn warn(&mut self, topic: &'static str, place: &str, text: impl Into<String>) {
        self.note(Level::Warning, topic, place, text.into());
    }

    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    fn problem(&mut self, topic: &'static str, place: &str, text: impl Into<String>) {
        self.note(Level::Problem, topic, place, text.into());
    }

    fn note(&mut self, level: Level, topic: &'static str, place: &str, text: String) {
        self.findings.push(Finding { level, topic, place: place.to_owned(), text });
    }

    fn report(self, store: &'static str, granted: Guarantee, has_epochs: bool) -> Report {
        let problem = |finding: &&Finding| finding.level == Level::Problem;
        let problems = self.findings.iter().filter(problem).count();
        // With epochs, whatever happens to Redis, fences only grow; what they rest on is PostgreSQL.
        let spoils = |finding: &Finding| {
            finding.level == Level::Problem && (!has_epochs || finding.topic.starts_with("epochs"))
        };
        let is_spoiled = self.findings.iter().any(spoils);
        let guarantee = if is_spoiled { Guarantee::BestEffort } else { granted };
        let name = granted.as_str();
        let verdict = if self.is_unreachable {
            format!("Too little of the store answers to grant anything; when it does, it grants `{name}`.")
        } else if is_spoiled {
            format!(
                "The store says `{name}`, but with the problems above treat it as `best-effort`: two owners at a \
                 time are possible without anybody noticing. It saves work; it does not protect data."
            )
        } else if problems > 0 {
            format!(
                "The store grants `{name}`: fences only grow. With the problems above two owners at a time are \
                 likely after a fault, so every write must be checked against its fence."
            )
        } else {
            let what = match granted {
                Guarantee::Fenced => "a resource that refuses lower fences is safe from late holders",
                Guarantee::Lease => {
                    "one owner at a time until a server fails over, forgets or has its clock set"
                }
                Guarantee::BestEffort => "two owners at a time are possible",
            };
            let warned = self.findings.iter().any(|finding| finding.level == Level::Warning);
            let but = if warned { ", under the conditions that the warnings name" } else { "" };
            format!("The store grants `{name}`{but}: {what}.")
        };
        Report { store, findings: self.findings, is_reachable: !self.is_unreachable, guarantee, verdict }
    }
}
