//! The embedded engine against the rules themselves: the same commands, the same answers, also over restarts.
//!
//! A failure prints its seed; `LEASEHOLD_SEED=n` runs that seed alone.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::{State, Timestamp};
use leasehold_engine::{Clock, EmbeddedEngine, EmbeddedOptions, Engine, check_file};
use leasehold_testkit::engine_suite::EngineStore;
use leasehold_testkit::engine_suite::model::{
    Effort, ModelStore, answers_as_the_rules_do_also_after_restarts,
};

/// A file whose engines go by a clock that the test sets.
struct DataFile {
    folder: tempfile::TempDir,
    clock: Clock,
}

#[async_trait]
impl EngineStore for DataFile {
    async fn open(&self) -> Arc<dyn Engine> {
        let options = EmbeddedOptions::new(self.folder.path().join("model.db")).clock(self.clock.clone());
        Arc::new(EmbeddedEngine::open(options).expect("the file opens"))
    }
}

#[async_trait]
impl ModelStore for DataFile {
    fn set_time(&self, at_least: Timestamp) {
        self.clock.set(at_least);
    }

    async fn time(&self) -> Timestamp {
        self.clock.now()
    }

    fn together_max(&self) -> usize {
        5
    }

    async fn judge(&self, model: &State, context: &str) {
        let report = check_file(&self.folder.path().join("model.db")).expect("the file can be checked");
        assert_eq!(report.problems, Vec::<String>::new(), "{context}");
        assert_eq!(report.entries, model.seq(), "{context}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_answers_as_the_rules_do_also_after_restarts() {
    let make = async || DataFile {
        folder: tempfile::tempdir().expect("a folder"),
        clock: Clock::manual(Timestamp::default()),
    };
    answers_as_the_rules_do_also_after_restarts(Effort { seeds: 60, commands: 200 }, make).await;
}
