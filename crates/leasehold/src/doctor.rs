//! `leasehold doctor`: says what a lock store's grants are worth where it runs, and why.

use std::process::ExitCode;

use leasehold_lock::doctor::{Level, Report, examine};

use crate::lock_store::{Failure, StoreArgs};

const PROBLEMS: u8 = 1;
const UNREACHABLE: u8 = 2;

/// What `leasehold doctor` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold doctor
  leasehold doctor --store redis://cache:6379 --epochs postgres://db/app
  leasehold doctor --store redlock://a:6379,b:6379,c:6379 --json | jq -r .verdict

It reads and changes nothing.

Exit status: 0 when there is no problem, 1 when there is one, 2 when the store does not answer, 96 when the URL is no
store's.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Leave out what is as it should be
    #[arg(long)]
    quiet: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn doctor(args: &DoctorArgs) -> ExitCode {
    let report = match look(args).await {
        Ok(report) => report,
        Err(failure) => return failure.report(),
    };
    let worst = report.findings.iter().map(|finding| finding.level).max();
    if args.json {
        print_json(&report);
    } else {
        print_text(&report, args.quiet);
    }
    match worst {
        _ if !report.is_reachable => ExitCode::from(UNREACHABLE),
        Some(Level::Problem) => ExitCode::from(PROBLEMS),
        Some(Level::Ok | Level::Warning) | None => ExitCode::SUCCESS,
    }
}

async fn look(args: &DoctorArgs) -> Result<Report, Failure> {
    Ok(examine(&args.store.url()?, &args.store.options()).await?)
}

fn print_text(report: &Report, quiet: bool) {
    let mut place = "";
    for finding in &report.findings {
        if quiet && finding.level == Level::Ok {
            continue;
        }
        if finding.place != place {
            println!("{}", finding.place);
            place = &finding.place;
        }
        println!("  {:<8} {}: {}", finding.level.as_str(), finding.topic, finding.text);
    }
    println!("\n{}", report.verdict);
}

fn print_json(report: &Report) {
    let findings: Vec<serde_json::Value> = report
        .findings
        .iter()
        .map(|finding| {
            serde_json::json!({
                "level": finding.level.as_str(),
                "topic": finding.topic,
                "place": finding.place,
                "text": finding.text,
            })
        })
        .collect();
    let document = serde_json::json!({
        "store": report.store,
        "reachable": report.is_reachable,
        "guarantee": report.guarantee.as_str(),
        "verdict": report.verdict,
        "findings": findings,
    });
    println!("{document}");
}
