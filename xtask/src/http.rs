//! Just enough HTTP to ask a server on loopback for something small.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

const PATIENCE: Duration = Duration::from_secs(10);

/// What a server said.
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body as text.
    pub(crate) body: String,
}

impl Answer {
    /// The first string with this name in the JSON body. Good for ids, which need no unescaping.
    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        let (_, after) = self.body.split_once(&format!("\"{name}\":\""))?;
        after.split_once('"').map(|(value, _)| value)
    }
}

/// `GET path`.
pub(crate) fn get(server: SocketAddr, path: &str) -> Result<Answer> {
    exchange(server, &format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n"))
}

/// `POST path` with a JSON body and further header lines, each ended by CR LF.
pub(crate) fn post(server: SocketAddr, path: &str, headers: &str, body: &str) -> Result<Answer> {
    let length = body.len();
    exchange(
        server,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ),
    )
}

fn exchange(server: SocketAddr, request: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).context("no whole answer")?;
    parse(&String::from_utf8_lossy(&bytes))
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    let status =
        head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("an answer without a status")?;
    Ok(Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_named_strings() {
        let answer = parse("HTTP/1.1 201 Created\r\nA: b\r\n\r\n{\"hold_id\":\"h1\",\"version\":1}").unwrap();
        assert_eq!(answer.status, 201);
        assert_eq!(answer.string("hold_id"), Some("h1"));
        assert_eq!(answer.string("secret"), None);
    }
}
