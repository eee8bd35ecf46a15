//! A million seats, all held: what that weighs, and how long it takes to open the file.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use leasehold_engine::{EmbeddedEngine, EmbeddedOptions, Engine, check_file};

use crate::Bench;
use crate::engine::{hold, open};
use crate::table::{Aim, Table};

const SEATS: u32 = 1_000_000;
const CALLERS: u32 = 512;
const CATCH_UP_TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) async fn measure(bench: &Bench, table: &mut Table) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let path = folder.path().join("million.db");
    let (engine, venue) = open(&path, SEATS).await?;
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (engine, venue) = (Arc::clone(&engine), Arc::clone(&venue));
        callers.push(tokio::spawn(async move {
            for seat in (caller..SEATS).step_by(CALLERS as usize) {
                engine.execute(hold(&venue, seat, 12 * 60 * 60 * 1_000)).await?;
            }
            Ok::<_, anyhow::Error>(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    // The tables catch up by themselves.
    let begun = Instant::now();
    while engine.meters().tables_behind.get() > 0 {
        ensure!(begun.elapsed() < CATCH_UP_TIME_MAX, "the tables did not catch up");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    engine.close().await;
    drop(engine);
    // A process of its own, because this one's memory holds the load as well.
    let output = Command::new(std::env::current_exe()?).arg("open-file").arg(&path).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let mut figures = text.split_whitespace().map(str::parse::<f64>);
    let mut figure = || figures.next().context("two figures")?.context("a figure");
    let (seconds, megabytes) = (figure()?, figure()?);
    let report = check_file(&path)?;
    ensure!(report.problems.is_empty() && report.holds == SEATS as usize, "the oversell check: {report:?}");
    table.figure("1,000,000 seats, all held: resident memory", megabytes, "MB", Aim::AtMost(400.0));
    table.figure("1,000,000 seats, all held: time to open", seconds, "s", Aim::AtMost(3.0));
    Ok(())
}

/// Opens a file; prints the seconds that took and the megabytes this process has resident.
pub(crate) async fn open_file(path: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    let engine = EmbeddedEngine::open(EmbeddedOptions::new(path))?;
    let seconds = begun.elapsed().as_secs_f64();
    let venue = engine.venue("bench").await?.context("the event is there")?;
    let held = engine.event(&venue).await?.counts.held;
    ensure!(held == SEATS, "{held} seats are held");
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: f64 = kilobytes.context("a resident size")?.trim().trim_end_matches(" kB").parse()?;
    println!("{seconds} {}", kilobytes / 1_024.0);
    engine.close().await;
    Ok(())
}
