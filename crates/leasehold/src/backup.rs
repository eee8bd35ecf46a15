//! `leasehold backup`: a consistent copy of a data file while its server runs.

use std::path::PathBuf;
use std::process::ExitCode;

/// What `leasehold backup` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold backup ./leasehold.db --to /backups/leasehold-monday.db

The copy is whole and can be served as it is. A server that starts on it begins a new epoch: its
fences are higher than all that the original ever issued, and readers of the stream start anew.")]
pub(crate) struct BackupArgs {
    /// The data file
    #[arg(default_value = "./leasehold.db")]
    data: PathBuf,

    /// The copy, which must not exist yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.data.exists(), "{} does not exist", args.data.display());
    leasehold_engine::backup_file(&args.data, &args.to)
        .map_err(|why| anyhow::anyhow!("{} was not copied: {why}", args.data.display()))?;
    let bytes = std::fs::metadata(&args.to)?.len();
    println!("{} ({bytes} bytes)", args.to.display());
    Ok(ExitCode::SUCCESS)
}
