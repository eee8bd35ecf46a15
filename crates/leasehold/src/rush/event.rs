//! The event the users fight for: made fresh, or an existing one; and how it stands on the server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_api::{
    Availability, Code, CreateEvent, EventView, LayoutSpec, PolicySpec, PoolCount, PoolSpec, SeatCounts,
    SectionSpec,
};
use leasehold_client::{Client, Request, Response};
use tokio::time::Instant;

/// Seats in a full row of a fresh event.
const SEATS_PER_ROW: u32 = 100;
/// The pool of a fresh event.
const POOL: &str = "floor";
/// How long a reading is tried, and the pause after each failure.
const READ_TIME_MAX: Duration = Duration::from_secs(15);
const READ_PAUSE: Duration = Duration::from_millis(250);

/// What to fight for, as asked for on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The event's id.
    pub(crate) event: String,
    /// How many seats.
    pub(crate) seats: u32,
    /// How many units of counted stock, if any. An event that exists keeps its own: its first pool is fought for.
    pub(crate) pool: Option<u32>,
}

/// What the users fight for.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    /// The event.
    pub(crate) event: String,
    /// Seats that were free before the run.
    pub(crate) seats: Vec<String>,
    /// The pool, if one is fought for.
    pub(crate) pool: Option<String>,
}

/// How an event stands on the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// The seats in numbers, as the event says.
    pub(crate) seats: SeatCounts,
    /// The seats in numbers, as the availability says.
    pub(crate) availability: SeatCounts,
    /// Every seat and its letter: `f` free, `h` held, `s` sold, `b` blocked.
    pub(crate) letters: BTreeMap<String, char>,
    /// The pools.
    pub(crate) pools: Vec<PoolCount>,
}

impl Snapshot {
    /// The pool with this id.
    pub(crate) fn pool(&self, id: &str) -> Option<&PoolCount> {
        self.pools.iter().find(|pool| pool.id == id)
    }

    /// Whether this seat is sold.
    pub(crate) fn is_sold(&self, seat: &str) -> bool {
        self.letters.get(seat) == Some(&'s')
    }
}

/// Creates the event unless it exists, reads it, and chooses the seats to fight for.
pub(crate) async fn open(client: &mut Client, wanted: &Wanted) -> anyhow::Result<(Offer, Snapshot)> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._~:@+-".contains(letter);
    ensure!(
        !wanted.event.is_empty() && wanted.event.chars().all(allowed),
        "`{}` is not an event's id",
        wanted.event
    );
    ensure!(
        wanted.seats > 0 || wanted.pool.is_some(),
        "there is nothing to fight for: give --seats or --pool"
    );

    let answer = client.send(Request::post("/v1/events", &creation(wanted))).await?;
    let exists = answer.code().as_deref() == Some(Code::EventExists.as_str());
    ensure!(answer.status == 201 || exists, "the event was not created: {}", words(&answer));

    let before = read(client, &wanted.event).await?;
    let free = before.letters.iter().filter(|(_, letter)| **letter == 'f');
    let seats: Vec<String> = free.map(|(seat, _)| seat.clone()).take(wanted.seats as usize).collect();
    ensure!(
        seats.len() == wanted.seats as usize,
        "{} seats are free in `{}`, and {} are asked for",
        seats.len(),
        wanted.event,
        wanted.seats
    );
    let pool = match (wanted.pool, before.pools.first()) {
        (None, _) => None,
        (Some(_), Some(pool)) => Some(pool.id.clone()),
        (Some(_), None) => bail!("`{}` exists and has no pool to fight for", wanted.event),
    };
    Ok((Offer { event: wanted.event.clone(), seats, pool }, before))
}

/// Reads how the event stands. A server that is just coming back gets a few seconds.
pub(crate) async fn read(client: &mut Client, event: &str) -> anyhow::Result<Snapshot> {
    let give_up_at = Instant::now() + READ_TIME_MAX;
    loop {
        match read_once(client, event).await {
            Ok(snapshot) => return Ok(snapshot),
            Err(error) if Instant::now() >= give_up_at => return Err(error),
            Err(_) => tokio::time::sleep(READ_PAUSE).await,
        }
    }
}

async fn read_once(client: &mut Client, event: &str) -> anyhow::Result<Snapshot> {
    let view: EventView = get(client, format!("/v1/events/{event}?seats=true")).await?;
    let availability: Availability = get(client, format!("/v1/events/{event}/availability")).await?;
    let letters = availability.seats.context("the availability does not show the seats")?;
    ensure!(
        letters.chars().count() == view.seat_ids.len(),
        "the availability shows other seats than the event"
    );
    Ok(Snapshot {
        seats: view.seats,
        availability: availability.counts,
        letters: view.seat_ids.into_iter().zip(letters.chars()).collect(),
        pools: availability.pools,
    })
}

async fn get<T: serde::de::DeserializeOwned>(client: &mut Client, path: String) -> anyhow::Result<T> {
    let answer = client.send(Request::get(path.as_str())).await?;
    ensure!(answer.status == 200, "GET {path}: {}", words(&answer));
    answer.json().with_context(|| format!("GET {path}: the answer is not what the API promises"))
}

/// A fresh event: full rows and one shorter row, and no limit per holder, since users go on after they won.
fn creation(wanted: &Wanted) -> CreateEvent {
    let section =
        |name: &str, rows, seats_per_row| SectionSpec { name: name.to_owned(), rows, seats_per_row };
    let mut sections = Vec::new();
    if wanted.seats >= SEATS_PER_ROW {
        sections.push(section("A", wanted.seats / SEATS_PER_ROW, SEATS_PER_ROW));
    }
    if !wanted.seats.is_multiple_of(SEATS_PER_ROW) {
        let name = if sections.is_empty() { "A" } else { "B" };
        sections.push(section(name, 1, wanted.seats % SEATS_PER_ROW));
    }
    CreateEvent {
        id: wanted.event.clone(),
        name: Some(format!("Rush for {} seats", wanted.seats)),
        layout: (!sections.is_empty()).then_some(LayoutSpec { sections }),
        pools: wanted.pool.map(|capacity| PoolSpec { id: POOL.to_owned(), capacity }).into_iter().collect(),
        policy: Some(PolicySpec { units_per_holder_max: Some(0), ..PolicySpec::default() }),
        ..CreateEvent::default()
    }
}

fn words(answer: &Response) -> String {
    match answer.json::<leasehold_api::Problem>() {
        Ok(problem) => {
            let detail = problem.detail.map(|detail| format!(": {detail}")).unwrap_or_default();
            format!("{} {}{detail}", answer.status, problem.code)
        }
        Err(_) => format!("status {}", answer.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_event_has_exactly_the_seats_asked_for() {
        for seats in [1, 3, 99, 100, 101, 1_000, 12_345] {
            let wanted = Wanted { event: "x".to_owned(), seats, pool: None };
            let sections = creation(&wanted).layout.unwrap().sections;
            assert_eq!(
                sections.iter().map(|section| section.rows * section.seats_per_row).sum::<u32>(),
                seats
            );
            assert!(sections.iter().all(|section| section.rows > 0 && section.seats_per_row > 0));
        }
    }

    #[test]
    fn stock_alone_needs_no_layout() {
        let event = creation(&Wanted { event: "x".to_owned(), seats: 0, pool: Some(50) });
        assert!(event.layout.is_none());
        assert_eq!(event.pools[0].capacity, 50);
    }
}
