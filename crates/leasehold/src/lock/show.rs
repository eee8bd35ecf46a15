//! Locks as people see them: a table, or the story of one.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use leasehold_lock::backend::ListQuery;
use leasehold_lock::{Busy, Fence, LeaseView, LockName, Locker};

use crate::lock_store::{self, Failure, StoreArgs};

/// Pages that are read at most.
const PAGES_MAX: usize = 10_000;
const PAGE_LENGTH: usize = 1_000;

/// What `leasehold lock ls` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold lock ls
  leasehold lock ls --prefix invoices: --json | jq -r .name")]
pub(super) struct LsArgs {
    /// Only names that begin with this
    #[arg(long, default_value = "", value_name = "TEXT")]
    prefix: String,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// What `leasehold lock why` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold lock why nightly
  leasehold lock why nightly --json")]
pub(super) struct WhyArgs {
    /// What is locked
    #[arg(value_parser = lock_store::name)]
    name: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn ls(args: &LsArgs) -> Result<ExitCode, Failure> {
    let locker = args.store.open()?;
    let mut leases: BTreeMap<LockName, LeaseView> = BTreeMap::new();
    let mut query = ListQuery { prefix: args.prefix.clone(), cursor: None, limit: PAGE_LENGTH };
    for _ in 0..PAGES_MAX {
        let page = locker.list(&query).await?;
        // A lease may be listed twice.
        leases.extend(page.leases.into_iter().map(|lease| (lease.name.clone(), lease)));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if args.json {
        leases.values().for_each(|lease| println!("{}", document(lease)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["name", "label", "age", "remaining", "fence", "waiters"]);
    for lease in leases.values() {
        table.add_row([
            lease.name.to_string(),
            lease.label.clone().unwrap_or_else(|| "-".to_owned()),
            lease.age.map_or_else(|| "-".to_owned(), seconds),
            lease.remaining.map_or_else(|| "no end".to_owned(), seconds),
            lease.fence.map_or_else(|| "-".to_owned(), |Fence(fence)| fence.to_string()),
            lease.waiters.map_or_else(|| "-".to_owned(), |waiters| waiters.to_string()),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn why(args: &WhyArgs) -> Result<ExitCode, Failure> {
    let locker = args.store.open()?;
    let name = LockName::parse(&args.name).map_err(anyhow::Error::from)?;
    let lease = locker.inspect(&name).await?;
    let guarantees = locker.guarantees();
    if args.json {
        let document = serde_json::json!({
            "held": lease.is_some(),
            "lease": lease.as_ref().map(document),
            "store": locker.store(),
            "guarantee": guarantees.level.as_str(),
            "because": guarantees.because,
        });
        println!("{document}");
        return Ok(ExitCode::SUCCESS);
    }
    match &lease {
        Some(lease) => tell(lease, &locker, args),
        None => println!("`{name}` is free."),
    }
    println!(
        "\nThe store ({}) grants `{}`: {}",
        locker.store(),
        guarantees.level.as_str(),
        guarantees.because
    );
    Ok(ExitCode::SUCCESS)
}

fn tell(lease: &LeaseView, locker: &Locker, args: &WhyArgs) {
    let name = &lease.name;
    let holder = lease.label.as_deref().unwrap_or("a holder that left no label");
    println!("`{name}` is held by {holder}.");
    if let Some(age) = lease.age {
        println!("  since    {} ago", seconds(age));
    }
    match lease.remaining {
        Some(remaining) => println!("  until    {} from now, unless it is renewed", seconds(remaining)),
        None => println!("  until    somebody deletes it: it has no end"),
    }
    if let Some(Fence(fence)) = lease.fence {
        println!("  fence    {fence}");
    }
    if let Some(waiters) = lease.waiters {
        println!("  waiting  {waiters} in line");
    }
    println!("\nWhat you can do:");
    println!("  wait for it          leasehold run --lock {name} --wait 5m -- ...");
    println!("  end it as its owner  leasehold lock release {name}, with its token in LEASEHOLD_OWNER");
    match lease.remaining {
        Some(_) => println!("  stop its holder      then it ends by itself in the time above at most"),
        None => {
            let prefix = args.store.key_prefix.as_deref().unwrap_or(leasehold_lock::PREFIX_DEFAULT);
            println!("  delete it by hand    the {} key {prefix}{name}, if nobody uses it", locker.store());
        }
    }
}

fn document(lease: &LeaseView) -> serde_json::Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    serde_json::json!({
        "name": lease.name.as_str(),
        "label": lease.label,
        "age_ms": lease.age.map(millis),
        "remaining_ms": lease.remaining.map(millis),
        "fence": lease.fence.map(|Fence(fence)| fence),
        "waiters": lease.waiters,
    })
}

/// Who is in the way, as far as the store tells.
pub(crate) fn busy(busy: &Busy) -> String {
    let until = busy.remaining.map(|left| format!(", for {} more unless it is renewed", seconds(left)));
    format!("`{}` is held by somebody else{}", busy.name, until.unwrap_or_default())
}

/// A length of time for people.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
