//! `leasehold demo`: a server with a sample venue, lines to paste, and buyers that make something move.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use leasehold_api::{CreateEvent, LayoutSpec, PolicySpec, PoolSpec, SectionSpec};
use leasehold_client::{Client, Request};
use leasehold_server::ServerConfig;

use crate::crowd::Crowd;
use crate::locks::LockStore;
use crate::serve::Running;
use crate::{logging, signals};

const EVENT: &str = "arena";

/// What `leasehold demo` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold demo
  leasehold demo --crowd 200
  leasehold demo --listen 127.0.0.1:8080 --data ./demo.db")]
pub(crate) struct DemoArgs {
    /// Address and port to listen on, of this machine only
    #[arg(long, default_value = "127.0.0.1:7070", value_name = "ADDRESS")]
    listen: SocketAddr,

    /// Simulated buyers
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2_000))]
    crowd: u32,

    /// Keep the data in this file; forgotten at the end when absent
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// What to log
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    log: String,
}

pub(crate) async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    logging::start(Some(&args.log), None)?;
    if !args.listen.ip().is_loopback() {
        bail!("the demo listens on this machine only; use `leasehold serve` for anything else");
    }
    let folder = tempfile::tempdir()?;
    let data = args.data.clone().unwrap_or_else(|| folder.path().join("demo.db"));
    let stop = signals::stop_on_signal()?;
    let (locks, config) = (LockStore::BesideData, ServerConfig::default());
    let running = Running::start(args.listen, &data, &locks, config, stop.clone())
        .await
        .context("the demo did not start; is another one running? Choose another port with --listen")?;
    let url = format!("http://{}", running.address);
    create_venue(&url).await?;
    print_welcome(&url, args.crowd);
    let crowd = Crowd::start(&url, EVENT, args.crowd, stop.clone());
    running.finished().await;
    crowd.ended().await;
    println!("\nstopped");
    Ok(ExitCode::SUCCESS)
}

/// Four sections and a standing pool. Kept when the data file has it already.
async fn create_venue(url: &str) -> anyhow::Result<()> {
    let section =
        |name: &str, rows, seats_per_row| SectionSpec { name: name.to_owned(), rows, seats_per_row };
    let event = CreateEvent {
        id: EVENT.to_owned(),
        name: Some("A night at the arena".to_owned()),
        layout: Some(LayoutSpec {
            sections: vec![
                section("A", 10, 24),
                section("B", 15, 30),
                section("C", 15, 30),
                section("D", 20, 36),
            ],
        }),
        pools: vec![PoolSpec { id: "floor".to_owned(), capacity: 500 }],
        policy: Some(PolicySpec { hold_ttl_ms: Some(120_000), ..PolicySpec::default() }),
        ..CreateEvent::default()
    };
    let response = Client::new(url).send(Request::post("/v1/events", &event)).await?;
    match response.status {
        201 => Ok(()),
        409 if response.code().as_deref() == Some("event-exists") => Ok(()),
        status => bail!("the venue could not be created: {status} {}", response.code().unwrap_or_default()),
    }
}

fn print_welcome(url: &str, crowd: u32) {
    println!(
        "Leasehold sells \"A night at the arena\" on {url} ({crowd} simulated buyers).

Read the API:         {url}/docs
Watch it sell:        curl -N {url}/v1/events/{EVENT}/stream
How it stands:        curl -s {url}/v1/events/{EVENT}

Hold a seat, two together, and two standing places, for the next two minutes:

  curl -s {url}/v1/events/{EVENT}/holds -H 'content-type: application/json' \\
    -d '{{\"holder\":\"me\",\"items\":[{{\"seat\":\"D-20-36\"}},{{\"best\":{{\"count\":2,\"section\":\"B\"}}}},{{\"pool\":\"floor\",\"quantity\":2}}]}}' | tee hold.json

Buy it. The secret in the answer proves that the hold is yours:

  HOLD=$(sed 's/.*\"hold_id\":\"\\([^\"]*\\)\".*/\\1/' hold.json) SECRET=$(sed 's/.*\"secret\":\"\\([^\"]*\\)\".*/\\1/' hold.json)
  curl -s {url}/v1/holds/$HOLD/confirm -H \"hold-secret: $SECRET\" -H 'content-type: application/json' \\
    -d '{{\"payment_ref\":\"pay-1\"}}'

Take a lock for a minute, and look at it:

  curl -s {url}/v1/locks/nightly-report -H 'content-type: application/json' -d '{{\"ttl_ms\":60000,\"label\":\"me\"}}'
  curl -s {url}/v1/locks/nightly-report

Let 200 users fight for 3 seats, in another terminal:

  cargo run --release -- rush --url {url}

Ctrl-C stops it."
    );
}
