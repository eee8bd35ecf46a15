//! A client of the Leasehold HTTP API: one connection, typed answers, no hidden retries.
//!
//! A [`Client`] owns one keep-alive connection and sends one request at a time. It never repeats a
//! request by itself, because a request without an answer may have taken effect: see
//! [`TransportError`]. Repeat such a request with the same `Idempotency-Key`.

mod locks;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub use http::{HeaderMap, Method};
pub use locks::CallError;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One connection to one server.
#[derive(Debug)]
pub struct Client {
    authority: String,
    timeout: Duration,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// Headers beside `Host`, `Content-Length` and `Content-Type`.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: Option<Bytes>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The server could not be reached: the request was not sent.
    #[error("cannot connect to {authority}")]
    Unreachable {
        /// Where to.
        authority: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The request was sent, or part of it, and no answer came. It may have taken effect.
    #[error("no answer from {authority}; the request may have taken effect")]
    Unknown {
        /// Where to.
        authority: String,
        /// What happened.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The address or the request is not one.
    #[error("not a request that can be sent")]
    Malformed {
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Client {
    /// A client of the server at `address`: `http://127.0.0.1:7070` or `127.0.0.1:7070`. Connects when needed.
    pub fn new(address: &str) -> Self {
        let authority = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/').to_owned();
        Self { authority, timeout: Duration::from_secs(30), connection: None }
    }

    /// Gives up on an answer after `timeout` instead of 30 seconds.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects now, so that the first request does not pay for it.
    pub async fn connect(&mut self) -> Result<(), TransportError> {
        let unreachable = |source| TransportError::Unreachable { authority: self.authority.clone(), source };
        let connecting = tokio::time::timeout(self.timeout, TcpStream::connect(&self.authority));
        let stream = connecting.await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(std::io::Error::other(error)))?;
        // The task ends with the connection, and the connection with the sender.
        tokio::spawn(connection);
        self.connection = Some(sender);
        Ok(())
    }

    /// Sends one request and reads its answer.
    pub async fn send(&mut self, request: Request) -> Result<Response, TransportError> {
        self.send_within(request, self.timeout).await
    }

    /// The same, giving up on the answer after this time.
    async fn send_within(&mut self, request: Request, timeout: Duration) -> Result<Response, TransportError> {
        let http_request = self.build(request)?;
        let ready = match &mut self.connection {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !ready {
            self.connect().await?;
        }
        let Some(connection) = &mut self.connection else { unreachable!("connected just above") };
        let exchange = async {
            let response = connection.send_request(http_request).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body,
            })
        };
        let outcome = match tokio::time::timeout(timeout, exchange).await {
            Ok(outcome) => outcome,
            Err(elapsed) => Err(elapsed.into()),
        };
        outcome.map_err(|source| {
            self.connection = None;
            TransportError::Unknown { authority: self.authority.clone(), source }
        })
    }

    fn build(&self, request: Request) -> Result<http::Request<Full<Bytes>>, TransportError> {
        let mut builder = http::Request::builder()
            .method(request.method)
            .uri(request.path)
            .header(http::header::HOST, &self.authority);
        if request.body.is_some() {
            builder = builder.header(http::header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in request.headers {
            builder = builder.header(name, value);
        }
        builder
            .body(Full::new(request.body.unwrap_or_default()))
            .map_err(|error| TransportError::Malformed { source: error.into() })
    }
}

impl Request {
    /// A request without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    /// `GET path`.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// `POST path` with a JSON body.
    pub fn post(path: impl Into<String>, body: &impl serde::Serialize) -> Self {
        Self::new(Method::POST, path).json(body)
    }

    /// `PATCH path` with a JSON body.
    pub fn patch(path: impl Into<String>, body: &impl serde::Serialize) -> Self {
        Self::new(Method::PATCH, path).json(body)
    }

    /// `DELETE path`.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    /// The same with a JSON body.
    pub fn json(mut self, body: &impl serde::Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("wire types have string keys and no failing serializers");
        self.body = Some(bytes.into());
        self
    }

    /// The same with one more header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with the hold's secret.
    pub fn secret(self, secret: impl Into<String>) -> Self {
        self.header(leasehold_api::HOLD_SECRET, secret)
    }

    /// The same, repeatable under this key.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.header(leasehold_api::IDEMPOTENCY_KEY, key)
    }
}

impl Response {
    /// The body as a wire type.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// The `code` of a problem document.
    pub fn code(&self) -> Option<String> {
        self.json::<leasehold_api::Problem>().ok().map(|problem| problem.code.into_owned())
    }
}
