//! One of the independent servers: what it is asked, and whether it may vote at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ConnectionInfo, FromRedisValue, Value};
use uuid::Uuid;

use super::under_way::{LATE_MAX, UnderWay};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::owner::Owner;
use crate::redis::link::{Ears, Link, Pinned};
use crate::redis::script::Lua;
use crate::redis::servers::Servers;

/// Where a node keeps its counters and what it knows of itself.
pub(crate) const STATE: &str = "leasehold:redlock";
/// With a request's id: the request was called off.
const CALLED_OFF: &str = "leasehold:called-off:";

/// A server that may not vote is looked at this often, by whoever wants a lock.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One server of the set.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) link: Arc<Link>,
    pub(super) address: String,
    members: String,
    vote: Lua,
    raise: Lua,
    release: Lua,
    look: Lua,
    admit: Lua,
    under_way: UnderWay,
    standing: Mutex<Standing>,
}

/// What this client knows about a node's right to vote.
#[derive(Debug)]
struct Standing {
    quarantine: Option<Quarantine>,
    /// It was looked at and found able to vote, and has not said otherwise since.
    may_vote: bool,
    /// When it was looked at last, unless it has said since that it must be.
    looked_at: Option<Moment>,
}

#[derive(Debug, Clone)]
struct Quarantine {
    id: String,
    run: String,
    /// When this client first saw it, by this client's clock.
    seen: Moment,
}

/// What a look at a node that may not vote found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    /// It may vote, if no other address is the same server.
    Admitted {
        id: String,
    },
    /// It belongs to a set of another size.
    OtherMembers(String),
    Quarantined(Outsider),
}

/// A node in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outsider {
    /// Nothing was there at all: new, or emptied.
    pub(super) is_empty: bool,
    /// For how long this client has known.
    pub(super) known_for: Duration,
    pub(super) id: String,
    run: String,
}

/// What a node said to a script of the first or second phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// The locks are the owner's here; what is known per name.
    Voted(Vec<Counted>),
    Held {
        index: usize,
        remaining: Option<Duration>,
    },
    Agreed,
    TooLow(Vec<u64>),
    Lost,
    /// It must be looked at before it may vote.
    Out,
    OtherMembers(String),
}

/// What a release came to on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GivenBack {
    /// How many of the names were the owner's.
    pub(super) names: usize,
    /// False when a request on its way could not be called off, so that the release must be sent again.
    pub(super) is_final: bool,
}

/// What a node knows of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// The highest fence that it agreed to.
    pub(super) counter: u64,
    /// The fence of the lock, if it was the owner's already.
    pub(super) fence: Option<u64>,
}

impl Node {
    pub(super) fn new(server: ConnectionInfo, members: usize, ears: Ears) -> Self {
        Self {
            address: server.addr().to_string(),
            link: Arc::new(Link::new(Servers::One(Box::new(server)), ears).with_sentry()),
            members: members.to_string(),
            vote: Lua::new(include_str!("scripts/vote.lua")),
            raise: Lua::new(include_str!("scripts/raise.lua")),
            release: Lua::new(concat!(
                include_str!("../redis/scripts/release_one.lua"),
                include_str!("../redis/scripts/release.lua")
            )),
            look: Lua::new(include_str!("scripts/look.lua")),
            admit: Lua::new(include_str!("scripts/admit.lua")),
            under_way: UnderWay::default(),
            standing: Mutex::new(Standing { quarantine: None, may_vote: false, looked_at: None }),
        }
    }

    /// First phase: takes the locks here, if none is somebody else's.
    pub(super) async fn vote(
        &self,
        owner: &Owner,
        locks: &[String],
        args: &[&str],
    ) -> Result<Said, StoreError> {
        let mut server = self.link.pinned().await?;
        let request = self.under_way.ask(owner, server.generation());
        let called_off = called_off(request);
        let keys: Vec<&str> =
            [STATE, &called_off].into_iter().chain(locks.iter().map(String::as_str)).collect();
        let said = self.ask(&mut server, &self.vote, &keys, args).await?;
        self.under_way.arrived(owner, request);
        Ok(said)
    }

    /// The same for a lease that most servers have, if it is still wanted right before it is sent. A release that begins
    /// after that calls it off, over whatever connection: this one may send the two in any order.
    pub(super) async fn vote_again(
        &self,
        owner: &Owner,
        locks: &[String],
        args: &[&str],
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), StoreError> {
        if !self.may_vote() {
            return Ok(());
        }
        let mut server = self.link.pinned().await?;
        let Some(request) = self.under_way.ask_aside(owner) else { return Ok(()) };
        if is_wanted() {
            let called_off = called_off(request);
            let keys: Vec<&str> =
                [STATE, &called_off].into_iter().chain(locks.iter().map(String::as_str)).collect();
            self.ask(&mut server, &self.vote, &keys, args).await?;
        }
        self.under_way.arrived(owner, request);
        Ok(())
    }

    /// Second phase: agrees to fences, if they are higher than all before.
    pub(super) async fn raise(&self, locks: &[String], args: &[&str]) -> Result<Said, StoreError> {
        let keys: Vec<&str> = [STATE].into_iter().chain(locks.iter().map(String::as_str)).collect();
        self.ask(&mut self.link.pinned().await?, &self.raise, &keys, args).await
    }

    /// Gives the locks back here, also those that a request on its way would still take.
    pub(super) async fn release(
        &self,
        owner: &Owner,
        locks: &[String],
        args: &[&str],
    ) -> Result<GivenBack, StoreError> {
        let mut server = self.link.pinned().await?;
        let mut is_final = true;
        for request in self.under_way.may_come_after(owner, server.generation()) {
            let mut command = redis::cmd("SET");
            command.arg(called_off(request)).arg("").arg("PX").arg(LATE_MAX.as_millis());
            // A server without memory to spare refuses this, and yet can release.
            is_final &= server.send::<()>(&command).await.is_ok();
        }
        let names = server.run(&self.release, locks, args).await?;
        if is_final {
            self.under_way.released(owner);
        }
        Ok(GivenBack { names, is_final })
    }

    pub(super) fn members(&self) -> &str {
        &self.members
    }

    pub(super) fn may_vote(&self) -> bool {
        self.standing().may_vote
    }

    pub(super) fn let_vote(&self) {
        let mut standing = self.standing();
        (standing.quarantine, standing.may_vote) = (None, true);
    }

    /// True when it has just said that it must be looked at before it may vote.
    pub(super) fn is_found_out(&self) -> bool {
        let standing = self.standing();
        !standing.may_vote && standing.looked_at.is_none()
    }

    async fn ask(
        &self,
        server: &mut Pinned<'_>,
        script: &Lua,
        keys: &[&str],
        args: &[&str],
    ) -> Result<Said, StoreError> {
        let said = match server.run_if_loaded::<Vec<Value>>(script, keys, args).await? {
            None => Said::Out,
            Some(answer) => read(&answer)
                .ok_or_else(|| StoreError::Refused(format!("an unheard-of answer: {answer:?}").into()))?,
        };
        if said == Said::Out {
            let mut standing = self.standing();
            if standing.may_vote {
                (standing.may_vote, standing.looked_at) = (false, None);
            }
        }
        Ok(said)
    }

    /// True when it is not known to be able to vote, and was not looked at just now.
    pub(super) fn must_be_looked_at(&self, now: Moment) -> bool {
        let standing = self.standing();
        !standing.may_vote && standing.looked_at.is_none_or(|at| now.since(at) > LOOK_EVERY)
    }

    /// Finds out whether the node may vote, and gives it the scripts when it may.
    pub(super) async fn look(&self, clock: &Clock) -> Result<Looked, StoreError> {
        self.standing().looked_at = Some(clock.now());
        let mut server = self.link.pinned().await?;
        self.look_through(&mut server, clock).await
    }

    /// All of it through one connection: a server that starts again meanwhile must not get the scripts.
    async fn look_through(&self, server: &mut Pinned<'_>, clock: &Clock) -> Result<Looked, StoreError> {
        let durable = if is_durable(server).await { "1" } else { "0" };
        let new_id = Uuid::new_v4().simple().to_string();
        let args = [durable, &self.members, &new_id];
        let answer: Vec<String> = server.run(&self.look, &[STATE.to_owned()], &args).await?;
        match answer.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["admitted", id] => {
                self.load(server).await?;
                Ok(Looked::Admitted { id: (*id).to_owned() })
            }
            ["quarantine", id, status, run] => {
                Ok(Looked::Quarantined(self.note(id, run, status, clock.now())))
            }
            ["members", number] => Ok(Looked::OtherMembers((*number).to_owned())),
            _ => Err(StoreError::Refused(format!("an unheard-of answer: {answer:?}").into())),
        }
    }

    fn note(&self, id: &str, run: &str, status: &str, now: Moment) -> Outsider {
        let mut standing = self.standing();
        let known = standing.quarantine.take().filter(|known| known.id == id && known.run == run);
        let seen = known.map_or(now, |known| known.seen);
        standing.quarantine = Some(Quarantine { id: id.to_owned(), run: run.to_owned(), seen });
        standing.may_vote = false;
        Outsider {
            is_empty: status == "empty",
            known_for: now.since(seen),
            id: id.to_owned(),
            run: run.to_owned(),
        }
    }

    /// Ends the quarantine with the counters of the others; false when the server has started again meanwhile.
    pub(super) async fn admit(
        &self,
        outsider: &Outsider,
        floor: u64,
        counters: &BTreeMap<String, u64>,
    ) -> Result<bool, StoreError> {
        let mut args = vec![outsider.run.clone(), outsider.id.clone(), floor.to_string()];
        args.extend(counters.iter().flat_map(|(field, value)| [field.clone(), value.to_string()]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut server = self.link.pinned().await?;
        let admitted: u8 = server.run(&self.admit, &[STATE.to_owned()], &args).await?;
        if admitted == 1 {
            tracing::warn!(node = %self.address, floor, "admitted a Redlock server that may have lost its memory");
            self.load(&mut server).await?;
        }
        Ok(admitted == 1)
    }

    /// The counters of a node that may vote; `None` from one that may not.
    ///
    /// It is looked at first, whatever is known of it here: one that started again from an old copy still says that it was
    /// admitted, until somebody looks.
    pub(super) async fn counters(&self, clock: &Clock) -> Result<Option<BTreeMap<String, u64>>, StoreError> {
        let mut server = self.link.pinned().await?;
        let Looked::Admitted { .. } = self.look_through(&mut server, clock).await? else { return Ok(None) };
        let mut command = redis::cmd("HGETALL");
        command.arg(STATE);
        let state: BTreeMap<String, String> = server.send(&command).await?;
        let is_counter = |field: &str| field == "floor" || field.starts_with("c:");
        let counters = state.into_iter().filter(|(field, _)| is_counter(field));
        Ok(Some(counters.filter_map(|(field, value)| Some((field, value.parse().ok()?))).collect()))
    }

    /// Only a node that may vote has the scripts to do so.
    async fn load(&self, server: &mut Pinned<'_>) -> Result<(), StoreError> {
        for script in [&self.vote, &self.raise] {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script.text());
            let _hash: String = server.send(&command).await?;
        }
        Ok(())
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn called_off(request: Uuid) -> String {
    format!("{CALLED_OFF}{}", request.simple())
}

/// Whether every write is on the disk before it is answered. A server that does not tell is not believed.
async fn is_durable(server: &mut Pinned<'_>) -> bool {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("append*");
    let settings: Result<BTreeMap<String, String>, _> = server.send(&command).await;
    settings.is_ok_and(|settings| {
        settings.get("appendonly").is_some_and(|value| value == "yes")
            && settings.get("appendfsync").is_some_and(|value| value == "always")
    })
}

fn read(answer: &[Value]) -> Option<Said> {
    let text = |at: usize| String::from_redis_value(answer.get(at)?.clone()).ok();
    let number = |at: usize| text(at)?.parse::<u64>().ok();
    Some(match text(0)?.as_str() {
        "voted" => {
            let pair = |at: usize| Some(Counted { counter: number(at)?, fence: number(at + 1) });
            Said::Voted((1..answer.len()).step_by(2).map(pair).collect::<Option<_>>()?)
        }
        "held" => {
            let remaining = text(2)?.parse::<i64>().ok()?;
            Said::Held {
                index: usize::try_from(number(1)?).ok()?.checked_sub(1)?,
                remaining: (remaining != -1)
                    .then(|| Duration::from_millis(u64::try_from(remaining).unwrap_or_default())),
            }
        }
        "agreed" => Said::Agreed,
        "too-low" => Said::TooLow((1..answer.len()).map(number).collect::<Option<_>>()?),
        "lost" => Said::Lost,
        "out" => Said::Out,
        "members" => Said::OtherMembers(text(1)?),
        _ => return None,
    })
}
