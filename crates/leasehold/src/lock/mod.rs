//! `leasehold lock`: takes, renews, gives back and looks at locks, for scripts and for people at a terminal.

mod show;

pub(crate) use show::busy;

use std::process::ExitCode;
use std::time::Duration;

use leasehold_lock::backend::{Held, Order, Released, Renewed};
use leasehold_lock::{Acquired, Fence, Label, Locker, Names, Owner, Ttl};

use crate::lock_store::{self, Failure, LOST, NOT_OBTAINED, StoreArgs};
use crate::rush::duration;

/// How long to wait for what must still be given back at the end.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(2);

/// What `leasehold lock` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold lock acquire deploy --ttl 10m
  leasehold lock ls
  leasehold lock why deploy")]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LockCommand {
    /// Take a lock and leave it held; nothing renews it
    Acquire(AcquireArgs),
    /// Give a lock its full length again
    Renew(RenewArgs),
    /// Give a lock back
    Release(ReleaseArgs),
    /// List the locks that are held
    Ls(show::LsArgs),
    /// Say who holds a lock, until when, and what that is worth
    Why(show::WhyArgs),
}

/// What `leasehold lock acquire` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold lock acquire deploy --ttl 10m
  export LEASEHOLD_OWNER=$(leasehold lock acquire deploy --ttl 10m --json | jq -r .owner)
  leasehold lock release deploy

Whoever knows the owner token can release the lock. Prefer `leasehold run`, which renews the lock and gives it back.

Exit status: 0 when it was taken, 97 when somebody else has it, 96 when the store refuses, 99 when it does not
answer.")]
struct AcquireArgs {
    /// What to lock; several are taken together, all or none
    #[arg(required = true, value_name = "NAME", value_parser = lock_store::name)]
    names: Vec<String>,

    /// When it ends by itself
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration::parse)]
    ttl: Duration,

    /// How long to wait while somebody else has it
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = lock_store::wait)]
    wait: Duration,

    /// What others see as the holder [default: this host and process]
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Whose lock.
#[derive(Debug, clap::Args)]
struct OwnedArgs {
    /// What is locked
    #[arg(required = true, value_name = "NAME", value_parser = lock_store::name)]
    names: Vec<String>,

    /// The token that `acquire` printed; the variable keeps it out of the list of processes
    #[arg(long, env = "LEASEHOLD_OWNER", hide_env_values = true, value_name = "TOKEN")]
    owner: String,

    #[command(flatten)]
    store: StoreArgs,
}

/// What `leasehold lock renew` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  LEASEHOLD_OWNER=$token leasehold lock renew deploy --ttl 10m

Exit status: 0 when it was renewed, 98 when it is not the owner's any more, 96 when the store refuses, 99 when it does
not answer.")]
struct RenewArgs {
    #[command(flatten)]
    owned: OwnedArgs,

    /// When it ends by itself, from now
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration::parse)]
    ttl: Duration,
}

/// What `leasehold lock release` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  LEASEHOLD_OWNER=$token leasehold lock release deploy

Exit status: 0 when it was given back, 98 when it was not the owner's any more, 96 when the store refuses, 99 when it
does not answer.")]
struct ReleaseArgs {
    #[command(flatten)]
    owned: OwnedArgs,
}

pub(crate) async fn lock(args: LockArgs) -> ExitCode {
    let done = match args.command {
        LockCommand::Acquire(args) => acquire(&args).await,
        LockCommand::Renew(args) => renew(&args).await,
        LockCommand::Release(args) => release(&args.owned).await,
        LockCommand::Ls(args) => show::ls(&args).await,
        LockCommand::Why(args) => show::why(&args).await,
    };
    done.unwrap_or_else(|failure| failure.report())
}

async fn acquire(args: &AcquireArgs) -> Result<ExitCode, Failure> {
    let locker = args.store.open()?;
    let mut acquire = locker.acquire(lock_store::names(&args.names)?).no_renewal();
    acquire = acquire.ttl(args.ttl).wait(args.wait);
    if let Some(label) = args.label.as_deref().and_then(Label::lossy) {
        acquire = acquire.label(label);
    }
    let acquired = acquire.await;
    if !matches!(acquired, Ok(Acquired::Granted(_))) {
        // Some of the servers may have given it.
        locker.settle(SETTLE_TIME_MAX).await;
    }
    let guard = match acquired? {
        Acquired::Granted(guard) => guard,
        Acquired::Busy(busy) => {
            eprintln!("leasehold: {}", show::busy(&busy));
            return Ok(ExitCode::from(NOT_OBTAINED));
        }
    };
    let fences: Option<Vec<u64>> = guard.fences().map(|all| all.iter().map(|Fence(fence)| *fence).collect());
    let (guarantee, left) = (guard.guarantee().as_str(), guard.time_left());
    let held = guard.detach();
    if args.json {
        let names: Vec<&str> = held.names.as_slice().iter().map(|name| name.as_str()).collect();
        let document = serde_json::json!({
            "names": names,
            "owner": held.owner.as_str(),
            "fence": fences.as_ref().and_then(|fences| fences.first()),
            "fences": fences,
            "guarantee": guarantee,
            "expires_in_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        println!("{document}");
    } else {
        let fences: Vec<String> = fences.unwrap_or_default().iter().map(u64::to_string).collect();
        println!("owner       {}", held.owner.as_str());
        println!("fence       {}", if fences.is_empty() { "none".to_owned() } else { fences.join(", ") });
        println!("guarantee   {guarantee}");
        println!("expires in  {}", show::seconds(left));
    }
    Ok(ExitCode::SUCCESS)
}

async fn renew(args: &RenewArgs) -> Result<ExitCode, Failure> {
    let locker = args.owned.store.open()?;
    let held = args.owned.held(args.ttl)?;
    Ok(match locker.renew(&held).await? {
        Renewed::Extended => ExitCode::SUCCESS,
        Renewed::Gone => not_yours(&held.names),
    })
}

async fn release(args: &OwnedArgs) -> Result<ExitCode, Failure> {
    let locker: Locker = args.store.open()?;
    // How long the lease lasts yet is not known here.
    let held = args.held(leasehold_lock::TTL_MAX)?;
    let released = locker.release(&held).await;
    locker.settle(SETTLE_TIME_MAX).await;
    Ok(match released? {
        Released::Released => ExitCode::SUCCESS,
        Released::NotHeld => not_yours(&held.names),
    })
}

fn not_yours(names: &Names) -> ExitCode {
    eprintln!("leasehold: {names} is not this owner's any more");
    ExitCode::from(LOST)
}

impl OwnedArgs {
    fn held(&self, ttl: Duration) -> Result<Held, Failure> {
        let ttl = Ttl::new(ttl).map_err(anyhow::Error::from)?;
        let owner = Owner::parse(&self.owner).map_err(anyhow::Error::from)?;
        Ok(Held { names: lock_store::names(&self.names)?, owner, ttl, order: Order::Any })
    }
}
