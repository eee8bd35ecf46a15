//! Appointments that need a doctor and a room at the same time.
//!
//! Two appointments collide when their times overlap, which no unique key can express. So whoever books locks
//! the doctor's calendar and the room's calendar, both at once and in no particular order, then looks for a
//! collision and writes.
//!
//! Run it: `cargo run -p leasehold-lock --example appointment`

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_lock::{BoxError, Locker, Memory};
use tokio::task::JoinSet;

const DOCTORS: [&str; 2] = ["doctor:lee", "doctor:okoye"];
const ROOMS: [&str; 2] = ["room:1", "room:2"];
/// Half an hour, in minutes.
const LENGTH: u32 = 30;

#[derive(Debug, Clone, Copy)]
struct Appointment {
    doctor: &'static str,
    room: &'static str,
    /// Minutes after the practice opens.
    begins: u32,
}

#[derive(Clone)]
struct Practice {
    locker: Locker,
    calendar: Arc<Mutex<Vec<Appointment>>>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let naive = Practice::open();
    let booked = naive.rush(|practice, wish| async move { practice.book_naively(wish).await }).await?;
    println!("without a lock: {booked} appointments, {} of them collide", naive.collisions());
    assert!(naive.collisions() > 0, "the gap between the two steps is wide enough to be seen");

    let careful = Practice::open();
    let booked = careful.rush(|practice, wish| async move { practice.book(wish).await }).await?;
    println!("with a lock:    {booked} appointments, {} of them collide", careful.collisions());
    assert!(booked > 0);
    assert_eq!(careful.collisions(), 0);
    Ok(())
}

impl Appointment {
    fn collides_with(&self, other: &Appointment) -> bool {
        let shares = self.doctor == other.doctor || self.room == other.room;
        shares && self.begins < other.begins + LENGTH && other.begins < self.begins + LENGTH
    }
}

impl Practice {
    fn open() -> Self {
        Self { locker: Locker::new(Memory::new()), calendar: Arc::default() }
    }

    /// The mistake: somebody else may write between the look and the writing.
    async fn book_naively(&self, wish: Appointment) -> Result<bool, BoxError> {
        if self.is_taken(&wish) {
            return Ok(false);
        }
        to_the_database_and_back().await;
        self.write(wish);
        Ok(true)
    }

    /// Both calendars are locked, or neither. Whoever locks the same two in the opposite order does not wait
    /// for ever: names are always taken in one order.
    async fn book(&self, wish: Appointment) -> Result<bool, BoxError> {
        let calendars = [wish.doctor, wish.room];
        let asked = self.locker.acquire(calendars).wait(Duration::from_secs(30)).await?;
        let Some(guard) = asked.granted() else { return Ok(false) };
        let booked = guard
            .run(async {
                let free = !self.is_taken(&wish);
                if free {
                    to_the_database_and_back().await;
                    self.write(wish);
                }
                free
            })
            .await?;
        guard.release().await?;
        Ok(booked)
    }

    fn is_taken(&self, wish: &Appointment) -> bool {
        self.calendar().iter().any(|booked| booked.collides_with(wish))
    }

    fn write(&self, appointment: Appointment) {
        self.calendar().push(appointment);
    }

    fn collisions(&self) -> usize {
        let calendar = self.calendar();
        let others = |index: usize| calendar[..index].iter();
        calendar
            .iter()
            .enumerate()
            .filter(|(index, one)| others(*index).any(|other| one.collides_with(other)))
            .count()
    }

    fn calendar(&self) -> std::sync::MutexGuard<'_, Vec<Appointment>> {
        self.calendar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Patients ask for every doctor, every room and every quarter of an hour of a morning, all at once.
    async fn rush<F>(&self, book: impl Fn(Practice, Appointment) -> F) -> Result<usize, BoxError>
    where
        F: Future<Output = Result<bool, BoxError>> + Send + 'static,
    {
        let mut patients = JoinSet::new();
        for begins in (0..240).step_by(15) {
            for doctor in DOCTORS {
                for room in ROOMS {
                    patients.spawn(book(self.clone(), Appointment { doctor, room, begins }));
                }
            }
        }
        let mut booked = 0;
        while let Some(patient) = patients.join_next().await {
            booked += usize::from(patient??);
        }
        Ok(booked)
    }
}

/// A database on another machine takes about so long to answer.
async fn to_the_database_and_back() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}
