//! The servers of one ledger as one buyer sees them: who gets no answer from one goes to the next.

use leasehold_client::Request;

use crate::history::Outcome;
use crate::recording::RecordingClient;

/// A client of each server, and the one in use.
#[derive(Debug)]
pub(crate) struct Doors {
    clients: Vec<RecordingClient>,
    place: usize,
}

impl Doors {
    /// Begins at the server at `place`, counted round.
    pub(crate) fn new(clients: Vec<RecordingClient>, place: usize) -> Self {
        let place = place % clients.len();
        Self { clients, place }
    }

    pub(crate) fn is_only_one(&self) -> bool {
        self.clients.len() == 1
    }

    /// Sends one request to the server in use.
    pub(crate) async fn send(&mut self, request: Request) -> Outcome {
        let outcome = self.clients[self.place].send(request).await;
        if !matches!(outcome, Outcome::Answer(_)) {
            self.place = (self.place + 1) % self.clients.len();
        }
        outcome
    }
}
