//! Signals that are passed on to the command.

use anyhow::Context;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// The signals as they come.
#[derive(Debug)]
pub(crate) struct Forwarded {
    signals: UnboundedReceiver<Signal>,
}

impl Forwarded {
    /// Begins to listen. A signal that is ignored, as under `nohup`, stays ignored: by this program and, because
    /// that is inherited, by the command.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let ignored = ignored_signals();
        let (sender, signals) = unbounded_channel();
        for passed_on in PASSED_ON {
            if ignored & (1 << (passed_on.as_raw() - 1)) != 0 {
                continue;
            }
            let mut stream = signal(SignalKind::from_raw(passed_on.as_raw()))
                .with_context(|| format!("cannot listen for signal {}", passed_on.as_raw()))?;
            let sender = sender.clone();
            // It ends with the process, or when nobody listens any more.
            tokio::spawn(
                async move { while stream.recv().await.is_some() && sender.send(passed_on).is_ok() {} },
            );
        }
        // Without a sender the channel would close, and closed channels are always ready.
        tokio::spawn(async move { sender.closed().await });
        Ok(Self { signals })
    }

    /// The next signal; for ever when none comes.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.signals.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}

/// One bit per signal, the first for signal 1.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
