//! Leasehold measured side by side with what it is compared to, in one run on one machine.
//!
//! Absolute figures differ from machine to machine and from hour to hour; ratios of figures taken in
//! turns differ less. Every part ends with the oversell check. `cargo xtask bench` runs all of it.

mod bare;
mod child;
mod cluster;
mod cluster_http;
mod engine;
mod http;
mod load;
mod locks;
mod memory;
mod postgres;
mod sqlite;
mod table;

use std::path::PathBuf;

use anyhow::bail;
use clap::{Parser, Subcommand};

use crate::table::Table;

/// What one thread allocates another frees, for every hold: the system's allocator takes locks for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure Leasehold against its peers.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,

    /// Where the data files go: a real disk, because a commit on a memory file system is not durable
    #[arg(long, global = true, default_value = "target/bench")]
    folder: PathBuf,

    /// Shorter runs, for trying out
    #[arg(long, global = true)]
    quick: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum Part {
    /// Everything
    All,
    /// Over HTTP, beside a bare axum route and PostgreSQL
    Http,
    /// Inside the engine, beside SQLite
    Engine,
    /// A million seats, all held: memory and time to open
    Memory,
    /// The ledger on PostgreSQL and the gate on a Redis Cluster, beside one transaction for each hold
    Cluster,
    /// Locks on Redis, beside raw commands and other libraries
    Locks,
    /// A bare axum server, started by the others
    #[command(hide = true)]
    BareServer,
    /// A Leasehold server, started by the others
    #[command(hide = true)]
    LeaseholdServer {
        /// The data file
        data: PathBuf,
    },
    /// A Leasehold server on a ledger, started by the others
    #[command(hide = true)]
    LeaseholdReplica {
        /// The ledger
        ledger: String,
        /// The gate
        gate: String,
    },
    /// Opens a data file and says how long that took and what it weighs
    #[command(hide = true)]
    OpenFile {
        /// The data file
        data: PathBuf,
    },
}

/// What every part needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) folder: PathBuf,
    pub(crate) quick: bool,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(cli))
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let part = cli.part.unwrap_or(Part::All);
    match &part {
        Part::BareServer => return bare::serve().await,
        Part::LeaseholdServer { data } => return child::serve_leasehold(data).await,
        Part::LeaseholdReplica { ledger, gate } => return child::serve_replica(ledger, gate).await,
        Part::OpenFile { data } => return memory::open_file(data).await,
        Part::All | Part::Http | Part::Engine | Part::Memory | Part::Cluster | Part::Locks => {}
    }
    std::fs::create_dir_all(&cli.folder)?;
    refuse_memory_file_system(&cli.folder)?;
    let bench = Bench { folder: cli.folder, quick: cli.quick };
    let mut table = Table::default();
    if matches!(part, Part::All | Part::Http) {
        http::measure(&bench, &mut table).await?;
    }
    if matches!(part, Part::All | Part::Engine) {
        engine::measure(&bench, &mut table).await?;
    }
    if matches!(part, Part::All | Part::Memory) {
        memory::measure(&bench, &mut table).await?;
    }
    if matches!(part, Part::All | Part::Cluster) {
        cluster::measure(&bench, &mut table).await?;
    }
    if matches!(part, Part::All | Part::Locks) {
        locks::measure(&bench, &mut table).await?;
    }
    println!("\n{table}");
    Ok(())
}

/// A commit there survives nothing, so it would not be a commit.
fn refuse_memory_file_system(folder: &std::path::Path) -> anyhow::Result<()> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(folder)?.f_type;
    if kind == TMPFS || kind == RAMFS {
        bail!("{} is on a memory file system: choose another --folder", folder.display());
    }
    Ok(())
}
