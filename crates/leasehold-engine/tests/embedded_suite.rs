//! The promises of every engine, kept by the embedded one on a real file.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_engine::{EmbeddedEngine, EmbeddedOptions, Engine};
use leasehold_testkit::engine_suite::EngineStore;

struct DataFile(tempfile::TempDir);

#[async_trait]
impl EngineStore for DataFile {
    async fn open(&self) -> Arc<dyn Engine> {
        let options = EmbeddedOptions::new(self.0.path().join("suite.db"));
        Arc::new(EmbeddedEngine::open(options).expect("the file opens"))
    }
}

leasehold_testkit::engine_suite!(async { DataFile(tempfile::tempdir().expect("a folder")) });
