//! The embedded engine against the rules themselves: the same commands, the same answers, also over restarts.
//!
//! A failure prints its seed; `LEASEHOLD_SEED=n` runs that seed alone.

use std::path::Path;

use leasehold_core::random::{Random, RandomCommands};
use leasehold_core::{Changes, Epoch, Refusal, Reply, State};
use leasehold_engine::{
    Clock, Done, EmbeddedEngine, EmbeddedOptions, Engine, EngineError, EventSummary, Outcome, Request,
    check_file,
};

const CASES: u64 = 60;
const COMMANDS: usize = 200;

fn open(path: &Path, clock: &Clock) -> EmbeddedEngine {
    EmbeddedEngine::open(EmbeddedOptions::new(path).clock(clock.clone())).expect("the file opens")
}

/// What the model says, in the engine's words.
fn expected(model: &State, reply: Reply) -> Outcome {
    match reply {
        Reply::Event(event) => {
            Outcome::Event(EventSummary::of(model.event(event).expect("it was just changed"), model.epoch()))
        }
        Reply::Hold(hold) => Outcome::Hold(hold),
        Reply::Booking(booking) => Outcome::Booking(booking),
        Reply::Block(block) => Outcome::Block(block),
        Reply::BlockGone(_) => Outcome::BlockGone,
        Reply::RefundDue(_, reference) => Outcome::RefundDue(reference),
    }
}

#[tokio::test]
async fn the_engine_answers_as_the_rules_do_also_after_restarts() {
    let seeds = match std::env::var("LEASEHOLD_SEED") {
        Ok(seed) => vec![seed.parse().expect("LEASEHOLD_SEED is a number")],
        Err(_) => (0..CASES).collect::<Vec<u64>>(),
    };
    let mut restarts = 0;
    for seed in seeds {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.db");
        let mut random = Random::new(seed ^ 0x5eed);
        let mut commands = RandomCommands::new(seed);
        let mut model = State::new(Epoch::FIRST);
        let mut changes = Changes::default();
        let (mut now, mut command) = commands.next_command();
        let clock = Clock::manual(now);
        let mut engine = open(&path, &clock);
        for step in 0..COMMANDS {
            clock.set(now);
            let asked = format!("seed {seed}, step {step}: {command:?}");
            // The engine ends what is over before it takes commands; so does the model.
            model.expire_due(now, usize::MAX, &mut changes);
            model.forget_ended(now, usize::MAX, &mut changes);
            let said = model.apply(command.clone(), now, &mut changes);
            let mut request = Request::new(command);
            request.secret = request.needs_secret_of().map(|hold| engine.secret_of(hold));
            let answered = engine.execute(request).await;
            match (said, answered) {
                (Ok(reply), Ok(Done { outcome, .. })) => {
                    assert_eq!(expected(&model, reply), outcome, "{asked}")
                }
                // The gate turns a request away before anyone looks whether it makes sense.
                (Err(Refusal::Invalid(_)), Err(EngineError::Refused(_))) => {}
                // Otherwise it refuses what the rules would refuse too, with the same code.
                (Err(refusal), Err(EngineError::Refused(other))) => {
                    assert_eq!(
                        std::mem::discriminant(&refusal),
                        std::mem::discriminant(&other),
                        "{asked}: {refusal:?} {other:?}"
                    );
                }
                (said, answered) => panic!("{asked}: the rules say {said:?}, the engine {answered:?}"),
            }
            if random.once_in(25) {
                restarts += 1;
                settle(&engine).await;
                engine.close().await;
                drop(engine);
                let report = check_file(&path).expect("the file can be checked");
                assert_eq!(report.problems, Vec::<String>::new(), "{asked}");
                assert_eq!(report.entries, model.seq(), "{asked}");
                engine = open(&path, &clock);
            }
            (now, command) = commands.next_command();
        }
        settle(&engine).await;
        compare_events(&engine, &model, seed).await;
        engine.close().await;
    }
    println!("{restarts} restarts");
    assert!(restarts > 0, "at least one restart");
}

/// A read goes through the writer, which first ends what is over.
async fn settle(engine: &EmbeddedEngine) {
    let absent = leasehold_core::BookingId::from_raw(1).expect("not zero");
    assert!(engine.booking(absent).await.is_err());
}

async fn compare_events(engine: &EmbeddedEngine, model: &State, seed: u64) {
    let page = engine.events(None, 1_000).await.expect("events");
    assert_eq!(page.items.len(), model.events().len(), "seed {seed}");
    for ((venue, summary), event) in page.items.iter().zip(model.events()) {
        assert_eq!(venue.id, event.id, "seed {seed}");
        assert_eq!(*summary, EventSummary::of(event, model.epoch()), "seed {seed}");
    }
}
