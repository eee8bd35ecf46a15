//! What a hold costs each part of a cluster, for docs/scaling.md: processor time, and what PostgreSQL writes.
//!
//! Processor time, and not requests a second: it depends less on what else runs on the machine, and adds up.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};

use crate::http;
use crate::server::Server;
use crate::step::{output_of, release_build};

/// The kernel counts processor time in hundredths of a second, on every Linux there is.
const TICK_MICROS: f64 = 10_000.0;

/// The columns of the table.
const PARTS: [&str; 4] = ["servers, us", "PostgreSQL, us", "Redis, us", "PostgreSQL writes, bytes"];

/// The work, and what `leasehold rush` is told for it.
const WORK: [(&str, &[&str]); 3] = [
    (
        "hold, granted, 200 users",
        &["--users", "200", "--seats", "500000", "--shape", "spread", "--no-confirm"],
    ),
    (
        "hold, granted, 2000 users",
        &["--users", "2000", "--seats", "500000", "--shape", "spread", "--no-confirm"],
    ),
    ("hold, refused at the gate", &["--users", "200", "--seats", "3", "--no-confirm"]),
];

/// What has been used since the start: by each part, and commands and commits of all servers.
struct Used {
    parts: [f64; PARTS.len()],
    commands: f64,
    commits: f64,
}

/// Starts `demo --cluster`, loads it in each way, and prints a table.
pub(crate) fn measure() -> Result<()> {
    let leasehold = release_build()?;
    let server = Server::start(&leasehold, &["demo", "--cluster", "--crowd", "0"])?;
    let mut lines = Vec::new();
    for (name, shape) in WORK {
        let mut rush = Command::new(&leasehold);
        rush.args(["rush", "--url", &server.url(), "--duration", "10s", "--json"]).args(shape);
        let before = Used::so_far(server.id())?;
        let report = output_of(&mut rush)?;
        let after = Used::so_far(server.id())?;
        let requests = number(&report, "\"requests\":").context("a report without a count of requests")?;
        let parts = before.parts.iter().zip(after.parts);
        let parts: Vec<String> =
            parts.map(|(before, after)| format!("{:.1}", (after - before) / requests)).collect();
        let batch = (after.commands - before.commands) / (after.commits - before.commits).max(1.0);
        lines.push(format!("| {name} | {requests:.0} | {batch:.0} | {} |", parts.join(" | ")));
    }
    server.stop()?;
    println!("\nprocessor time, and bytes handed to the disk, a request:\n");
    println!("| work | requests | commands a commit | {} |", PARTS.join(" | "));
    println!("|---|---|---|---|---|---|---|\n{}", lines.join("\n"));
    Ok(())
}

impl Used {
    fn so_far(demo: u32) -> Result<Self> {
        let mut used = Self { parts: [0.0; PARTS.len()], commands: 0.0, commits: 0.0 };
        for child in children(demo) {
            let Some((name, micros)) = stat(child) else { continue };
            match name.as_str() {
                "redis-server" => used.parts[2] += micros,
                // The server's processes are its children; the time of those that ended is counted as its own.
                "postgres" => {
                    used.parts[1] += micros;
                    for worker in children(child) {
                        used.parts[1] += stat(worker).map_or(0.0, |(_, micros)| micros);
                        used.parts[3] += bytes_written(worker);
                    }
                }
                _ => {
                    used.parts[0] += micros;
                    let metrics = http::get(replica(child)?, "/metrics")?.body;
                    used.commands += number(&metrics, "\nleasehold_commit_commands_sum ").unwrap_or(0.0);
                    used.commits += number(&metrics, "\nleasehold_commit_commands_count ").unwrap_or(0.0);
                }
            }
        }
        Ok(used)
    }
}

/// Where a replica listens, by its own command line.
fn replica(process: u32) -> Result<SocketAddr> {
    let line = fs::read_to_string(format!("/proc/{process}/cmdline"))?;
    let mut words = line.split('\0').skip_while(|word| *word != "--listen");
    let address = words.nth(1).context("a replica without an address")?;
    Ok(address.parse()?)
}

fn bytes_written(process: u32) -> f64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0.0)
}

fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// A process's name, and the microseconds of it and of its children that have ended.
fn stat(process: u32) -> Option<(String, f64)> {
    parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<(String, f64)> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    // After the name: the state, and from the 12th on user and system time, its own and then its children's.
    let ticks =
        rest.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<f64>().unwrap_or(0.0)).sum::<f64>();
    Some((name.to_owned(), ticks * TICK_MICROS))
}

/// The whole number after the first place where these words stand.
fn number(text: &str, words: &str) -> Option<f64> {
    let (_, after) = text.split_once(words)?;
    let after = after.trim_start();
    let end = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_counted_with_its_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 120 0 0 0 30 12 5 3 20 0 1 0 100 0 0";
        assert_eq!(parse(stat), Some(("a) b".to_owned(), 500_000.0)));
    }

    #[test]
    fn a_number_is_found_by_what_stands_before_it() {
        assert_eq!(number("{\"requests\": 12,\"held\":3}", "\"requests\":"), Some(12.0));
        assert_eq!(number("# commits\ncommits 7.0\n", "\ncommits "), Some(7.0));
        assert_eq!(number("{}", "\"held\":"), None);
    }
}
