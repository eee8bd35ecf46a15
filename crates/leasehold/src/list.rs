//! `leasehold events`, `leasehold holds` and `leasehold refunds`: what a running server sells, for people at a terminal.

use std::process::ExitCode;

use anyhow::{Context, bail};
use comfy_table::{Table, presets};
use leasehold_api::{EventList, HoldList, ItemView, RefundList};
use leasehold_client::{Client, Request};
use serde::de::DeserializeOwned;

/// Pages that are read at most.
const PAGES_MAX: usize = 1_000;

/// Where the server is, and how to print.
#[derive(Debug, clap::Args)]
struct Asking {
    /// The server
    #[arg(long, env = "LEASEHOLD_URL", default_value = "http://127.0.0.1:7070")]
    url: String,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// What `leasehold events` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold events
  leasehold events --json | jq .seats.sold")]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    asking: Asking,
}

/// What `leasehold holds` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold holds arena
  leasehold holds arena --json | jq -r .holder")]
pub(crate) struct HoldsArgs {
    /// The event
    event: String,

    #[command(flatten)]
    asking: Asking,
}

/// What `leasehold refunds` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold refunds arena
  leasehold refunds arena --json | jq -r .payment_ref")]
pub(crate) struct RefundsArgs {
    /// The event
    event: String,

    #[command(flatten)]
    asking: Asking,
}

pub(crate) async fn events(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let mut client = Client::new(&args.asking.url);
    let mut table = table(["event", "name", "state", "seats", "free", "held", "sold", "blocked", "pools"]);
    let mut path = "/v1/events".to_owned();
    for _ in 0..PAGES_MAX {
        let page: EventList = get(&mut client, &path).await?;
        for event in &page.events {
            if args.asking.json {
                println!("{}", serde_json::to_string(event)?);
                continue;
            }
            let seats = event.seats;
            let pools =
                event.pools.iter().map(|pool| format!("{} {}/{} sold", pool.id, pool.sold, pool.capacity));
            let counts = [seats.total, seats.free, seats.held, seats.sold, seats.blocked]
                .map(|count| count.to_string());
            let mut row = vec![event.id.clone(), event.name.clone(), event.state.clone()];
            row.extend(counts);
            row.push(pools.collect::<Vec<_>>().join("\n"));
            table.add_row(row);
        }
        let Some(next) = page.next else { break };
        path = format!("/v1/events?after={next}");
    }
    if !args.asking.json {
        println!("{table}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn holds(args: HoldsArgs) -> anyhow::Result<ExitCode> {
    let mut client = Client::new(&args.asking.url);
    let mut table = table(["hold", "state", "holder", "items", "ends in"]);
    let base = format!("/v1/events/{}/holds?limit=1000", args.event);
    let mut path = base.clone();
    for _ in 0..PAGES_MAX {
        let page: HoldList = get(&mut client, &path).await?;
        for hold in &page.holds {
            if args.asking.json {
                println!("{}", serde_json::to_string(hold)?);
                continue;
            }
            let items = hold.items.iter().map(item).collect::<Vec<_>>().join(", ");
            let left = format!("{} s", hold.expires_in_ms / 1_000);
            let holder = hold.holder.clone().unwrap_or_else(|| "-".to_owned());
            table.add_row([hold.hold_id.clone(), hold.state.clone(), holder, items, left]);
        }
        let Some(next) = page.next else { break };
        path = format!("{base}&after={next}");
    }
    if !args.asking.json {
        println!("{table}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn refunds(args: RefundsArgs) -> anyhow::Result<ExitCode> {
    let mut client = Client::new(&args.asking.url);
    let mut table = table(["payment", "hold", "holder"]);
    let base = format!("/v1/events/{}/refunds?limit=1000", args.event);
    let mut path = base.clone();
    for _ in 0..PAGES_MAX {
        let page: RefundList = get(&mut client, &path).await?;
        for refund in page.refunds {
            if args.asking.json {
                println!("{}", serde_json::to_string(&refund)?);
                continue;
            }
            let holder = refund.holder.unwrap_or_else(|| "-".to_owned());
            table.add_row([refund.payment_ref, refund.hold_id, holder]);
        }
        let Some(next) = page.next else { break };
        path = format!("{base}&after={next}");
    }
    if !args.asking.json {
        println!("{table}");
    }
    Ok(ExitCode::SUCCESS)
}

fn item(item: &ItemView) -> String {
    match (&item.seat, &item.pool) {
        (Some(seat), _) => format!("{seat} (fence {})", item.fence.unwrap_or_default()),
        (None, Some(pool)) => format!("{} x {pool}", item.quantity.unwrap_or_default()),
        (None, None) => "?".to_owned(),
    }
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

async fn get<T: DeserializeOwned>(client: &mut Client, path: &str) -> anyhow::Result<T> {
    let response = client.send(Request::get(path)).await?;
    if response.status != 200 {
        bail!("the server says {} {}", response.status, response.code().unwrap_or_default());
    }
    response.json().context("the server's answer is not what this program knows")
}
