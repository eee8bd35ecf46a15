//! A replica of the demonstration: a server like any other, with the demonstration's pages, in a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_client::{Client, Request};
use leasehold_server::ServerConfig;
use rustix::process::Signal;

use super::child::{Child, tied_to_us};
use super::ports;
use crate::serve::Running;
use crate::settings::Settings;
use crate::{demo, logging, signals};

/// What the demonstration tells a replica; the ledger and the gate come as variables.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplicaArgs {
    #[command(flatten)]
    settings: Settings,

    /// The one address of all replicas
    #[arg(long)]
    front: SocketAddr,
}

/// `leasehold __replica`.
pub(crate) async fn serve(args: ReplicaArgs) -> anyhow::Result<ExitCode> {
    let settings = args.settings;
    logging::start(settings.log.as_deref(), settings.log_format)?;
    let stop = signals::stop_on_signal()?;
    let (store, locks) = (settings.store()?, settings.lock_store()?);
    let listen = settings.listen()?;
    let config = ServerConfig { console_at: Some(listen), ..demo::config(move || Some(args.front)) };
    Running::start(listen, &store, &locks, config, stop).await?.finished().await;
    Ok(ExitCode::SUCCESS)
}

/// What all replicas have in common.
pub(super) struct Common<'a> {
    pub(super) ledger: String,
    pub(super) gate: String,
    pub(super) key: String,
    pub(super) front: SocketAddr,
    pub(super) log: &'a str,
    pub(super) folder: &'a Path,
}

/// A running replica.
pub(super) struct Replica {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Replica {
    /// Starts one; several may be started before the first is ready.
    pub(super) fn start(common: &Common<'_>) -> anyhow::Result<Self> {
        let [port] = ports::free()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut command = tied_to_us(Path::new("/proc/self/exe"), None);
        command.args(["__replica", "--listen", &address.to_string(), "--front", &common.front.to_string()]);
        command.args(["--log", common.log]);
        // What is set for the user's own servers is not for these.
        let settings =
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_"));
        settings.for_each(|(name, _)| {
            command.env_remove(name);
        });
        command.env("LEASEHOLD_LEDGER", &common.ledger).env("LEASEHOLD_GATE", &common.gate);
        command.env("LEASEHOLD_SECRET_KEY", &common.key);
        let log = common.folder.join(format!("replica-{port}.log"));
        Ok(Self { child: Child::start("a replica", command, log)?, address })
    }

    pub(super) async fn ready(&mut self) -> anyhow::Result<()> {
        let mut client = Client::new(&self.address.to_string()).with_timeout(Duration::from_secs(1));
        let is_ready =
            async || client.send(Request::get("/readyz")).await.is_ok_and(|answer| answer.status == 200);
        self.child.ready(is_ready).await
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets it finish what it has begun, and ends it.
    pub(super) async fn stop(self) {
        self.child.stop(Signal::TERM).await;
    }
}
