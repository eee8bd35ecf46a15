//! The promises of every engine, kept by the cluster engine on a real PostgreSQL server.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_engine::{ClusterEngine, ClusterOptions, Engine, SecretKey};
use leasehold_testkit::engine_suite::EngineStore;
use leasehold_testkit::servers::Postgres;

struct Ledger {
    server: Postgres,
    key: SecretKey,
}

#[async_trait]
impl EngineStore for Ledger {
    async fn open(&self) -> Arc<dyn Engine> {
        let options = ClusterOptions::new(self.server.url(), self.key.clone());
        Arc::new(ClusterEngine::open(options).await.expect("the ledger opens"))
    }
}

leasehold_testkit::engine_suite!(async { Ledger { server: Postgres::start(), key: SecretKey::random() } });
