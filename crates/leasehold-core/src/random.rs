//! Random commands for the tests: the same seed gives the same commands.
//!
//! They are made to collide: few seats, few holders, short lives, ids that exist and ids that do not.

use std::sync::Arc;

use crate::{
    AmendHold, AtPaymentDeadline, BeginPayment, BlockId, BookingId, CancelBooking, Command, ConfirmHold,
    CreateBlock, CreateEvent, CreateHold, EventNo, EventPatch, HoldId, ItemRequest, Layout, Millis, Name,
    Policy, PolicyPatch, PoolNo, Reference, SeatNo, SectionNo, Text, Timestamp, UpdateEvent,
};

/// A stream of commands with the times to apply them at.
#[derive(Debug, Clone)]
pub struct RandomCommands {
    random: Random,
    now: u64,
    ids: u128,
    events: u32,
    holds: Vec<HoldId>,
    bookings: Vec<BookingId>,
    blocks: Vec<(EventNo, BlockId)>,
}

/// Splitmix64: small, seeded, the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

const SEATS: u32 = 12;

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl RandomCommands {
    /// The commands of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            now: 1_700_000_000_000,
            ids: u128::from(seed) << 64,
            events: 0,
            holds: Vec::new(),
            bookings: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The next command and its time.
    pub fn next_command(&mut self) -> (Timestamp, Command) {
        self.now += match self.random.below(10) {
            0..=3 => 0,
            4..=7 => self.random.below(400),
            8 => self.random.below(5_000),
            // Now and then the machine sleeps for longer than ended holds are remembered: a day, or a month.
            _ if self.random.once_in(15) => 25 * 60 * 60 * 1_000,
            _ if self.random.once_in(15) => 31 * 24 * 60 * 60 * 1_000,
            _ => self.random.below(90_000),
        };
        (Timestamp::from_millis(self.now), self.command())
    }

    fn command(&mut self) -> Command {
        if self.events == 0 || (self.events < 3 && self.random.once_in(40)) {
            return self.create_event();
        }
        match self.random.below(100) {
            0..=37 => self.create_hold(),
            38..=47 => self.amend(),
            48..=54 => Command::ReleaseHold(self.hold()),
            55..=65 => Command::BeginPayment(BeginPayment {
                hold: self.hold(),
                reference: self.payment(),
                max_wait: self.random.once_in(2).then(|| Millis(1_000 + self.random.below(20_000))),
            }),
            66..=71 => Command::PaymentFailed(self.hold(), self.payment()),
            72..=86 => self.confirm(),
            87..=91 => Command::CancelBooking(CancelBooking { booking: self.booking() }),
            92..=93 => self.block(),
            94..=95 => match self.blocks.is_empty() {
                true => self.block(),
                false => {
                    let place = self.random.below(self.blocks.len() as u64) as usize;
                    let (event, block) = self.blocks[place];
                    Command::RemoveBlock(event, block)
                }
            },
            96..=97 => Command::RevokeHold(self.hold(), None),
            _ => self.update_event(),
        }
    }

    fn create_event(&mut self) -> Command {
        self.events += 1;
        let section = Name::parse("A").expect("a name");
        let other = Name::parse("B").expect("a name");
        let layout = Layout::grid(&[(section, 2, 4), (other, 1, 4)]).expect("a small layout");
        assert_eq!(layout.seat_count(), SEATS);
        Command::CreateEvent(CreateEvent {
            id: Name::parse(&format!("event-{}", self.events)).expect("a name"),
            name: Text::parse("A random event").expect("a text"),
            layout: Arc::new(layout),
            pools: vec![
                (Name::parse("floor").expect("a name"), 5),
                (Name::parse("parking").expect("a name"), 2),
            ],
            policy: self.policy(),
        })
    }

    fn policy(&mut self) -> Policy {
        Policy {
            hold_ttl: Millis(1_000 + self.random.below(10_000)),
            hold_total_max: Millis(20_000),
            extends_max: 3,
            payment_max: Millis(30_000),
            units_per_holder_max: if self.random.once_in(2) { 4 } else { 0 },
            payments_in_flight_max: if self.random.once_in(2) { 1 } else { 0 },
            accept_late_payment: !self.random.once_in(4),
            at_payment_deadline: match self.random.once_in(3) {
                true => AtPaymentDeadline::Keep,
                false => AtPaymentDeadline::Expire,
            },
        }
    }

    fn create_hold(&mut self) -> Command {
        let id = HoldId::from_raw(self.id()).expect("not zero");
        self.holds.push(id);
        let (event, items) = (self.event(), self.items());
        let ttl = self.random.once_in(2).then(|| Millis(900 + self.random.below(15_000)));
        Command::CreateHold(CreateHold { event, id, items, holder: self.holder(), ttl })
    }

    fn amend(&mut self) -> Command {
        Command::AmendHold(AmendHold {
            hold: self.hold(),
            extend: self.random.once_in(2).then(|| Millis(self.random.below(30_000))),
            add: if self.random.once_in(3) { self.items() } else { Vec::new() },
            remove: if self.random.once_in(3) { self.items() } else { Vec::new() },
            version: self.random.once_in(5).then(|| self.random.below(3) as u32),
        })
    }

    fn confirm(&mut self) -> Command {
        let booking = BookingId::from_raw(self.id()).expect("not zero");
        self.bookings.push(booking);
        Command::ConfirmHold(ConfirmHold {
            hold: self.hold(),
            booking,
            payment_ref: (!self.random.once_in(4)).then(|| self.payment()),
            order_ref: None,
            items: self.random.once_in(5).then(|| self.items()),
        })
    }

    fn block(&mut self) -> Command {
        let id = BlockId::from_raw(self.id()).expect("not zero");
        let event = self.event();
        self.blocks.push((event, id));
        Command::CreateBlock(CreateBlock { event, id, items: self.items(), reason: None })
    }

    fn update_event(&mut self) -> Command {
        let patch = EventPatch {
            policy: self.random.once_in(2).then(|| PolicyPatch {
                hold_ttl: self.random.once_in(2).then(|| Millis(self.random.below(25_000))),
                units_per_holder_max: self.random.once_in(2).then(|| self.random.below(5) as u32),
                payments_in_flight_max: self.random.once_in(2).then(|| self.random.below(4) as u32),
                accept_late_payment: self.random.once_in(2).then(|| self.random.once_in(2)),
                ..PolicyPatch::default()
            }),
            capacities: match self.random.once_in(2) {
                true => vec![(PoolNo(self.random.below(2) as u32), self.random.below(8) as u32)],
                false => Vec::new(),
            },
            open: self.random.once_in(2).then(|| !self.random.once_in(3)),
        };
        Command::UpdateEvent(UpdateEvent { event: self.event(), patch })
    }

    fn items(&mut self) -> Vec<ItemRequest> {
        let count = 1 + self.random.below(3);
        (0..count)
            .map(|_| match self.random.below(8) {
                0..=4 => ItemRequest::Seat(SeatNo(self.random.below(u64::from(SEATS)) as u32)),
                5..=6 => ItemRequest::Pool(PoolNo(self.random.below(2) as u32), self.random.below(4) as u32),
                _ => ItemRequest::Best {
                    count: 1 + self.random.below(5) as u32,
                    section: self.random.once_in(2).then(|| SectionNo(self.random.below(2) as u32)),
                },
            })
            .collect()
    }

    fn event(&mut self) -> EventNo {
        EventNo(self.random.below(u64::from(self.events) + u64::from(self.random.clone().once_in(30))) as u32)
    }

    /// A recent hold, mostly; now and then one that never was.
    fn hold(&mut self) -> HoldId {
        if self.holds.is_empty() || self.random.once_in(30) {
            return HoldId::from_raw(7).expect("not zero");
        }
        let recent = self.holds.len().min(12) as u64;
        self.holds[self.holds.len() - 1 - self.random.below(recent) as usize]
    }

    fn booking(&mut self) -> BookingId {
        if self.bookings.is_empty() || self.random.once_in(30) {
            return BookingId::from_raw(7).expect("not zero");
        }
        let recent = self.bookings.len().min(12) as u64;
        self.bookings[self.bookings.len() - 1 - self.random.below(recent) as usize]
    }

    fn holder(&mut self) -> Option<Reference> {
        let holder = format!("holder-{}", self.random.below(4));
        (!self.random.once_in(5)).then(|| Reference::parse(&holder).expect("a reference"))
    }

    fn payment(&mut self) -> Reference {
        let payment = format!("payment-{}", self.random.below(6) + self.now / 60_000 * 6);
        Reference::parse(&payment).expect("a reference")
    }

    fn id(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }
}
