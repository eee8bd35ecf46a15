//! What `leasehold rush` can be told on the command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::duration;
use super::report::Drawing;
use super::target::{Reach, Target};

/// The most users in one process; each has a connection.
const USERS_MAX: u32 = 10_000;
/// The most requests per second that can be asked for.
const RATE_MAX: f64 = 1_000_000.0;

/// What `leasehold rush` can be told.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  leasehold rush
  leasehold rush --url http://127.0.0.1:7070 --seats 3 --users 200 --duration 10s
  leasehold rush --seats 50000 --users 1000 --shape best --pool 5000 --report rush.html
  leasehold rush --rate 500 --json

Exit status: 0 when the server kept its promises, 1 when something was oversold or lost, or a 5xx came back other than a
503 that says `overloaded` or `outcome-unknown`, 2 for a mistake on the command line.")]
pub(crate) struct RushArgs {
    /// The server to load, such as http://127.0.0.1:7070; one of its own for the run when absent
    #[arg(long)]
    pub(crate) url: Option<String>,

    /// Seats to fight for
    #[arg(long, default_value_t = 3)]
    pub(crate) seats: u32,

    /// Users, each with one connection
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=i64::from(USERS_MAX)))]
    pub(crate) users: u32,

    /// How long: 500ms, 10s, 2m
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    pub(crate) duration: Duration,

    /// The event to fight for, created unless it exists; a fresh one with a random id when absent
    #[arg(long)]
    pub(crate) event: Option<String>,

    /// Also fight for counted stock of this many units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pool: Option<u32>,

    /// How users choose their seats
    #[arg(long, value_enum, default_value_t = Shape::Hot)]
    pub(crate) shape: Shape,

    /// How long a hold is asked for; the event's own time when absent
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) hold_ttl: Option<Duration>,

    /// Hold only, and buy nothing
    #[arg(long)]
    pub(crate) no_confirm: bool,

    /// Holds per second at a constant rate, whatever the server does; as fast as answers come when absent
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,

    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the report into this file, .svg or .html
    #[arg(long, value_name = "FILE", value_parser = parse_report)]
    pub(crate) report: Option<PathBuf>,

    /// Allow a server that is not on this machine: it is mine, and I may load it
    #[arg(long)]
    pub(crate) i_own_this_server: bool,
}

/// How users choose their seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Everybody wants the same seats in the same order
    Hot,
    /// Everybody wants a random seat each time
    Spread,
    /// Everybody takes the best that is free
    Best,
}

/// Whether users buy what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirming {
    /// Every hold is bought.
    Always,
    /// Holds are left to expire.
    Never,
}

impl RushArgs {
    /// The published run, shortened to this time: 200 users against 3 seats.
    pub(crate) fn published(duration: Duration) -> Self {
        Self {
            url: None,
            seats: 3,
            users: 200,
            duration,
            event: None,
            pool: None,
            shape: Shape::Hot,
            hold_ttl: None,
            no_confirm: false,
            rate: None,
            json: false,
            report: None,
            i_own_this_server: false,
        }
    }

    /// The server that `--url` names, if load may go there; `None` when the caller is to start one.
    pub(crate) async fn target(&self) -> anyhow::Result<Option<Target>> {
        let reach = if self.i_own_this_server { Reach::Anywhere } else { Reach::Loopback };
        match &self.url {
            Some(url) => Ok(Some(Target::resolve(url, reach).await?)),
            None => Ok(None),
        }
    }

    /// Whether users buy what they hold.
    pub(crate) fn confirming(&self) -> Confirming {
        if self.no_confirm { Confirming::Never } else { Confirming::Always }
    }
}

fn parse_rate(text: &str) -> anyhow::Result<f64> {
    let rate: f64 = text.parse().context("a rate is a number of holds per second")?;
    ensure!(rate > 0.0 && rate <= RATE_MAX, "a rate is more than 0 and at most {RATE_MAX}");
    Ok(rate)
}

fn parse_report(text: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(text);
    Drawing::of(&path)?;
    ensure!(!path.is_dir(), "{text} is a directory");
    Ok(path)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        rush: RushArgs,
    }

    fn read(line: &str) -> Result<RushArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("rush").chain(line.split_whitespace())).map(|line| line.rush)
    }

    #[test]
    fn unless_told_otherwise_it_is_the_published_run() {
        let args = read("").unwrap();
        assert_eq!((args.seats, args.users, args.duration), (3, 200, Duration::from_secs(10)));
        assert_eq!(args.shape, Shape::Hot);
        assert_eq!(args.confirming(), Confirming::Always);
        assert!(args.url.is_none() && args.rate.is_none() && args.pool.is_none());
    }

    #[test]
    fn the_published_run_of_another_length_differs_in_nothing_else() {
        let args = RushArgs::published(Duration::from_secs(10));
        assert_eq!(format!("{args:?}"), format!("{:?}", read("").unwrap()));
    }

    #[test]
    fn every_flag_is_read() {
        let line = "--url http://127.0.0.1:1 --seats 9 --users 5 --duration 500ms --event x --pool 7 --shape best \
                    --hold-ttl 2s --no-confirm --rate 99.5 --json --report r.html --i-own-this-server";
        let args = read(line).unwrap();
        assert_eq!(args.rate, Some(99.5));
        assert_eq!(args.hold_ttl, Some(Duration::from_secs(2)));
        assert_eq!(args.confirming(), Confirming::Never);
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_the_run() {
        for line in [
            "--users 0",
            "--users 10001",
            "--rate 0",
            "--rate nan",
            "--rate -1",
            "--pool 0",
            "--report r.png",
        ] {
            assert!(read(line).is_err(), "{line} was accepted");
        }
    }
}
