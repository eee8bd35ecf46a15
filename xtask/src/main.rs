//! What a contributor runs: `cargo xtask test`, `ci`, `bench`, `k6`.
//!
//! Everything here is plain `std`, so that the command starts after a compile of seconds.
//! Each step prints the command it runs: whoever prefers to can run the same by hand.

mod ci;
mod costs;
mod demo;
mod http;
mod k6;
mod packages;
mod pictures;
mod server;
mod step;
mod test;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::k6::Target;
use crate::step::{cargo, run};

const HELP: &str = "\
cargo xtask <command> [-- arguments]

  test [-- ARGS]   install what the tests need (as root), then run every test; ARGS go to the test runner
  ci               format, lints, documentation, licences, all tests, the demo for a few seconds, and k6
  bench [ARGS]     measure Leasehold side by side with what it is compared to
  costs            what a hold costs servers, PostgreSQL and Redis in processor time, for docs/scaling.md
  pictures         take the README's pictures of the web pages anew, after the pages were changed
  k6 [cluster] [-- ARGS]
                   the published load test with the real k6: 3 seats, 200 users, 10 seconds; with `cluster` against
                   three replicas on PostgreSQL and a Redis Cluster
  help             this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match command {
        "test" => test::all(passed_on(command, rest)?),
        "ci" => {
            takes_nothing(command, rest)?;
            ci::all()
        }
        "costs" => {
            takes_nothing(command, rest)?;
            costs::measure()
        }
        "pictures" => {
            takes_nothing(command, rest)?;
            pictures::take()
        }
        "bench" => bench(rest),
        "k6" => match rest.split_first() {
            Some((first, after)) if first == "cluster" => {
                k6::three_seats(Target::Cluster, passed_on("k6 cluster", after)?)
            }
            _ => k6::three_seats(Target::Alone, passed_on(command, rest)?),
        },
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => bail!("no command `{unknown}`\n\n{HELP}"),
    }
}

fn bench(arguments: &[String]) -> Result<()> {
    let arguments = match arguments.split_first() {
        Some((first, after)) if first == "--" => after,
        _ => arguments,
    };
    run(cargo(["run", "--release", "--locked", "--package", "leasehold-bench-peers", "--"]).args(arguments))
}

/// What stands after `--`, for the program that the command runs.
fn passed_on<'a>(command: &str, rest: &'a [String]) -> Result<&'a [String]> {
    match rest.split_first() {
        None => Ok(rest),
        Some((first, after)) if first == "--" => Ok(after),
        Some((first, _)) => bail!(
            "`{command}` does not know `{first}`; what the program under it shall see stands after `--`"
        ),
    }
}

fn takes_nothing(command: &str, rest: &[String]) -> Result<()> {
    match rest.first() {
        None => Ok(()),
        Some(first) => bail!("`{command}` takes no arguments, and got `{first}`"),
    }
}
