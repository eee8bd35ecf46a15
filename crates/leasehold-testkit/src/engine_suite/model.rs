//! An engine against the rules themselves: the same commands, the same answers, also over restarts.
//!
//! A failure prints its seed; `LEASEHOLD_SEED=n` runs that seed alone. Where several commands are asked at once, which of
//! them the engine takes first is not for the seed to say.

mod asking;
mod stored;

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::random::{Random, RandomCommands};
use leasehold_core::{
    Changes, Command, Epoch, Hold, Item, ItemRequest, Millis, Refusal, Reply, SeatNo, State, Timestamp,
};
use leasehold_engine::{Done, Engine, EngineError, EventSummary, Outcome};

use self::asking::{Answered, Remembered, execute_together};
use super::{EngineStore, PATIENCE};

/// A store whose clock the test can set, and that can be judged while no engine is open on it.
#[async_trait]
pub trait ModelStore: EngineStore {
    /// Sets the store's clock to this instant, unless it is already later.
    fn set_time(&self, at_least: Timestamp);

    /// What the store's clock shows.
    async fn time(&self) -> Timestamp;

    /// What can be compared of an answer: everything, unless the store counts log entries in another way.
    fn comparable(&self, outcome: Outcome) -> Outcome {
        outcome
    }

    /// Whether "best seats" may be other ones than the rules would choose: those a server knew to be free.
    fn may_choose_other_seats(&self) -> bool {
        false
    }

    /// Whether a refusal may come from notes in front of the store, which do not know of everything that is taken.
    fn refuses_from_notes(&self) -> bool {
        false
    }

    /// How many commands may be under way at once: more than one where every answer is that of some order.
    fn together_max(&self) -> usize {
        1
    }

    /// Panics with `context` unless what is stored is sound and agrees with the model.
    async fn judge(&self, model: &State, context: &str);
}

/// For so long an answer under a key is remembered for certain.
const REMEMBERED_MIN: Millis = Millis(60 * 60 * 1_000);

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Seeds, each with an empty store.
    pub seeds: u64,
    /// Commands for each seed.
    pub commands: usize,
}

/// The model with what it has just changed.
#[derive(Clone)]
struct Model {
    state: State,
}

/// Drives an engine on a new store for every seed; panics at the first answer that is not the rules'.
pub async fn answers_as_the_rules_do_also_after_restarts<S: ModelStore>(
    effort: Effort,
    make: impl AsyncFn() -> S,
) {
    let seeds = match std::env::var("LEASEHOLD_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEASEHOLD_SEED is a number")],
        Err(_) => (0..effort.seeds).collect::<Vec<u64>>(),
    };
    let mut restarts = 0;
    for seed in seeds {
        restarts += drive(&make().await, seed, effort.commands).await;
    }
    println!("{restarts} restarts");
    assert!(restarts > 0, "at least one restart");
}

async fn drive(store: &impl ModelStore, seed: u64, command_count: usize) -> usize {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut commands = RandomCommands::new(seed);
    let mut model = Model { state: State::new(Epoch::FIRST) };
    let (mut now, first) = commands.next_command();
    let mut group = vec![first];
    store.set_time(now);
    let mut engine = store.open().await;
    let (mut restarts, mut step) = (0, 0);
    // The last answer under a key: it is given again, also after a restart.
    let mut remembered = None;
    while step < command_count {
        store.set_time(now);
        let asked = format!("seed {seed}, step {step}: {group:?}");
        step += group.len();
        let before = store.time().await;
        let key = random.once_in(3).then_some(step as u64);
        let answers = execute_together(&engine, &group, key).await;
        let after = store.time().await;
        let first = (group[0].clone(), key, answers[0].as_ref().ok().cloned());
        let mut answered: Vec<Answered> = group.into_iter().zip(answers).collect();
        model = if answered.len() == 1 {
            let (command, answered) = answered.remove(0);
            compare(store, model, command, (before, after), answered, &asked)
        } else {
            let left: Vec<&Answered> = answered.iter().collect();
            let mut differences = Vec::new();
            let found = in_some_order(store, &model, &left, before, after, &mut differences);
            found.unwrap_or_else(|| panic!("{asked}: {answered:?} in no order: {differences:#?}"))
        };
        if let (command, Some(key), Some(done)) = first {
            let answered = Remembered { command, key, done };
            answered.is_repeated(&engine, &asked).await;
            answered.refuses_others(&engine, &asked).await;
            remembered = Some(answered);
        }
        if random.once_in(25) {
            restarts += 1;
            while !settled_until_closed(engine, store, &mut model.state, &asked).await {
                engine = store.open().await;
            }
            store.judge(&model.state, &asked).await;
            engine = store.open().await;
            stored::compare(&*engine, store, &mut model.state, &asked).await;
            let recent = |answered: &Remembered| after.since(answered.done.at) < REMEMBERED_MIN;
            if let Some(answered) = remembered.take().filter(recent) {
                answered.is_repeated(&engine, &asked).await;
            }
        }
        let size = if random.once_in(4) { 1 + random.below(store.together_max() as u64) } else { 1 };
        group = Vec::new();
        for _ in 0..size {
            let command;
            (now, command) = commands.next_command();
            group.push(command);
        }
    }
    settle(&*engine, store, &mut model.state, &format!("seed {seed}, at the end")).await;
    engine.close().await;
    restarts
}

/// Takes the model through what was asked at once, in an order in which the rules give all the answers.
fn in_some_order(
    store: &impl ModelStore,
    model: &Model,
    left: &[&Answered],
    now: Timestamp,
    after: Timestamp,
    differences: &mut Vec<String>,
) -> Option<Model> {
    if left.is_empty() {
        return Some(model.clone());
    }
    for (place, (command, answered)) in left.iter().enumerate() {
        let instants = match answered {
            Ok(done) => vec![done.at],
            Err(_) if now == after => vec![now],
            Err(_) => vec![now, after],
        };
        for instant in instants.into_iter().filter(|instant| *instant >= now) {
            let mut next = model.clone();
            match next.step(store, command.clone(), instant, answered, Asked::Together) {
                Ok(()) => {
                    let rest: Vec<&Answered> = [&left[..place], &left[place + 1..]].concat();
                    let found = in_some_order(store, &next, &rest, instant, after, differences);
                    if found.is_some() {
                        return found;
                    }
                }
                Err(difference) => differences.push(difference),
            }
        }
    }
    None
}

/// Takes the model one step further, at the instant at which the engine decided.
///
/// An answer says when that was. A refusal does not, so it must be the rules' at the instant before it or after it.
fn compare(
    store: &impl ModelStore,
    model: Model,
    command: Command,
    (before, after): (Timestamp, Timestamp),
    answered: Result<Done, EngineError>,
    asked: &str,
) -> Model {
    let instants = match &answered {
        Ok(done) => vec![done.at],
        Err(_) if before == after => vec![before],
        Err(_) => vec![before, after],
    };
    let mut differences = Vec::new();
    for (place, &now) in instants.iter().enumerate() {
        // The last one may have the model itself: copying it takes a while.
        let last = place + 1 == instants.len();
        let mut next = if last { None } else { Some(model.clone()) };
        let Some(tried) = &mut next else {
            let mut model = model;
            match model.step(store, command, now, &answered, Asked::Alone) {
                Ok(()) => return model,
                Err(difference) => panic!("{asked}: {difference}, {differences:?}"),
            }
        };
        match tried.step(store, command.clone(), now, &answered, Asked::Alone) {
            Ok(()) => return next.expect("it was just tried"),
            Err(difference) => differences.push(difference),
        }
    }
    unreachable!("there is at least one instant")
}

impl Model {
    fn step(
        &mut self,
        store: &impl ModelStore,
        command: Command,
        now: Timestamp,
        answered: &Result<Done, EngineError>,
        asked: Asked,
    ) -> Result<(), String> {
        // Every store has an epoch of its own, which the first answer tells.
        if let (true, Ok(Done { outcome: Outcome::Event(summary), .. })) =
            (self.state.events().is_empty(), answered)
        {
            self.state = State::new(summary.version.epoch);
        }
        let mut changes = Changes::default();
        // An engine ends what is over before it takes commands; so does the model.
        self.state.expire_due(now, usize::MAX, &mut changes);
        self.state.forget_ended(now, usize::MAX, &mut changes);
        let command = match answered {
            Ok(Done { outcome: Outcome::Hold(hold), .. }) if store.may_choose_other_seats() => {
                self.with_chosen_seats(command, hold)
            }
            _ => command,
        };
        let said = self.state.apply(command, now, &mut changes);
        let same = match (&said, answered) {
            (Ok(reply), Ok(done)) => {
                // Of two events that are made at once, each is what its number says.
                let is_numbered = !matches!(reply, Reply::Event(number) if *number != done.venue.number);
                let expected = store.comparable(self.expected(reply.clone()));
                is_numbered && expected == store.comparable(done.outcome.clone())
            }
            (Err(refusal), Err(EngineError::Refused(other))) => asked.same(store, refusal, other),
            _ => false,
        };
        if same { Ok(()) } else { Err(format!("at {now} the rules say {said:?}, the engine {answered:?}")) }
    }

    /// The same new hold, with the seats that the engine chose by name, if they are as many as were asked for, in the
    /// section that was asked for, and free: whether they are is then for the rules to say.
    fn with_chosen_seats(&self, command: Command, hold: &Hold) -> Command {
        let Command::CreateHold(mut create) = command else { return command };
        let Some(event) = self.state.event(create.event) else { return Command::CreateHold(create) };
        let section_of = |seat: SeatNo| {
            let row =
                event.layout.rows().iter().position(|row| row.seats.contains(&seat.0)).unwrap_or(0) as u32;
            event.layout.sections().iter().position(|section| section.rows.contains(&row))
        };
        let named = |item: &&ItemRequest| matches!(item, ItemRequest::Seat(_));
        let seats = hold.items.iter().filter_map(|item| match item {
            Item::Seat { seat, .. } => Some(*seat),
            Item::Pool { .. } => None,
        });
        let mut chosen = seats.skip(create.items.iter().filter(named).count());
        let mut items = Vec::new();
        for item in &create.items {
            match *item {
                ItemRequest::Best { count, section } => {
                    let seats: Vec<SeatNo> = chosen.by_ref().take(count as usize).collect();
                    let there = |seat: &SeatNo| {
                        section.is_none_or(|section| section_of(*seat) == Some(section.0 as usize))
                    };
                    if seats.len() != count as usize || !seats.iter().all(there) {
                        return Command::CreateHold(create);
                    }
                    items.extend(seats.into_iter().map(ItemRequest::Seat));
                }
                ItemRequest::Seat(_) | ItemRequest::Pool(..) => items.push(*item),
            }
        }
        // Named seats come first in a hold, whatever the order they were asked in.
        items.sort_by_key(|item| match item {
            ItemRequest::Seat(seat) => hold
                .items
                .iter()
                .position(|held| matches!(held, Item::Seat { seat: same, .. } if same == seat)),
            ItemRequest::Pool(..) | ItemRequest::Best { .. } => Some(usize::MAX),
        });
        create.items = items;
        Command::CreateHold(create)
    }

    /// What the model says, in the engine's words.
    fn expected(&self, reply: Reply) -> Outcome {
        match reply {
            Reply::Event(event) => {
                let event = self.state.event(event).expect("it was just changed");
                Outcome::Event(EventSummary::of(event, self.state.epoch()))
            }
            Reply::Hold(hold) => Outcome::Hold(hold),
            Reply::Booking(booking) => Outcome::Booking(booking),
            Reply::Block(block) => Outcome::Block(block),
            Reply::BlockGone(_) => Outcome::BlockGone,
            Reply::RefundDue(_, reference) => Outcome::RefundDue(reference),
        }
    }
}

/// Whether a command was the only one under way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Alone,
    Together,
}

impl Asked {
    /// Whether an engine may say this where the rules say that: the same, with the same numbers.
    fn same(self, store: &impl ModelStore, rules: &Refusal, engine: &Refusal) -> bool {
        use Refusal::{EventClosed, Invalid, NotTogether, PoolShort, SeatsTaken};
        let by_gate = |refusal: &Refusal| {
            matches!(refusal, SeatsTaken(_) | PoolShort { .. } | NotTogether { .. } | EventClosed)
        };
        match (rules, engine) {
            _ if rules == engine => true,
            // A gate turns a request away before anyone looks whether it makes sense.
            (Invalid(_), _) => by_gate(engine),
            // It looks at one item after the other, and others change them meanwhile.
            _ if self == Self::Together => by_gate(rules) && by_gate(engine),
            (SeatsTaken(all), SeatsTaken(known)) if store.refuses_from_notes() => {
                !known.is_empty() && known.iter().all(|seat| all.contains(seat))
            }
            (PoolShort { pool, .. }, PoolShort { pool: known, .. }) => {
                pool == known && store.refuses_from_notes()
            }
            (NotTogether { .. }, NotTogether { .. }) => store.refuses_from_notes(),
            _ => false,
        }
    }
}

/// Closes the engine when it has settled; false when a hold ran out before it was closed, by a clock that goes on: the
/// engine may have ended it or not.
async fn settled_until_closed(
    engine: Arc<dyn Engine>,
    store: &impl ModelStore,
    model: &mut State,
    context: &str,
) -> bool {
    settle(&*engine, store, model, context).await;
    engine.close().await;
    let settled = model.seq();
    model.expire_due(store.time().await, usize::MAX, &mut Changes::default());
    model.seq() == settled
}

/// Waits until the engine has ended what is over, and both show the same events.
async fn settle(engine: &dyn Engine, store: &impl ModelStore, model: &mut State, context: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let now = store.time().await;
        model.expire_due(now, usize::MAX, &mut Changes::default());
        let page = engine.events(None, 1_000).await.expect("events");
        let ids = page.items.iter().map(|(venue, _)| &venue.id);
        assert!(ids.eq(model.events().iter().map(|event| &event.id)), "{context}: {:?}", page.items);
        let shown: Vec<&EventSummary> = page.items.iter().map(|(_, summary)| summary).collect();
        let expected: Vec<EventSummary> =
            model.events().iter().map(|event| EventSummary::of(event, model.epoch())).collect();
        if shown.iter().copied().eq(expected.iter()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{context}: expected {expected:?}, shown {shown:?}");
        // A read goes through the engine's writer, which first ends what is over.
        let absent = leasehold_core::BookingId::from_raw(1).expect("not zero");
        assert!(engine.booking(absent).await.is_err());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
