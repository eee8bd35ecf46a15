//! HTTP by hand, for requests that no client library would send.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A connection on which bytes go out as they are.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// An answer taken apart by hand.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    /// The status.
    pub status: u16,
    /// The headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as far as it came.
    pub body: Vec<u8>,
    /// True when the server closed the connection within the time.
    pub closed: bool,
}

/// Sends bytes on a new connection and reads one answer; panics when none comes within `time_max`.
pub fn exchange(address: &str, request: &[u8], time_max: Duration) -> RawAnswer {
    let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    try_exchange(address, request, time_max)
        .unwrap_or_else(|| panic!("no answer within {time_max:?} to:\n{shown}"))
}

/// A request as bytes: `host` and `content-length` are added, `content-type` too if there is a body and no other.
pub fn request_bytes(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if !body.is_empty() && !typed {
        head.push_str("content-type: application/json\r\n");
    }
    if !body.is_empty() || matches!(method, "POST" | "PATCH") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// The same, where no answer is an answer too.
pub fn try_exchange(address: &str, request: &[u8], time_max: Duration) -> Option<RawAnswer> {
    let mut connection = RawConnection::open(address).ok()?;
    // The server may answer and close before it has read everything: then writing fails and reading does not.
    let _ = connection.write(request);
    connection.read_answer(time_max)
}

impl RawConnection {
    /// Connects.
    pub fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes our side only.
    pub fn half_close(&self) -> std::io::Result<()> {
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Reads one answer, or `None` when no complete head came in time.
    pub fn read_answer(&mut self, time_max: Duration) -> Option<RawAnswer> {
        let deadline = Instant::now() + time_max;
        let mut closed = false;
        while !self.is_complete() && !closed {
            match self.read_some(deadline) {
                Some(count) => closed = count == 0,
                None => break,
            }
        }
        let (mut answer, length) = parse(&self.received, closed)?;
        self.received.drain(..length.min(self.received.len()));
        if !closed && answer.closes() {
            answer.closed = self.closed_within(Duration::from_secs(2));
        }
        Some(answer)
    }

    /// Everything that arrives until `wanted` accepts it, the server closes, or time is up.
    pub fn read_until(&mut self, wanted: impl Fn(&[u8]) -> bool, time_max: Duration) -> Vec<u8> {
        let deadline = Instant::now() + time_max;
        while !wanted(&self.received) {
            match self.read_some(deadline) {
                Some(0) | None => break,
                Some(_) => {}
            }
        }
        self.received.clone()
    }

    /// True when the server closes the connection within `time_max`.
    pub fn closed_within(&mut self, time_max: Duration) -> bool {
        let deadline = Instant::now() + time_max;
        loop {
            match self.read_some(deadline) {
                Some(0) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// How many bytes came, 0 at the end of the connection, `None` when time is up.
    fn read_some(&mut self, deadline: Instant) -> Option<usize> {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        self.stream.set_read_timeout(Some(left)).ok()?;
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(count) => {
                assert!(self.received.len() + count <= ANSWER_BYTES_MAX, "an answer without end");
                self.received.extend_from_slice(&buffer[..count]);
                Some(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(_) => Some(0),
        }
    }

    fn is_complete(&self) -> bool {
        parse(&self.received, false).is_some_and(|(_, length)| length <= self.received.len())
    }
}

impl RawAnswer {
    /// A header's value by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The `code` of a problem document.
    pub fn code(&self) -> Option<String> {
        let problem: leasehold_api::Problem = serde_json::from_slice(&self.body).ok()?;
        Some(problem.code.into_owned())
    }

    fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// The answer at the beginning of `bytes` and its length, which may be more than there is yet.
fn parse(bytes: &[u8], closed: bool) -> Option<(RawAnswer, usize)> {
    let head_length = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..head_length]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let length: usize = length.unwrap_or(0);
    let end = bytes.len().min(head_length + length);
    let body = bytes[head_length..end].to_vec();
    Some((RawAnswer { status, headers, body, closed }, head_length + length))
}
