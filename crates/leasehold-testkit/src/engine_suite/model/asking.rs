//! Asking an engine: alone or several at once, under a key, and the same once more.

use std::sync::Arc;

use leasehold_core::Command;
use leasehold_engine::{Done, Engine, EngineError, IdempotencyKey, Request};

/// A command and what the engine said.
pub(super) type Answered = (Command, Result<Done, EngineError>);

/// Asks for all of it at once, the first under a key if there is one.
pub(super) async fn execute_together(
    engine: &Arc<dyn Engine>,
    group: &[Command],
    key: Option<u64>,
) -> Vec<Result<Done, EngineError>> {
    let mut asked = Vec::new();
    for (place, command) in group.iter().enumerate() {
        let (engine, request) = (Arc::clone(engine), request(engine, command, key.filter(|_| place == 0)));
        asked.push(tokio::spawn(async move { engine.execute(request).await }));
    }
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await.expect("the engine does not panic"));
    }
    answers
}

/// The owner's request.
fn request(engine: &Arc<dyn Engine>, command: &Command, key: Option<u64>) -> Request {
    // A new hold's id ends like its key, so this one ends like the id that the command already has.
    let end = match command {
        Command::CreateHold(create) => create.id.as_raw() & u128::from(u64::MAX),
        _ => 0,
    };
    let key = key.map(|key| {
        let key = u128::from(key) << 64;
        IdempotencyKey { scope: key | end, fingerprint: key }
    });
    let mut request = Request::new(command.clone()).with_key(key);
    request.secret = request.needs_secret_of().map(|hold| engine.secret_of(hold));
    request
}

/// What was answered under a key.
pub(super) struct Remembered {
    pub(super) command: Command,
    pub(super) key: u64,
    pub(super) done: Done,
}

impl Remembered {
    /// Asks once more: the same answer.
    pub(super) async fn is_repeated(&self, engine: &Arc<dyn Engine>, context: &str) {
        let Self { command, key, done } = self;
        let again = engine.execute(request(engine, command, Some(*key))).await;
        let same = |again: &Done| again.replayed && again.at == done.at && again.outcome == done.outcome;
        assert!(again.as_ref().is_ok_and(same), "{context}: repeated {again:?}, first {done:?}");
    }

    /// Asks for something else under the key: that is refused.
    pub(super) async fn refuses_others(&self, engine: &Arc<dyn Engine>, context: &str) {
        let mut other = request(engine, &self.command, Some(self.key));
        other.key = other.key.map(|key| IdempotencyKey { fingerprint: !key.fingerprint, ..key });
        let mismatch = engine.execute(other).await;
        assert!(matches!(mismatch, Err(EngineError::KeyMismatch)), "{context}: {mismatch:?}");
    }
}
