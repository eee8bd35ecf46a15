//! `leasehold check`: recomputes everything in a data file and lists what is wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_engine::check_file;

/// What `leasehold check` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold check ./leasehold.db
  leasehold check --json ./copy.db

Exit status: 0 when all is well, 1 when something is wrong, 2 for a mistake on the command line.
The file is opened for reading only; its server may run meanwhile.")]
pub(crate) struct CheckArgs {
    /// The data file
    #[arg(default_value = "./leasehold.db")]
    data: PathBuf,

    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let report = check_file(&args.data)?;
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
            "{}: {} events, {} seats, {} live holds, {} bookings, {} log entries ({} not yet in the tables)",
            args.data.display(),
            report.events,
            report.seats,
            report.holds,
            report.bookings,
            report.entries,
            report.behind
        );
        for problem in &report.problems {
            println!("broken: {problem}");
        }
        println!(
            "{}",
            if report.problems.is_empty() { "all invariants hold" } else { "the file is not sound" }
        );
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
