//! Three servers, two clients, and what is between them, packed into one number.

use crate::packed::{
    ACTIVE_AT_CRASH, AFTER, ALL_AT, ALWAYS, COUNTER, CRASHED, DUPLICATES, FENCE, FENCE_BEFORE, Field,
    HIGHEST, LOCK, OLDER_RAISE, OUT, PHASE, RAISE, SERVER_BITS, SERVER_MASK, VOTE,
};

const SERVERS: usize = 3;
const CLIENTS: usize = 2;
const QUORUM: usize = 2;

/// Phases of a client.
const IDLE: u8 = 0;
const VOTING: u8 = 1;
const RAISING: u8 = 2;
const RAISING_AGAIN: u8 = 3;
const GRANTED: u8 = 4;
const GIVEN_UP: u8 = 5;

/// A message: not there, on its way to the server, answered and known to the client, done with no answer
/// that matters; for raises also refused; above that, an answer on its way with the counter it carries.
const NOTHING: u8 = 0;
const SENT: u8 = 1;
const KNOWN: u8 = 2;
const DONE: u8 = 3;
const REFUSED: u8 = 4;
const AGREED: u8 = 5;
const CARRIES: u8 = 6;

/// How a server counts in the second round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    /// There is no second round: every vote counts up, and the highest is the fence.
    Naive,
    /// The counter becomes the fence proposed if that is higher; the server agrees in any case.
    Max,
    /// The server agrees only to what is higher than its counter.
    Strict,
}

/// Whose agreement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voters {
    Any,
    /// Only servers whose counter entered the proposal.
    OfTheFirstRound,
}

/// What becomes of a server that forgets everything, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amnesia {
    Never,
    Unnoticed,
    CopiedAtOnce,
    /// It is out until every acquisition of before is over, and then copies the others.
    Quarantined,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) counting: Counting,
    pub(crate) voters: Voters,
    pub(crate) owner_is_checked: bool,
    pub(crate) proposals: u8,
    pub(crate) duplicates: u8,
    pub(crate) amnesia: Amnesia,
    /// Whoever was granted a lock sets it again, on any server and at any time, as long as nobody else has it there.
    pub(crate) heals: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct World(pub(super) u128);

impl World {
    pub(crate) fn new(state: u128) -> Self {
        Self(state)
    }

    pub(crate) fn start(rules: Rules) -> Self {
        let mut world = Self(0);
        world.set(ALL_AT, ALWAYS, 1);
        world.set(ALL_AT, DUPLICATES, rules.duplicates);
        world
    }

    /// The same for all orders of the servers, which differ in nothing.
    pub(crate) fn canonical(self) -> u128 {
        let server = |index: u32| self.0 >> (index * SERVER_BITS) & SERVER_MASK;
        let (mut a, mut b, mut c) = (server(0), server(1), server(2));
        if a > b {
            (a, b) = (b, a);
        }
        if b > c {
            (b, c) = (c, b);
        }
        if a > b {
            (a, b) = (b, a);
        }
        let rest = self.0 >> (3 * SERVER_BITS) << (3 * SERVER_BITS);
        rest | a | b << SERVER_BITS | c << (2 * SERVER_BITS)
    }

    /// The fences of two acquisitions that must not have them.
    pub(crate) fn broken(self) -> Option<(u8, u8)> {
        if (0..CLIENTS).any(|client| self.client(client, PHASE) != GRANTED) {
            return None;
        }
        let (a, b) = (self.client(0, FENCE), self.client(1, FENCE));
        let a_is_late = self.all(AFTER, 0) == 1;
        let b_is_late = self.all(AFTER, 1) == 1;
        (a == b || a_is_late && a < b || b_is_late && b < a).then_some((a, b))
    }

    /// All that can happen next.
    pub(crate) fn steps(self, rules: Rules, next: &mut Vec<World>) {
        for client in 0..CLIENTS {
            self.client_steps(rules, client, next);
        }
        for server in 0..SERVERS {
            self.server_steps(rules, server, next);
            for client in 0..CLIENTS {
                self.message_steps(rules, server, client, next);
            }
        }
    }

    fn client_steps(self, rules: Rules, client: usize, next: &mut Vec<World>) {
        let count = |what: fn(World, usize, usize) -> bool| {
            (0..SERVERS).filter(|&server| what(self, server, client)).count()
        };
        let voted = |world: World, server, client| world.message(server, client, VOTE) == KNOWN;
        let agreed = |world: World, server, client| world.message(server, client, RAISE) == KNOWN;
        let agreed_twice = |world: World, server, client| {
            world.message(server, client, RAISE) == KNOWN && world.message(server, client, VOTE) == KNOWN
        };
        let phase = self.client(client, PHASE);
        match phase {
            IDLE => {
                let mut world = self;
                world.set_client(client, PHASE, VOTING);
                world.set_all(AFTER, client, u8::from(self.client(1 - client, PHASE) == GRANTED));
                (0..SERVERS).for_each(|server| world.set_message(server, client, VOTE, SENT));
                next.push(world);
            }
            VOTING if count(voted) >= QUORUM => {
                let highest = self.client(client, HIGHEST);
                next.push(match rules.counting {
                    Counting::Naive => self.granted(client, highest),
                    Counting::Max | Counting::Strict => self.propose(rules, client, highest + 1, RAISING),
                });
            }
            RAISING | RAISING_AGAIN => {
                let enough = match rules.voters {
                    Voters::Any => count(agreed) >= QUORUM,
                    Voters::OfTheFirstRound => count(agreed_twice) >= QUORUM,
                };
                if enough {
                    next.push(self.granted(client, self.client(client, FENCE)));
                }
                // One of the two is enough to see what a repeated proposal does, and all that fits.
                if phase == RAISING && client == 0 && rules.proposals > 1 {
                    let outbid = self.client(client, HIGHEST).max(self.client(client, FENCE)) + 1;
                    next.push(self.propose(rules, client, outbid, RAISING_AGAIN));
                }
            }
            _ => {}
        }
        if matches!(phase, VOTING | RAISING | RAISING_AGAIN) && rules.amnesia == Amnesia::Quarantined {
            // Giving up only matters to whoever waits for it: otherwise it is the same as doing nothing.
            let mut world = self;
            world.set_client(client, PHASE, GIVEN_UP);
            next.push(world.without_answers(client));
        }
    }

    fn granted(mut self, client: usize, fence: u8) -> Self {
        self.set_client(client, PHASE, GRANTED);
        self.set_client(client, FENCE, fence);
        self.without_answers(client)
    }

    fn propose(mut self, rules: Rules, client: usize, fence: u8, phase: u8) -> Self {
        assert!(fence < 7, "the counters are too small for this");
        self.set_client(client, FENCE_BEFORE, self.client(client, FENCE));
        self.set_client(client, FENCE, fence);
        self.set_client(client, PHASE, phase);
        for server in 0..SERVERS {
            let is_late = self.message(server, client, RAISE) == SENT;
            self.set_message(server, client, OLDER_RAISE, u8::from(is_late));
            self.set_message(server, client, RAISE, SENT);
            let vote = self.message(server, client, VOTE);
            let counts = rules.voters == Voters::OfTheFirstRound && vote == KNOWN;
            if vote != SENT && !counts {
                self.set_message(server, client, VOTE, DONE);
            }
        }
        self
    }

    /// A client that is done reads no more answers; its requests may still arrive.
    fn without_answers(mut self, client: usize) -> Self {
        self.set_client(client, HIGHEST, 0);
        for server in 0..SERVERS {
            for field in [VOTE, RAISE] {
                if self.message(server, client, field) > SENT {
                    self.set_message(server, client, field, DONE);
                }
            }
        }
        self
    }

    fn server_steps(self, rules: Rules, server: usize, next: &mut Vec<World>) {
        if self.server(server, LOCK) != 0 {
            let mut world = self;
            world.set_server(server, LOCK, 0);
            next.push(world);
        }
        let others = (0..SERVERS).filter(|&other| other != server);
        let highest = others.map(|other| self.server(other, COUNTER)).max().unwrap_or_default();
        if rules.amnesia != Amnesia::Never && self.all(CRASHED, 0) == 0 {
            let mut world = self;
            world.set_all(CRASHED, 0, 1);
            world.set_server(server, LOCK, 0);
            world.set_server(server, COUNTER, 0);
            match rules.amnesia {
                Amnesia::Never | Amnesia::Unnoticed => {}
                Amnesia::CopiedAtOnce => world.set_server(server, COUNTER, highest),
                Amnesia::Quarantined => {
                    world.set_server(server, OUT, 1);
                    for client in 0..CLIENTS {
                        world.set_all(ACTIVE_AT_CRASH, client, u8::from(self.is_active(client)));
                    }
                }
            }
            next.push(world);
        }
        let is_over = |client| self.all(ACTIVE_AT_CRASH, client) == 0 || !self.is_active(client);
        if self.server(server, OUT) == 1 && (0..CLIENTS).all(is_over) {
            let mut world = self;
            world.set_server(server, OUT, 0);
            world.set_server(server, COUNTER, highest);
            (0..CLIENTS).for_each(|client| world.set_all(ACTIVE_AT_CRASH, client, 0));
            next.push(world);
        }
    }

    fn message_steps(self, rules: Rules, server: usize, client: usize, next: &mut Vec<World>) {
        let phase = self.client(client, PHASE);
        let is_out = self.server(server, OUT) == 1;
        let (vote, raise) = (self.message(server, client, VOTE), self.message(server, client, RAISE));
        if !is_out && vote == SENT {
            next.push(self.vote(rules, server, client));
        }
        if !is_out && raise == SENT {
            next.push(self.raise(rules, server, client, self.client(client, FENCE), RAISE));
        }
        if !is_out && self.message(server, client, OLDER_RAISE) == 1 {
            next.push(self.raise(rules, server, client, self.client(client, FENCE_BEFORE), OLDER_RAISE));
        }
        if rules.heals && !is_out && phase == GRANTED && self.server(server, LOCK) == 0 {
            let mut world = self;
            world.set_server(server, LOCK, owner(client));
            next.push(world);
        }
        if phase == VOTING && vote >= CARRIES {
            let mut world = self;
            world.set_message(server, client, VOTE, KNOWN);
            world.set_client(client, HIGHEST, self.client(client, HIGHEST).max(vote - CARRIES));
            next.push(world);
        }
        if matches!(phase, RAISING | RAISING_AGAIN) && raise == AGREED {
            let mut world = self;
            world.set_message(server, client, RAISE, KNOWN);
            next.push(world);
        }
        if matches!(phase, RAISING | RAISING_AGAIN) && raise >= CARRIES {
            let mut world = self;
            world.set_message(server, client, RAISE, REFUSED);
            world.set_client(client, HIGHEST, self.client(client, HIGHEST).max(raise - CARRIES));
            next.push(world);
        }
        let left = self.all(DUPLICATES, 0);
        if left > 0 && !is_out {
            let mut world = self;
            world.set_all(DUPLICATES, 0, left - 1);
            // What arrives a second time has an answer, too, but the client has matched the first one.
            if vote > SENT {
                let mut again = world.vote(rules, server, client);
                again.set_message(server, client, VOTE, vote);
                next.push(again);
            }
            if raise > SENT {
                let mut again = world.raise(rules, server, client, self.client(client, FENCE), RAISE);
                again.set_message(server, client, RAISE, raise);
                next.push(again);
                // Or it is the first answer that was lost.
                if raise > KNOWN {
                    next.push(world.raise(rules, server, client, self.client(client, FENCE), RAISE));
                }
            }
        }
    }

    fn vote(mut self, rules: Rules, server: usize, client: usize) -> Self {
        let (holder, me) = (self.server(server, LOCK), owner(client));
        let mut answer = DONE;
        if holder == 0 || holder == me {
            self.set_server(server, LOCK, me);
            if rules.counting == Counting::Naive && holder == 0 {
                self.set_server(server, COUNTER, self.server(server, COUNTER) + 1);
            }
            if self.client(client, PHASE) == VOTING {
                answer = CARRIES + self.server(server, COUNTER);
            }
        }
        self.set_message(server, client, VOTE, answer);
        self
    }

    fn raise(mut self, rules: Rules, server: usize, client: usize, fence: u8, message: Field) -> Self {
        let counter = self.server(server, COUNTER);
        let is_owner = !rules.owner_is_checked || self.server(server, LOCK) == owner(client);
        let answer = if !is_owner {
            DONE
        } else if rules.counting == Counting::Strict && counter >= fence {
            CARRIES + counter
        } else {
            self.set_server(server, COUNTER, counter.max(fence));
            AGREED
        };
        let is_read = matches!(self.client(client, PHASE), RAISING | RAISING_AGAIN);
        match message.at == RAISE.at {
            true => self.set_message(server, client, RAISE, if is_read { answer } else { DONE }),
            false => self.set_message(server, client, OLDER_RAISE, NOTHING),
        }
        self
    }

    fn is_active(self, client: usize) -> bool {
        matches!(self.client(client, PHASE), VOTING | RAISING | RAISING_AGAIN)
    }
}

fn owner(client: usize) -> u8 {
    client as u8 + 1
}
