//! A rush that an operator starts from the console: many users against few seats, one run at a time.
//!
//! The server does not know how to make load. Whoever starts it, the demonstration, hands it in.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

/// A run: gives a report, or says in words why there is none.
pub type RushRun = Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>;

/// How a rush is run.
#[derive(Clone)]
pub struct Rush {
    start: Arc<dyn Fn() -> RushRun + Send + Sync>,
}

impl Rush {
    /// A rush that is run by this.
    pub fn new(start: impl Fn() -> RushRun + Send + Sync + 'static) -> Self {
        Self { start: Arc::new(start) }
    }
}

impl std::fmt::Debug for Rush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rush")
    }
}

/// The run that goes on, or the last one.
#[derive(Debug, Clone, Default)]
pub(crate) struct RushDesk(Arc<Mutex<Stand>>);

#[derive(Debug, Default)]
enum Stand {
    #[default]
    Never,
    Running(Instant),
    Ended(Result<Value, String>),
}

impl RushDesk {
    /// Starts a run unless one goes on.
    pub(crate) fn start(&self, rush: &Rush) {
        {
            let mut stand = self.lock();
            if matches!(*stand, Stand::Running(_)) {
                return;
            }
            *stand = Stand::Running(Instant::now());
        }
        let (run, desk) = ((rush.start)(), self.clone());
        // It ends by its own clock, in seconds, and what became of it stands on the desk.
        tokio::spawn(async move {
            let ended = tokio::spawn(run).await.unwrap_or_else(|_| Err("the run broke down".to_owned()));
            *desk.lock() = Stand::Ended(ended);
        });
    }

    /// How it stands, as the console reads it.
    pub(crate) fn show(&self) -> Value {
        match &*self.lock() {
            Stand::Never => json!({"state": "never"}),
            Stand::Running(begun) => {
                json!({"state": "running", "running_ms": begun.elapsed().as_millis() as u64})
            }
            Stand::Ended(Ok(report)) => json!({"state": "done", "report": report}),
            Stand::Ended(Err(words)) => json!({"state": "failed", "detail": words}),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_run_at_a_time_and_its_report_stays() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let receiver = Mutex::new(Some(receiver));
        let rush = Rush::new(move || {
            let go = receiver.lock().unwrap().take().expect("started once only");
            Box::pin(async move { go.await.map(|()| json!(3)).map_err(|error| error.to_string()) })
        });
        let desk = RushDesk::default();
        assert_eq!(desk.show()["state"], "never");
        desk.start(&rush);
        desk.start(&rush);
        assert_eq!(desk.show()["state"], "running");
        sender.send(()).unwrap();
        while desk.show()["state"] == "running" {
            tokio::task::yield_now().await;
        }
        assert_eq!(desk.show(), json!({"state": "done", "report": 3}));
    }
}
