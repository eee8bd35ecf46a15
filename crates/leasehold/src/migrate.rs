//! `leasehold migrate`: moves a data file into a ledger, for more than one server.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use leasehold_engine::{DataFile, OpenError, SecretKey};

use crate::lock_store;

/// How often a file that is in use is tried.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What `leasehold migrate` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold migrate ./leasehold.db --to postgres://shop@db/shop --secret-key-file leasehold.key --wait 10m

The ledger must be empty. The file's server goes on selling until you stop it: with --wait this looks at
the ledger, and moves the file in the moment that its server has stopped. Ids, hold secrets, fences, the log and
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

    /// How long to wait for the file's server to stop, such as 10m
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = lock_store::wait)]
    wait: Duration,
}

pub(crate) async fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    // First, so that there is no ledger whose key nobody has, and a wrong file is known before the server is stopped.
    let key = DataFile::key_of(&args.data)?;
    write_key(&key, &args.secret_key_file)?;
    let file = open(args, &key).await?;
    let begun = Instant::now();
    let Some(moved) = file.move_into(&args.to).await? else {
        println!("{} is in the ledger: it had been committed before", args.data.display());
        return Ok(ExitCode::SUCCESS);
    };
    println!(
        "{} is in the ledger after {:.1} s: {} events, {} holds, {} bookings, {} log entries, {} remembered answers",
        args.data.display(),
        begun.elapsed().as_secs_f64(),
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

/// Opens the file, as soon as no server uses it.
async fn open(args: &MigrateArgs, key: &SecretKey) -> anyhow::Result<DataFile> {
    let begun = Instant::now();
    let mut is_prepared = false;
    loop {
        match DataFile::open(&args.data) {
            Err(OpenError::InUse { .. }) if begun.elapsed() < args.wait => {}
            opened => return Ok(opened?),
        }
        if !is_prepared {
            DataFile::prepare(&args.to, key).await?;
            println!("the ledger is ready; stop the server of {} now", args.data.display());
            is_prepared = true;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
