//! `leasehold migrate`: moves a data file into a ledger, for more than one server.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use leasehold_engine::{DataFile, SecretKey};

/// What `leasehold migrate` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold migrate ./leasehold.db --to postgres://shop@db/shop --secret-key-file leasehold.key

The server of the file must be stopped, and the ledger empty. Ids, hold secrets, fences, the log and
answers under idempotency keys stay what they are. Everything is moved, or nothing; after that no
server starts on the file any more. Leases of locks are not moved.

Exit status: 0 when it was moved, 1 when it was not, 2 for a mistake on the command line.")]
pub(crate) struct MigrateArgs {
    /// The data file
    data: PathBuf,

    /// The ledger: postgres://USER@HOST/DATABASE
    #[arg(long, env = "LEASEHOLD_LEDGER", hide_env_values = true, value_name = "URL")]
    to: String,

    /// Where to write the key that the file's hold secrets are made with, for the servers on the ledger
    #[arg(long, env = "LEASEHOLD_SECRET_KEY_FILE", value_name = "FILE")]
    secret_key_file: PathBuf,
}

pub(crate) async fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let file = DataFile::open(&args.data)?;
    // First, so that there is no ledger whose key nobody has.
    write_key(file.key(), &args.secret_key_file)?;
    let moved = file.move_into(&args.to).await?;
    println!(
        "{} is in the ledger: {} events, {} holds, {} bookings, {} log entries, {} remembered answers",
        args.data.display(),
        moved.events,
        moved.holds,
        moved.bookings,
        moved.entries,
        moved.answers
    );
    println!(
        "start servers with: leasehold serve --ledger URL --secret-key-file {}",
        args.secret_key_file.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Writes the key for this user alone. A file that has it already is as good; one with another key is not touched.
fn write_key(key: &SecretKey, path: &Path) -> anyhow::Result<()> {
    let digits: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let cannot = || format!("cannot write the secret key to {}", path.display());
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file
            .write_all(format!("{digits}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(cannot),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let known = std::fs::read_to_string(path).with_context(cannot)?;
            if known.trim() != digits {
                bail!("{} is there and has another key than the data file", path.display());
            }
            Ok(())
        }
        Err(error) => Err(error).with_context(cannot),
    }
}
