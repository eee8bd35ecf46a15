//! The peer over HTTP: an axum route that reads its body and gives a fixed answer of the size asked for.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::net::TcpListener;

/// The answers: a refusal's size and a grant's.
#[derive(Clone)]
struct Answers {
    refusal: Bytes,
    grant: Bytes,
}

/// As long as what Leasehold answers to the benchmark's requests; see `http.rs`.
pub(crate) const REFUSAL_BYTES: usize = 124;
pub(crate) const GRANT_BYTES: usize = 330;

/// Serves until it is killed, and prints its address first.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let answers =
        Answers { refusal: vec![b'x'; REFUSAL_BYTES].into(), grant: vec![b'x'; GRANT_BYTES].into() };
    let router = Router::new()
        .route("/v1/events/{event}/refused", post(refused))
        .route("/v1/events/{event}/granted", post(granted))
        .with_state(answers);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn refused(State(answers): State<Answers>, _body: Bytes) -> Response {
    answer(StatusCode::CONFLICT, answers.refusal)
}

async fn granted(State(answers): State<Answers>, _body: Bytes) -> Response {
    answer(StatusCode::CREATED, answers.grant)
}

fn answer(status: StatusCode, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response.headers_mut().insert("x-request-id", HeaderValue::from_static("0123456789abcdef0"));
    response
}
