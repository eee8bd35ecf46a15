//! `leasehold rush`: many users fight for few seats, and the server is held to its word.
//!
//! A crowd holds and buys as fast as it can. Afterwards the event is read back, and what the users were
//! told is compared with what the server says it sold. The verdict is part of the report: oversold or
//! not, server errors or none, and every request accounted for.

mod duration;
mod event;
mod pace;
mod progress;
mod random;
mod report;
mod tally;
mod target;
mod told;
mod user;
mod verdict;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_client::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use event::{Offer, Snapshot, Wanted};
use random::Random;
use report::{Drawing, Material, Setup};
use user::{Account, Live, Plan, User};
use verdict::{Evidence, Verdict};

pub(crate) use report::Report;
pub(crate) use target::{Reach, Target};

/// The most users in one process; each has a connection.
const USERS_MAX: u32 = 10_000;
/// The most requests per second that can be asked for.
const RATE_MAX: f64 = 1_000_000.0;
/// An answer that takes longer counts as none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `leasehold rush` can be told.
#[derive(Debug, Clone, clap::Args)]
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
    /// The server that `--url` names, if load may go there; `None` when the caller is to start one.
    pub(crate) async fn target(&self) -> anyhow::Result<Option<Target>> {
        let reach = if self.i_own_this_server { Reach::Anywhere } else { Reach::Loopback };
        match &self.url {
            Some(url) => Ok(Some(Target::resolve(url, reach).await?)),
            None => Ok(None),
        }
    }

    fn confirming(&self) -> Confirming {
        if self.no_confirm { Confirming::Never } else { Confirming::Always }
    }
}

/// Runs the load against `target` and reports. Ctrl-C ends it early, with a report; a second one without.
pub(crate) async fn rush(args: &RushArgs, target: &Target) -> anyhow::Result<Report> {
    let run = format!("{:012x}", Random::fresh(0).next() >> 16);
    let event = args.event.clone().unwrap_or_else(|| format!("rush-{run}"));
    let wanted = Wanted { event, seats: args.seats, pool: args.pool };
    let mut reader = Client::new(target.authority()).with_timeout(ANSWER_TIMEOUT);
    let (offer, before) = event::open(&mut reader, &wanted)
        .await
        .with_context(|| format!("cannot open an event on {target}"))?;
    let clients = connect(target, args.users).await?;

    let stop = CancellationToken::new();
    let pace = pace::Pace::new(Instant::now(), args.duration, stop.clone(), args.rate);
    let plan = Arc::new(Plan {
        run,
        offer,
        shape: args.shape,
        confirming: args.confirming(),
        hold_ttl_ms: args.hold_ttl.map(|ttl| ttl.as_millis() as u64),
        pace,
        live: Live::default(),
    });
    let everyone = tokio::select! {
        everyone = crowd(&plan, clients) => everyone?,
        () = progress::watch(&plan, args.duration) => unreachable!("the bar is drawn until it is dropped"),
        stopped = two_interrupts(&stop) => return Err(stopped),
    };
    let elapsed = plan.pace.start().elapsed();
    let holds_due = plan.pace.due_until(Instant::now()).filter(|_| !stop.is_cancelled());
    let ended = Ended { everyone, elapsed, holds_due, interrupted: stop.is_cancelled() };
    let after = event::read(&mut reader, &plan.offer.event).await;
    Ok(conclude(args, target, &plan, &before, after, &ended))
}

/// Shows the report as the arguments ask: JSON or tables on standard output, and the drawing in its file.
pub(crate) fn show(args: &RushArgs, report: &Report) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(report).context("the report is not JSON")?);
    } else {
        println!("{}", report.to_text());
    }
    if let Some(path) = &args.report {
        report.write(path)?;
        eprintln!("report: {}", path.display());
    }
    Ok(())
}

/// What there is when the last user has ended.
struct Ended {
    everyone: Account,
    elapsed: Duration,
    holds_due: Option<u64>,
    interrupted: bool,
}

fn conclude(
    args: &RushArgs,
    target: &Target,
    plan: &Plan,
    before: &Snapshot,
    after: anyhow::Result<Snapshot>,
    ended: &Ended,
) -> Report {
    let Account { tally, told, attempts } = &ended.everyone;
    let verdict = match &after {
        Ok(after) => Verdict::reach(&Evidence {
            offer: &plan.offer,
            shape: args.shape,
            confirming: args.confirming(),
            before,
            after,
            told,
            tally,
        }),
        Err(error) => Verdict::without_reading(
            &format!("{error:#}"),
            tally.count_where(|_, outcome| outcome.is_server_error()),
        ),
    };
    Report::new(Material {
        setup: setup(args, target, &plan.offer, before),
        interrupted: ended.interrupted,
        elapsed: ended.elapsed,
        tally,
        holds_not_sent: ended.holds_due.map(|due| due.saturating_sub(*attempts)),
        after: after.as_ref().ok(),
        verdict,
    })
}

fn setup(args: &RushArgs, target: &Target, offer: &Offer, before: &Snapshot) -> Setup {
    let shape = match args.shape {
        Shape::Hot => "hot",
        Shape::Spread => "spread",
        Shape::Best => "best",
    };
    Setup {
        target: target.to_string(),
        event: offer.event.clone(),
        shape: shape.to_owned(),
        seats: offer.seats.len() as u64,
        pool: offer.pool.as_deref().and_then(|id| before.pool(id)).map(|pool| pool.capacity),
        users: args.users,
        duration_ms: args.duration.as_millis() as u64,
        rate: args.rate,
        confirm: !args.no_confirm,
    }
}

/// Connects everybody before the clock starts.
async fn connect(target: &Target, users: u32) -> anyhow::Result<Vec<Client>> {
    let mut connecting = JoinSet::new();
    for _ in 0..users {
        let mut client = Client::new(target.authority()).with_timeout(ANSWER_TIMEOUT);
        connecting.spawn(async move { client.connect().await.map(|()| client) });
    }
    let mut clients = Vec::with_capacity(users as usize);
    while let Some(connected) = connecting.join_next().await {
        let client = connected.context("a user broke down")?;
        clients.push(client.with_context(|| format!("{users} connections are more than there can be"))?);
    }
    Ok(clients)
}

/// Lets everybody run, and adds up what they did. Dropped, it stops them.
async fn crowd(plan: &Arc<Plan>, clients: Vec<Client>) -> anyhow::Result<Account> {
    let mut users = JoinSet::new();
    for (number, client) in (1..).zip(clients) {
        users.spawn(User::new(Arc::clone(plan), number, client).run());
    }
    let mut everyone = Account { tally: tally::Tally::new(), told: told::Told::default(), attempts: 0 };
    while let Some(account) = users.join_next().await {
        let account = account.context("a user broke down")?;
        everyone.tally.merge(&account.tally);
        everyone.told.merge(account.told);
        everyone.attempts += account.attempts;
    }
    Ok(everyone)
}

/// Passes the first Ctrl-C on, so that users finish what they began; returns on the second.
async fn two_interrupts(stop: &CancellationToken) -> anyhow::Error {
    for _ in 0..2 {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without the signal there is nothing to wait for: the run ends by its clock.
            std::future::pending::<()>().await;
        }
        if stop.is_cancelled() {
            break;
        }
        stop.cancel();
    }
    anyhow::anyhow!("stopped by a second Ctrl-C, without a report")
}

fn parse_rate(text: &str) -> anyhow::Result<f64> {
    let rate: f64 = text.parse().context("a rate is a number of holds per second")?;
    ensure!(rate > 0.0 && rate <= RATE_MAX, "a rate is more than 0 and at most {RATE_MAX}");
    Ok(rate)
}

fn parse_report(text: &str) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(text);
    Drawing::of(&path)?;
    if path.is_dir() {
        bail!("{text} is a directory");
    }
    Ok(path)
}
