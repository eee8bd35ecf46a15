//! `leasehold check`: recomputes everything in a data file or a ledger and lists what is wrong.

use std::path::Path;
use std::process::ExitCode;

use leasehold_engine::{CheckReport, LedgerReport, check_file, check_ledger};

/// What `leasehold check` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold check ./leasehold.db
  leasehold check --json ./copy.db
  leasehold check postgres://shop@db/shop

Exit status: 0 when all is well, 1 when something is wrong, 2 for a mistake on the command line.
It is opened for reading only; its servers may run meanwhile.")]
pub(crate) struct CheckArgs {
    /// The data file, or the URL of the ledger
    #[arg(default_value = "./leasehold.db")]
    data: String,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// What was found, wherever it was looked for.
struct Report {
    problems: Vec<String>,
    events: u64,
    seats: u64,
    holds: u64,
    bookings: u64,
    entries: u64,
    /// Entries that the tables do not show yet; a ledger's always do.
    behind: u64,
}

pub(crate) async fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let is_ledger = ["postgres://", "postgresql://"].iter().any(|scheme| args.data.starts_with(scheme));
    let (report, what) = match is_ledger {
        true => (of_ledger(check_ledger(&args.data).await?), "the ledger"),
        false => (of_file(check_file(Path::new(&args.data))?), args.data.as_str()),
    };
    if args.json {
        let document = serde_json::json!({
            "problems": report.problems,
            "events": report.events,
            "seats": report.seats,
            "holds": report.holds,
            "bookings": report.bookings,
            "entries": report.entries,
            "behind": report.behind,
        });
        println!("{document}");
    } else {
        println!(
            "{what}: {} events, {} seats, {} live holds, {} bookings, {} log entries ({} not yet in the tables)",
            report.events, report.seats, report.holds, report.bookings, report.entries, report.behind
        );
        for problem in &report.problems {
            println!("broken: {problem}");
        }
        let verdict =
            if report.problems.is_empty() { "all invariants hold".to_owned() } else { unsound(what) };
        println!("{verdict}");
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn unsound(what: &str) -> String {
    if what == "the ledger" { format!("{what} is not sound") } else { "the file is not sound".to_owned() }
}

fn of_file(report: CheckReport) -> Report {
    let CheckReport { problems, events, seats, holds, bookings, entries, behind, .. } = report;
    Report {
        problems,
        events: events as u64,
        seats,
        holds: holds as u64,
        bookings: bookings as u64,
        entries,
        behind,
    }
}

fn of_ledger(report: LedgerReport) -> Report {
    let LedgerReport { problems, events, seats, holds, bookings, entries } = report;
    Report { problems, events, seats, holds, bookings, entries, behind: 0 }
}
