//! The connection there is, until it is of no more use.
//!
//! Whoever asks may give up before any time-out of the connection: a renewal of a short lease does. So it is watched
//! here: a connection on which questions were open for long and none was answered is left, whoever gave them up.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::silence::Silence;

/// A connection that can be left.
#[derive(Debug)]
pub(crate) struct Current<T> {
    inner: Mutex<Option<Inner<T>>>,
    silence_max: Duration,
}

#[derive(Debug)]
struct Inner<T> {
    generation: u64,
    connection: T,
    silence: Silence,
}

/// A question under way.
pub(crate) struct Asking<'a, T> {
    current: &'a Current<T>,
    generation: u64,
    end: End,
}

/// How a question ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// A refusal is an answer, too.
    Answered,
    /// There will be no answer.
    #[cfg(feature = "redis")]
    Failed,
    /// Nobody waits for it any more.
    GivenUp,
}

impl<T: Clone> Current<T> {
    /// None yet. One that is silent for so long is left.
    pub(crate) fn none(silence_max: Duration) -> Self {
        Self { inner: Mutex::new(None), silence_max }
    }

    pub(crate) fn get(&self) -> Option<(u64, T)> {
        self.lock().as_ref().map(|inner| (inner.generation, inner.connection.clone()))
    }

    pub(crate) fn set(&self, generation: u64, connection: T) {
        *self.lock() = Some(Inner { generation, connection, silence: Silence::default() });
    }

    /// Has whoever asks next connect anew, unless that has happened.
    #[cfg(feature = "redis")]
    pub(crate) fn leave(&self, generation: u64) {
        self.lock().take_if(|inner| inner.generation == generation);
    }

    /// Told that something is about to be asked.
    pub(crate) fn asks(&self, generation: u64) -> Asking<'_, T> {
        if let Some(inner) = self.lock().as_mut().filter(|inner| inner.generation == generation) {
            inner.silence.asked(Instant::now());
        }
        Asking { current: self, generation, end: End::GivenUp }
    }
}

impl<T> Current<T> {
    fn lock(&self) -> MutexGuard<'_, Option<Inner<T>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Asking<'_, T> {
    pub(crate) fn ends(mut self, end: End) {
        self.end = end;
    }
}

impl<T> Drop for Asking<'_, T> {
    fn drop(&mut self) {
        let (mut current, now) = (self.current.lock(), Instant::now());
        let Some(inner) = current.as_mut().filter(|inner| inner.generation == self.generation) else {
            return;
        };
        let silence = match self.end {
            End::Answered => inner.silence.answered(now),
            #[cfg(feature = "redis")]
            End::Failed => inner.silence.failed(now),
            End::GivenUp => inner.silence.given_up(now),
        };
        if silence >= self.current.silence_max {
            *current = None;
        }
    }
}
