//! `leasehold demo`: a server with a sample venue, pages to look at, and buyers that make something move.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_api::{CreateEvent, EventView, LayoutSpec, PolicySpec, PoolSpec, SectionSpec};
use leasehold_client::{Client, Request};
use leasehold_server::{Checkout, Rush, ServerConfig};
use tokio_util::sync::CancellationToken;

use crate::crowd::Crowd;
use crate::locks::LockStore;
use crate::rush::{self, Audience, RushArgs, Target};
use crate::serve::Running;
use crate::settings::Store;
use crate::{demo_cluster, logging, signals};

const EVENT: &str = "arena";
/// How long a rush from the console goes on: long enough to be one, short enough to be waited for.
const RUSH_TIME: Duration = Duration::from_secs(5);
/// People on the floor.
const STANDING: u32 = 600;
/// From the floor to the roof. About 5,000 seats in all.
const TIERS: [Tier; 3] = [
    Tier { first: 101, sections: 12, rows: 10, seats_per_row: 14 },
    Tier { first: 201, sections: 16, rows: 9, seats_per_row: 14 },
    Tier { first: 301, sections: 20, rows: 5, seats_per_row: 14 },
];

/// Sections of one shape around the floor.
struct Tier {
    /// The number of its first section; the others follow.
    first: u32,
    sections: u32,
    rows: u32,
    seats_per_row: u32,
}

/// What `leasehold demo` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold demo
  leasehold demo --crowd 200
  leasehold demo --listen 127.0.0.1:8080 --data ./demo.db
  leasehold demo --cluster")]
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

    /// Three replicas of the server behind the address, on PostgreSQL and a Redis Cluster of six servers, all on this
    /// machine; needs the packages redis-server and postgresql
    #[arg(long, conflicts_with = "data")]
    cluster: bool,

    /// What to log
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    log: String,
}

pub(crate) async fn demo(args: DemoArgs) -> anyhow::Result<ExitCode> {
    logging::start(Some(&args.log), None)?;
    if !args.listen.ip().is_loopback() {
        bail!("the demo listens on this machine only; use `leasehold serve` for anything else");
    }
    let stop = signals::stop_on_signal()?;
    if args.cluster {
        return demo_cluster::run(args.listen, args.crowd, &args.log, stop).await;
    }
    alone(&args, stop).await
}

/// One server, in this process.
async fn alone(args: &DemoArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let folder = tempfile::tempdir()?;
    let data = args.data.clone().unwrap_or_else(|| folder.path().join("demo.db"));
    // The rush goes to the server it is started from, whose address is known when it listens.
    let address = Arc::new(OnceLock::new());
    let config = config({
        let address = Arc::clone(&address);
        move || address.get().copied()
    });
    let locks = LockStore::BesideData;
    let running = Running::start(args.listen, &Store::File(data), &locks, config, stop.clone())
        .await
        .context("the demo did not start; is another one running? Choose another port with --listen")?;
    address.get_or_init(|| running.address);
    let url = format!("http://{}", running.address);
    let event = open_venue(&url).await?;
    print_welcome(&url, args.crowd);
    let crowd = Crowd::start(&url, &event, args.crowd, &stop);
    running.finished().await;
    crowd.ended().await;
    println!("\nstopped");
    Ok(ExitCode::SUCCESS)
}

/// What a demonstration's server has beside any other's: a stand-in for a payment service, and a rush to start.
pub(crate) fn config(address: impl Fn() -> Option<SocketAddr> + Send + Sync + 'static) -> ServerConfig {
    let rush = Rush::new(move || Box::pin(rush_against(address())));
    ServerConfig { checkout: Checkout::StandIn, rush: Some(rush), ..ServerConfig::default() }
}

/// Two hundred users, three seats, and the report as the console draws it.
async fn rush_against(address: Option<SocketAddr>) -> Result<serde_json::Value, String> {
    let address = address.ok_or("the server does not listen yet")?;
    let args = RushArgs::published(RUSH_TIME);
    let report = rush::rush(&args, &Target::from(address), Audience::Nobody).await;
    let report = report.map_err(|error| format!("{error:#}"))?;
    let report = serde_json::to_value(&report).map_err(|error| error.to_string())?;
    // Nobody shall come to a sale that is over. Without this the report is as good.
    let event = format!("/v1/events/{}", report["setup"]["event"].as_str().unwrap_or_default());
    let close = Request::patch(event, &serde_json::json!({"state": "closed"}));
    let _ = Client::new(&address.to_string()).send(close).await;
    Ok(report)
}

/// An arena of three tiers around a standing floor. Kept when the data file has it already.
pub(crate) async fn open_venue(url: &str) -> anyhow::Result<EventView> {
    let event = CreateEvent {
        id: EVENT.to_owned(),
        name: Some("A night at the arena".to_owned()),
        layout: Some(LayoutSpec { sections: TIERS.iter().flat_map(Tier::sections).collect() }),
        pools: vec![PoolSpec { id: "floor".to_owned(), capacity: STANDING }],
        policy: Some(PolicySpec {
            hold_ttl_ms: Some(120_000),
            hold_total_max_ms: Some(600_000),
            payment_max_ms: Some(60_000),
            units_per_holder_max: Some(10),
            ..PolicySpec::default()
        }),
        ..CreateEvent::default()
    };
    let mut client = Client::new(url);
    let response = client.send(Request::post("/v1/events", &event)).await?;
    match response.status {
        201 => {}
        409 if response.code().as_deref() == Some("event-exists") => {}
        status => bail!("the venue could not be created: {status} {}", response.code().unwrap_or_default()),
    }
    let event = client.send(Request::get(format!("/v1/events/{EVENT}"))).await?;
    event.json().context("the venue could not be read")
}

impl Tier {
    fn sections(&self) -> impl Iterator<Item = SectionSpec> {
        // From the middle, opposite the stage, outwards: the best seats are looked for in this order.
        let outwards = (0..self.sections).map(|step| match step % 2 {
            0 => self.sections / 2 + step / 2,
            _ => self.sections / 2 - 1 - step / 2,
        });
        outwards.map(|place| SectionSpec {
            name: (self.first + place).to_string(),
            rows: self.rows,
            seats_per_row: self.seats_per_row,
        })
    }
}

pub(crate) fn print_welcome(url: &str, crowd: u32) {
    println!(
        "Leasehold sells \"A night at the arena\" on {url} ({crowd} simulated buyers).

Open in a browser:    {url}
Buy a ticket:         {url}/events/{EVENT}
Run the sale:         {url}/console
Read the API:         {url}/docs
Watch it sell:        curl -N {url}/v1/events/{EVENT}/stream

Hold a seat, two together, and two standing places, for the next two minutes:

  curl -s {url}/v1/events/{EVENT}/holds -H 'content-type: application/json' \\
    -d '{{\"holder\":\"me\",\"items\":[{{\"seat\":\"301-5-14\"}},{{\"best\":{{\"count\":2,\"section\":\"106\"}}}},{{\"pool\":\"floor\",\"quantity\":2}}]}}' | tee hold.json

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_arena_has_about_five_thousand_seats_and_every_section_once() {
        let sections: Vec<SectionSpec> = TIERS.iter().flat_map(Tier::sections).collect();
        let seats: u32 = sections.iter().map(|section| section.rows * section.seats_per_row).sum();
        assert!((4_500..=5_500).contains(&seats), "{seats}");
        let names: BTreeSet<&str> = sections.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names.len(), sections.len());
        assert_eq!((names.first(), names.last()), (Some(&"101"), Some(&"320")));
        assert_eq!(sections[0].name, "107", "the middle of the first tier is offered first");
    }
}
