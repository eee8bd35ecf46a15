//! `leasehold rush`: many users fight for few seats, and the server is held to its word.
//!
//! A crowd holds and buys as fast as it can. Afterwards the event is read back, and what the users were
//! told is compared with what the server says it sold. The verdict is part of the report: oversold or
//! not, server errors or none, and every request accounted for.

mod args;
pub(crate) mod duration;
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

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use leasehold_client::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use args::Shape;
use event::{Offer, Snapshot, Wanted};

use report::{Material, Setup};
use user::{Account, Live, Plan, User};
use verdict::{Evidence, Verdict};

pub(crate) use args::RushArgs;
pub(crate) use random::Random;
pub(crate) use report::Report;
pub(crate) use target::Target;

/// An answer that takes longer counts as none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Who looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Somebody at a terminal: a bar is drawn, Ctrl-C ends it early with a report, and a second one without.
    Terminal,
    /// Nobody here: it runs to its end.
    Nobody,
}

/// Runs the load against `target` and reports.
pub(crate) async fn rush(args: &RushArgs, target: &Target, audience: Audience) -> anyhow::Result<Report> {
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
    let watched = audience == Audience::Terminal;
    let everyone = tokio::select! {
        everyone = crowd(&plan, clients) => everyone?,
        () = progress::watch(&plan, args.duration), if watched => {
            unreachable!("the bar is drawn until it is dropped")
        }
        stopped = two_interrupts(&stop), if watched => return Err(stopped),
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
        println!("{}", serde_json::to_string(report).context("the report is not JSON")?);
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
    let verdict = Verdict::reach(&Evidence {
        offer: &plan.offer,
        shape: args.shape,
        confirming: args.confirming(),
        before,
        after: after.as_ref(),
        told,
        tally,
    });
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
