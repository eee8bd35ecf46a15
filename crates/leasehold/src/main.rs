//! The command: a server, a demonstration, a load test, and what an operator needs at a terminal.

mod backup;
mod check;
mod crowd;
mod demo;
mod demo_cluster;
mod doctor;
mod list;
mod lock;
mod lock_store;
mod locks;
mod logging;
mod migrate;
mod run;
mod rush;
mod serve;
mod settings;
mod signals;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// What one thread allocates another frees, for every hold: the system's allocator takes locks for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sells seats and counted stock without selling anything twice.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  leasehold demo                                 a sample venue to play with, on 127.0.0.1:7070
  leasehold serve --data ./leasehold.db          the server
  leasehold rush                                 200 users fight for 3 seats on a server of their own
  leasehold rush --url http://127.0.0.1:7070     the same on a running server
  leasehold check ./leasehold.db                 recompute everything in a data file
  leasehold backup ./leasehold.db --to copy.db   a consistent copy while the server runs
  leasehold run --lock nightly -- ./backup.sh    a command that never runs twice at the same time";

const COMPLETIONS_EXAMPLES: &str = "Examples:
  leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::ServeArgs),
    /// Run a server with a sample venue and simulated buyers
    Demo(demo::DemoArgs),
    /// Let many users fight for few seats, and judge the server
    Rush(rush::RushArgs),
    /// Recompute everything in a data file and list what is wrong
    Check(check::CheckArgs),
    /// Copy a data file while its server runs
    Backup(backup::BackupArgs),
    /// Move a data file into a ledger, for more than one server
    Migrate(migrate::MigrateArgs),
    /// List the events of a running server
    Events(list::EventsArgs),
    /// List the live holds of an event
    Holds(list::HoldsArgs),
    /// List the payments of an event that must be given back
    Refunds(list::RefundsArgs),
    /// Run a command while holding a lock, and never longer
    Run(run::RunArgs),
    /// Take, renew, give back and look at locks
    Lock(lock::LockArgs),
    /// Say what a lock store's grants, or servers on a ledger, are worth where they run
    Doctor(doctor::DoctorArgs),
    #[command(name = "__exec", hide = true)]
    Exec(run::exec::ExecArgs),
    #[command(name = "__warden", hide = true)]
    Warden,
    #[command(name = "__replica", hide = true)]
    Replica(Box<demo_cluster::ReplicaArgs>),
    #[command(name = "__foreground", hide = true)]
    Foreground(run::terminal::ForegroundArgs),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match perform(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> anyhow::Result<ExitCode> {
    match &command {
        Command::Exec(args) => return Ok(run::exec::exec(args)),
        Command::Foreground(args) => return Ok(run::terminal::foreground(args)),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Serve(args) => serve::serve(args).await,
            Command::Demo(args) => demo::demo(args).await,
            Command::Rush(args) => run_rush(args).await,
            Command::Check(args) => check::check(&args).await,
            Command::Backup(args) => backup::backup(&args),
            Command::Migrate(args) => migrate::migrate(&args).await,
            Command::Events(args) => list::events(args).await,
            Command::Holds(args) => list::holds(args).await,
            Command::Refunds(args) => list::refunds(args).await,
            Command::Run(args) => Ok(run::run(args).await),
            Command::Lock(args) => Ok(lock::lock(args).await),
            Command::Doctor(args) => Ok(doctor::doctor(&args).await),
            Command::Replica(args) => demo_cluster::serve_replica(*args).await,
            Command::Warden => run::warden::keep_watch(),
            Command::Exec(_) | Command::Foreground(_) => unreachable!("they need no runtime"),
            Command::Completions { shell } => {
                clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut std::io::stdout());
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

/// Against the server that was named, or against one of its own that ends with the run.
async fn run_rush(args: rush::RushArgs) -> anyhow::Result<ExitCode> {
    if let Some(target) = args.target().await? {
        let report = rush::rush(&args, &target, rush::Audience::Terminal).await?;
        rush::show(&args, &report)?;
        return Ok(report.exit_code().into());
    }
    let folder = tempfile::tempdir()?;
    let server = serve::Running::start_private(&folder.path().join("rush.db")).await?;
    let report = rush::rush(&args, &rush::Target::from(server.address), rush::Audience::Terminal).await;
    server.stop().await;
    let report = report?;
    rush::show(&args, &report)?;
    Ok(report.exit_code().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
