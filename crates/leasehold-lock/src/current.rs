//! The connection there is, until it is of no more use.
//!
//! Whoever asks may give up before any time-out of the connection: a renewal of a short lease does. So it is watched
//! here: a connection on which questions were open for long and none was answered is left, whoever gave them up. One that
//! leads to several servers is watched in parts, too: one of them may be silent while the others answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use crate::silence::End;
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
    /// Of each part that was asked and has not answered since.
    parts: HashMap<u16, Silence>,
    /// A part that is silent for too long, while others answer.
    silent_part: Option<u16>,
}

/// A question under way.
pub(crate) struct Asking<'a, T> {
    current: &'a Current<T>,
    generation: u64,
    part: Option<u16>,
    end: End,
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
        *self.lock() = Some(Inner::new(generation, connection));
    }

    /// The same, unless another than this one is there by now.
    #[cfg(feature = "redis")]
    pub(crate) fn replace(&self, before: u64, generation: u64, connection: T) -> bool {
        let mut inner = self.lock();
        let is_there = inner.as_ref().is_some_and(|inner| inner.generation == before);
        if is_there {
            *inner = Some(Inner::new(generation, connection));
        }
        is_there
    }

    /// A part that is silent for too long. Told once, and again when it is asked and still does not answer.
    #[cfg(feature = "redis")]
    pub(crate) fn take_silent_part(&self) -> Option<u16> {
        self.lock().as_mut()?.silent_part.take()
    }

    /// Has whoever asks next connect anew, unless that has happened.
    pub(crate) fn leave(&self, generation: u64) {
        self.lock().take_if(|inner| inner.generation == generation);
    }

    /// Told that something is about to be asked, of this part if it has parts.
    pub(crate) fn asks(&self, generation: u64, part: Option<u16>) -> Asking<'_, T> {
        if let Some(inner) = self.lock().as_mut().filter(|inner| inner.generation == generation) {
            let now = Instant::now();
            inner.silence.asked(now);
            if let Some(part) = part {
                let silence = inner.parts.entry(part).or_default();
                silence.asked(now);
                if silence.length(now) >= self.silence_max {
                    inner.silent_part = Some(part);
                }
            }
        }
        Asking { current: self, generation, part, end: End::GivenUp }
    }
}

impl<T> Inner<T> {
    fn new(generation: u64, connection: T) -> Self {
        let (silence, parts, silent_part) = (Silence::default(), HashMap::new(), None);
        Self { generation, connection, silence, parts, silent_part }
    }

    /// A question to this part has ended.
    fn part_ends(&mut self, part: u16, end: End, now: Instant, silence_max: Duration) {
        let Some(silence) = self.parts.get_mut(&part) else { return };
        if silence.ends(end, now) >= silence_max {
            self.silent_part = Some(part);
        } else if matches!(end, End::Answered) {
            self.silent_part.take_if(|silent| *silent == part);
            if silence.is_over() {
                self.parts.remove(&part);
            }
        }
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
        let silence_max = self.current.silence_max;
        if let Some(part) = self.part {
            inner.part_ends(part, self.end, now, silence_max);
        }
        if inner.silence.ends(self.end, now) >= silence_max {
            *current = None;
        }
    }
}
