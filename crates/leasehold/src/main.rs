//! The command.

mod rush;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

/// Never sell, take or run the same thing twice.
#[derive(Debug, Parser)]
enum Command {
    /// Let many users fight for few seats, and judge the server
    Rush(rush::RushArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Command::Rush(args) = Command::parse();
    let target = args.target().await?.context("give the server's address with --url")?;
    let report = rush::rush(&args, &target).await?;
    rush::show(&args, &report)?;
    Ok(report.exit_code().into())
}
