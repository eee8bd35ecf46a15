//! Bringing answers to their callers.
//!
//! A caller that is woken from outside its runtime goes through a lock and often a system call, for each of a thousand
//! callers of a commit. So the writer hands all answers of a commit to one task, which wakes the callers from within.

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::{Done, EngineError};

/// An answer and who waits for it.
pub(crate) type Answer = (oneshot::Sender<Result<Done, EngineError>>, Result<Done, EngineError>);

/// Brings answers to callers. What it has taken it delivers, also when the engine closes.
#[derive(Debug)]
pub(crate) struct Messenger {
    /// None outside a runtime. The channel holds at most one answer for each caller that waits.
    task: Option<mpsc::UnboundedSender<Vec<Answer>>>,
}

impl Messenger {
    /// A messenger of the runtime this is called in, if it is called in one.
    pub(crate) fn start() -> Self {
        let Ok(runtime) = Handle::try_current() else { return Self { task: None } };
        let (sender, mut receiver) = mpsc::unbounded_channel();
        // The task ends when the writer, who has the only sender, is gone.
        runtime.spawn(async move {
            while let Some(answers) = receiver.recv().await {
                hand_over(answers);
            }
        });
        Self { task: Some(sender) }
    }

    pub(crate) fn deliver(&self, answers: Vec<Answer>) {
        match &self.task {
            // A runtime that is gone has no callers left.
            Some(task) => drop(task.send(answers)),
            None => hand_over(answers),
        }
    }
}

fn hand_over(answers: Vec<Answer>) {
    for (caller, answer) in answers {
        // A caller that went away finds its answer under its idempotency key.
        let _ = caller.send(answer);
    }
}
