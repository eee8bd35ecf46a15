//! Accepting connections, bounding them, and letting them finish when the server stops.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use leasehold_engine::Engine;
use leasehold_lock::Locker;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, AppState};
use crate::config::ServerConfig;
use crate::connection::{Signal, WatchedStream, Watchman};
use crate::limits::Exchange;
use crate::operators::Ends;
use crate::router::router;
use crate::service::RequestService;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 100;
/// What a connection too many is told.
const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
retry-after: 1\r\nconnection: close\r\ncontent-length: 125\r\n\r\n\
{\"type\":\"urn:leasehold:problem:overloaded\",\"title\":\"the server is overloaded\",\"status\":503,\"code\":\"overloaded\",\"detail\":null}";

/// Serves until `shutdown` is cancelled, then finishes what it accepted and returns.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<dyn Engine>,
    locker: Locker,
    config: ServerConfig,
    shutdown: CancellationToken,
) {
    let drain_timeout = config.drain_timeout;
    let app: App = Arc::new(AppState::new(engine, locker, config, shutdown.clone()));
    let watchman = Watchman::new();
    let stop_watching = CancellationToken::new();
    let watching = tokio::spawn({
        let (app, watchman, stop) = (Arc::clone(&app), Arc::clone(&watchman), stop_watching.clone());
        async move {
            watchman
                .watch(stop, |round| {
                    if round % 40 == 0 {
                        app.limits.tidy();
                        app.locks.tidy();
                    }
                })
                .await;
        }
    });
    let exchanging = app.config.gate.clone().map(|gate| {
        let exchange = Exchange::new(gate, app.engine.key_for("rate limits"));
        let (app, stop) = (Arc::clone(&app), stop_watching.clone());
        tokio::spawn(async move { exchange.run(&app.limits, stop).await })
    });
    let connections = TaskTracker::new();
    let service = router(Arc::clone(&app));
    let is_loopback_only = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: waiting lets connections end.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if connections.len() >= app.config.connections_max {
            app.meters.turned_away.inc();
            connections.spawn(turn_away(stream));
            continue;
        }
        let ends = Ends { peer: peer.ip().to_canonical(), is_loopback_only };
        let service = RequestService::new(&app, &service, ends, watchman.admit(&app.config));
        connections.spawn(connection(stream, service));
    }
    drop(listener);
    watchman.tell_all_to_finish();
    connections.close();
    if tokio::time::timeout(drain_timeout, connections.wait()).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "connections were still open at the end of the drain time"
        );
    }
    stop_watching.cancel();
    if let Err(error) = watching.await {
        tracing::error!(%error, "the watchman ended badly");
    }
    if let Some(exchanging) = exchanging
        && let Err(error) = exchanging.await
    {
        tracing::error!(%error, "the exchange of rate limits ended badly");
    }
}

async fn connection(stream: TcpStream, service: RequestService) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection went away");
        return;
    }
    let (app, phases) = (Arc::clone(service.app()), Arc::clone(service.phases()));
    app.meters.connections.inc();
    let stream = WatchedStream { stream: TokioIo::new(stream), phases: Arc::clone(&phases) };
    let connection = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Answers are small: one copy is cheaper than a list of buffers for the kernel.
        .writev(false)
        .serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let mut finishing = false;
    poll_fn(|cx| {
        match phases.signal(cx) {
            Signal::GoOn => {}
            Signal::Finish if finishing => {}
            Signal::Finish => {
                finishing = true;
                // What has arrived already is in progress: it must be read before the connection counts as idle.
                if connection.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                connection.as_mut().graceful_shutdown();
            }
            Signal::Late => {
                app.meters.timed_out.inc();
                return Poll::Ready(());
            }
        }
        connection.as_mut().poll(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
        })
    })
    .await;
    app.meters.connections.dec();
}

/// Says 503 to a connection too many, without reading from it.
async fn turn_away(mut stream: TcpStream) {
    let say = async {
        stream.write_all(TOO_MANY_CONNECTIONS).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(1), say).await {
        tracing::debug!(%error, "a connection too many went away");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canned_answer_has_the_length_it_claims() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: leasehold_api::Problem = serde_json::from_str(body).unwrap();
        assert_eq!(problem.code, "overloaded");
    }
}
