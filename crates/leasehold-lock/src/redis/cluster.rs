//! Clients of a cluster, made in tasks of their own: whoever wants one may give up long before it is there, and the next
//! one goes on waiting for the same.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{ConnectionInfo, PushInfo, PushKind};
use tokio::task::JoinSet;

use super::failure::failure;
use super::keys;
use super::servers::{self, ANSWER_TIME_MAX};
use super::transport::Transport;
use crate::error::StoreError;

/// A server that is silent is waited for twice: as one of the URL's, and as one of those that the others tell of.
const TIME_MAX: Duration = Duration::from_secs(4);
const _: () = assert!(servers::CLUSTER_CONNECT_TIME_MAX.as_millis() * 2 < TIME_MAX.as_millis());

/// A client for commands. It counts the connections that it loses.
pub(super) async fn client(
    nodes: Vec<ConnectionInfo>,
    transport: Transport,
    losses: Arc<AtomicU64>,
) -> Result<ClusterConnection, StoreError> {
    let builder = servers::cluster(&nodes, &transport);
    made(builder.push_sender(move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            losses.fetch_add(1, Ordering::AcqRel);
        }
        Ok::<(), redis::aio::SendError>(())
    }))
    .await
}

/// What a client is made with becomes one, in time.
pub(super) async fn made(builder: ClusterClientBuilder) -> Result<ClusterConnection, StoreError> {
    let connecting = async { builder.build()?.get_async_connection().await };
    match tokio::time::timeout(TIME_MAX, connecting).await {
        Ok(client) => client.map_err(failure),
        Err(elapsed) => Err(StoreError::Unknown(elapsed.into())),
    }
}

/// Whether the slot's server answers this client.
pub(super) async fn answers(mut client: ClusterConnection, slot: u16) -> bool {
    let look = redis::cmd("GET").arg(keys::guard(slot)).to_owned();
    let answer =
        tokio::time::timeout(ANSWER_TIME_MAX, look.query_async::<Option<Vec<u8>>>(&mut client)).await;
    // A refusal shows that it is there.
    answer.is_ok_and(|answer| !matches!(answer.map_err(failure), Err(StoreError::Unknown(_))))
}

/// What is under way already, or else what is begun now. It goes on when nobody waits for it any more.
pub(super) async fn shared<T: Send + 'static>(
    under_way: &mut JoinSet<Result<T, StoreError>>,
    begin: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    // That it failed before this caller came is no answer to this caller.
    if let Some(Ok(Ok(made))) = under_way.try_join_next() {
        return Ok(made);
    }
    if under_way.is_empty() {
        under_way.spawn(begin);
    }
    match under_way.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(ended)) => Err(StoreError::Unknown(ended.into())),
        None => Err(StoreError::Unknown("nothing is under way".into())),
    }
}
