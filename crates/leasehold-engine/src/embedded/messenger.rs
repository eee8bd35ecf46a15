//! Telling what was committed: first the readers of the feed, then the callers.
//!
//! A caller that is woken from outside its runtime goes through a lock and often a system call, for each of a thousand
//! callers of a commit. So the writer hands all that a commit has to tell to one task, which wakes everyone from within,
//! while the writer is busy with the next commit. Commits are told in order, and a caller is told after the feed shows
//! what it caused, so whoever has an answer also sees its effect.

use std::sync::Arc;

use leasehold_core::EventNo;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::hall::Hall;
use crate::{Change, Done, EngineError, EventSummary};

/// An answer and who waits for it.
pub(crate) type Answer = (oneshot::Sender<Result<Done, EngineError>>, Result<Done, EngineError>);

/// Something else to be said, to one who waits.
pub(crate) type Saying = Box<dyn FnOnce() + Send>;

/// What one commit has to tell.
#[derive(Default)]
pub(crate) struct News {
    /// Changes in the order of their entries.
    pub(crate) changes: Vec<(EventNo, Change)>,
    /// How each event with a change stands after them, in the order of events.
    pub(crate) events: Vec<(Arc<Hall>, EventSummary)>,
    /// Said when the feed shows them, and before anybody has an answer: a repetition is not answered earlier, either.
    pub(crate) before_answers: Option<Saying>,
    pub(crate) answers: Vec<Answer>,
    /// Said at the end.
    pub(crate) sayings: Vec<Saying>,
}

/// Tells the news. What it has taken it tells, also when the engine closes.
#[derive(Debug, Clone)]
pub(crate) struct Messenger {
    /// None outside a runtime. The channel holds at most one answer for each caller that waits, and since no caller goes
    /// on without one, no more changes than those callers and the live holds can make.
    task: Option<mpsc::UnboundedSender<News>>,
}

impl Messenger {
    /// A messenger of the runtime this is called in, if it is called in one.
    pub(crate) fn start() -> Self {
        let Ok(runtime) = Handle::try_current() else { return Self { task: None } };
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut inbox = Inbox(receiver);
        // The task ends when the writer, who has the senders, is gone.
        runtime.spawn(async move {
            while let Some(news) = inbox.0.recv().await {
                News::tell(news);
            }
        });
        Self { task: Some(sender) }
    }

    pub(crate) fn deliver(&self, news: News) {
        let untold = match &self.task {
            // The runtime it was started in is gone.
            Some(task) => task.send(news).err().map(|unsent| unsent.0),
            None => Some(news),
        };
        if let Some(news) = untold {
            news.tell();
        }
    }
}

/// What is still to be told. It is told also when the runtime ends before its engine does.
struct Inbox(mpsc::UnboundedReceiver<News>);

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.close();
        while let Ok(news) = self.0.try_recv() {
            news.tell();
        }
    }
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.answers.is_empty() && self.sayings.is_empty()
    }

    fn tell(mut self) {
        // The sort keeps the order of an event's changes.
        self.changes.sort_by_key(|(event, _)| *event);
        let mut changes = self.changes.into_iter().peekable();
        for (hall, summary) in self.events {
            let number = hall.venue.number;
            let own = std::iter::from_fn(|| changes.next_if(|(event, _)| *event == number));
            hall.feed.publish(own.map(|(_, change)| change), summary);
        }
        if let Some(say) = self.before_answers {
            say();
        }
        for (caller, answer) in self.answers {
            // A caller that went away finds its answer under its idempotency key.
            let _ = caller.send(answer);
        }
        self.sayings.into_iter().for_each(|say| say());
    }
}
