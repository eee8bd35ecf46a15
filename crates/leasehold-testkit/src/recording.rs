//! A client that writes down everything it asks and is answered.

use std::time::Duration;

use leasehold_client::{Client, Request, Response, TransportError};

use crate::history::{Answer, History, Outcome, SentRequest};

/// A [`Client`] whose every call stands in a [`History`].
#[derive(Debug)]
pub struct RecordingClient {
    number: usize,
    address: String,
    client: Client,
    history: History,
}

impl RecordingClient {
    /// Client `number` of the server at `address`.
    pub fn new(address: &str, number: usize, history: &History) -> Self {
        let client = Client::new(address).with_timeout(Duration::from_secs(10));
        Self { number, address: address.to_owned(), client, history: history.clone() }
    }

    /// The same, giving up on an answer after `timeout` instead of 10 seconds.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.with_timeout(timeout);
        self
    }

    /// Where its server listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The history it writes.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Connects now; false when the server cannot be reached.
    pub async fn connect(&mut self) -> bool {
        self.client.connect().await.is_ok()
    }

    /// Sends one request and records what became of it.
    pub async fn send(&mut self, request: Request) -> Outcome {
        let begun = self.history.begin(self.number, sent(&request));
        let outcome = match self.client.send(request).await {
            Ok(response) => Outcome::Answer(answer(response)),
            Err(TransportError::Unreachable { .. }) => Outcome::NotSent,
            Err(TransportError::Unknown { .. }) => Outcome::NoAnswer,
            Err(TransportError::Malformed { source }) => panic!("a test made a malformed request: {source}"),
        };
        begun.finish(outcome.clone());
        outcome
    }
}

fn sent(request: &Request) -> SentRequest {
    let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
    SentRequest {
        method: request.method.to_string(),
        path: request.path.clone(),
        headers: request.headers.iter().map(lower).collect(),
        body: request.body.clone().unwrap_or_default(),
    }
}

fn answer(response: Response) -> Answer {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = response.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();
    Answer { status: response.status, headers, body: response.body }
}
