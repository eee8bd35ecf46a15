//! `leasehold doctor`: says what a lock store's grants, or servers on a ledger, are worth where they run, and why.

mod deployment;

use std::process::ExitCode;

use anyhow::anyhow;
use leasehold_lock::doctor::{Finding, Level, Report, examine};

use crate::lock_store::{Failure, REFUSED, StoreArgs};

const PROBLEMS: u8 = 1;
const UNREACHABLE: u8 = 2;

/// What `leasehold doctor` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold doctor
  leasehold doctor --store redis://cache:6379 --epochs postgres://db/app
  leasehold doctor --store redlock://a:6379,b:6379,c:6379 --json | jq -r .verdict
  leasehold doctor --ledger postgres://shop@db/shop --gate redis-cluster://a:6379,b:6379,c:6379

With --ledger it looks at what servers are started with, else at a store of locks. It reads and changes nothing.

Exit status: 0 when there is no problem, 1 when there is one, 2 when the store or the ledger does not answer, 96 when a
URL is none of theirs.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// The ledger that servers share: postgres://USER@HOST/DATABASE
    #[arg(long, env = "LEASEHOLD_LEDGER", hide_env_values = true, value_name = "URL")]
    ledger: Option<String>,

    /// The gate in front of it: redis://HOST, redis-cluster://HOST,HOST, ...
    #[arg(long, env = "LEASEHOLD_GATE", hide_env_values = true, value_name = "URL")]
    gate: Option<String>,

    /// Leave out what is as it should be
    #[arg(long)]
    quiet: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn doctor(args: &DoctorArgs) -> ExitCode {
    look(args).await.unwrap_or_else(|failure| failure.report())
}

async fn look(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let refused = |why: &'static str| Failure { code: REFUSED, error: anyhow!(why) };
    match (&args.ledger, &args.gate) {
        (Some(_), _) if args.store.store.is_some() => {
            Err(refused("--store is a store of locks and --ledger what servers are started with: choose one"))
        }
        (Some(ledger), gate) => deployment::examine(ledger, gate.as_deref(), args.quiet, args.json).await,
        (None, Some(_)) => {
            Err(refused("--gate stands in front of a ledger: say where that is with --ledger"))
        }
        (None, None) => look_at_store(args).await,
    }
}

async fn look_at_store(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let report = examine(&args.store.url()?, &args.store.options()).await?;
    let worst = report.findings.iter().map(|finding| finding.level).max();
    if args.json {
        print_json(&report);
    } else {
        print_findings(&report.findings, args.quiet);
        println!("\n{}", report.verdict);
    }
    Ok(match worst {
        _ if !report.is_reachable => ExitCode::from(UNREACHABLE),
        Some(Level::Problem) => ExitCode::from(PROBLEMS),
        Some(Level::Ok | Level::Warning) | None => ExitCode::SUCCESS,
    })
}

/// Place by place, without what is well if that is not wanted.
fn print_findings(findings: &[Finding], quiet: bool) {
    let mut place = "";
    for finding in findings {
        if quiet && finding.level == Level::Ok {
            continue;
        }
        if finding.place != place {
            println!("{}", finding.place);
            place = &finding.place;
        }
        println!("  {:<8} {}: {}", finding.level.as_str(), finding.topic, finding.text);
    }
}

fn as_json(findings: &[Finding]) -> Vec<serde_json::Value> {
    let one = |finding: &Finding| {
        serde_json::json!({
            "level": finding.level.as_str(),
            "topic": finding.topic,
            "place": finding.place,
            "text": finding.text,
        })
    };
    findings.iter().map(one).collect()
}

fn print_json(report: &Report) {
    let document = serde_json::json!({
        "store": report.store,
        "reachable": report.is_reachable,
        "guarantee": report.guarantee.as_str(),
        "verdict": report.verdict,
        "findings": as_json(&report.findings),
    });
    println!("{document}");
}
