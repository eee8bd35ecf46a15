//! `leasehold serve`: the server, on a data file of its own or on a ledger that servers share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leasehold_engine::{ClusterEngine, ClusterOptions, EmbeddedEngine, EmbeddedOptions, Engine};
use leasehold_lock::Locker;
use leasehold_lock::link::Link;
use leasehold_server::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::locks::LockStore;
use crate::settings::{Settings, Store};
use crate::{logging, signals};

/// What the process ends with when a commit failed.
const COMMIT_FAILED: i32 = 74;
/// How long to wait at the end for locks to be given back that nobody came to hold.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);

/// What `leasehold serve` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold serve
  leasehold serve --listen 127.0.0.1:8080 --data /var/lib/leasehold/shop.db
  leasehold serve --locks redis://127.0.0.1:6379
  leasehold serve --ledger postgres://shop@db/shop --secret-key-file /etc/leasehold.key
  leasehold serve --ledger postgres://shop@db/shop --gate redis-cluster://a:6379,b:6379,c:6379
  LEASEHOLD_EVENT_RATE=500:2000 leasehold serve --config leasehold.toml

Every flag has a LEASEHOLD_* variable and a key in the configuration file, in this order of precedence.")]
pub(crate) struct ServeArgs {
    /// A TOML file with settings: the flags' names with underscores
    #[arg(long, env = "LEASEHOLD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// A server that runs in this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    engine: Arc<dyn Engine>,
    locker: Locker,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

pub(crate) async fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings.or_from(args.config.as_deref())?;
    logging::start(settings.log.as_deref(), settings.log_format)?;
    let stop = signals::stop_on_signal()?;
    let (store, locks) = (settings.store()?, settings.lock_store()?);
    let running = Running::start(settings.listen()?, &store, &locks, settings.server()?, stop).await?;
    tracing::info!(address = %running.address, "listening");
    running.finished().await;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

impl Running {
    /// Opens the store, then binds the address, and serves until `stop` is cancelled.
    ///
    /// Nobody can connect before it is open: a connection that is not answered tells a probe less than none.
    pub(crate) async fn start(
        listen: SocketAddr,
        store: &Store,
        locks: &LockStore,
        config: ServerConfig,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        raise_descriptor_limit();
        let engine = open(store, listen).await?;
        // After the store, which shows that no other server is on the same file.
        let beside = match store {
            Store::File(data) => data.as_path(),
            Store::Ledger { .. } => Path::new("ledger"),
        };
        let locker = locks.open(beside)?;
        let gate = match store {
            Store::Ledger { gate: Some(gate), .. } => Some(Arc::new(Link::open(gate).context("--gate")?)),
            Store::Ledger { gate: None, .. } | Store::File(_) => None,
        };
        let config = ServerConfig { gate, ..config };
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let server =
            leasehold_server::serve(listener, Arc::clone(&engine), locker.clone(), config, stop.clone());
        let server = tokio::spawn(server);
        Ok(Self { address, engine, locker, stop, server })
    }

    /// A server on a free port of this machine, with this data file.
    pub(crate) async fn start_private(data: &Path) -> anyhow::Result<Self> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig::default();
        let store = Store::File(data.to_owned());
        Self::start(listen, &store, &LockStore::BesideData, config, CancellationToken::new()).await
    }

    /// Waits until the server was asked to stop and has stopped.
    pub(crate) async fn finished(self) {
        if let Err(error) = self.server.await {
            tracing::error!(%error, "the server ended badly");
        }
        self.locker.settle(SETTLE_TIME_MAX).await;
        self.engine.close().await;
    }

    /// Stops the server and waits.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.finished().await;
    }
}

/// The engine on this store: the one place that chooses it.
async fn open(store: &Store, listen: SocketAddr) -> anyhow::Result<Arc<dyn Engine>> {
    match store {
        Store::File(data) => {
            let options = EmbeddedOptions::new(data).on_fatal(|message| {
                eprintln!("leasehold: {message}");
                std::process::exit(COMMIT_FAILED);
            });
            Ok(Arc::new(EmbeddedEngine::open(options)?))
        }
        Store::Ledger { url, key, gate } => {
            let mut options = ClusterOptions::new(url, key.clone()).listens_on(listen.to_string());
            if let Some(gate) = gate {
                options = options.gate(gate);
            }
            Ok(Arc::new(ClusterEngine::open(options).await.context("--ledger")?))
        }
    }
}

/// A connection is a descriptor; the soft limit of many systems is lower than what the server can serve.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
}
