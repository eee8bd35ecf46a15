//! The connection to Redis: one server, the master that Sentinel names, or a cluster.
//!
//! One multiplexed connection is shared by all tasks, with Nagle's delay off. A command without an answer is
//! never sent again here: whoever asked decides. (The cluster client does send again; every script of ours
//! is therefore safe to run twice: at worst something is counted twice for some seconds.)
//!
//! A cluster has a second connection, for listening only. A node that gives a slot away ends its
//! subscriptions with a message that the client takes for the answer to a command: on a connection that is
//! also used for commands, every answer after that would go to the wrong caller.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, PushInfo,
    PushKind, RedisError, RedisResult, ServerErrorKind, Value,
};

use super::BadRedisUrl;
use super::failure::failure;
use super::script::Lua;
use super::sentry::Sentry;
use super::servers::{ANSWER_TIME_MAX, CONNECT_TIME_MAX, Servers, cluster, sentinel_client};
use super::transport::Transport;
use crate::bells::Bells;
use crate::current::{Current, End};
use crate::error::StoreError;
use crate::redlock::Tally;

/// How long a cluster's client may leave questions open before another one takes its place: one that lost all its
/// connections may look for servers for ever, and in vain. In that time it has found them again, if it can.
const CLUSTER_SILENCE_MAX: Duration = Duration::from_secs(2);
/// The same for a connection to one server, whose renewals of short leases are given up sooner than answers count as lost.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// Beyond so many channels, those nobody listens to are left.
const CHANNELS_MAX: usize = 256;

/// Who is told what the servers say on their own.
#[derive(Debug, Clone)]
pub(crate) enum Ears {
    Bells(Bells),
    Tally { tally: Arc<Tally>, node: usize },
}

/// A connection to Redis that comes back after it broke: one server, the master that Sentinel names, or a cluster.
#[derive(Debug)]
pub struct Link {
    servers: Servers,
    current: Current<Connection>,
    connecting: tokio::sync::Mutex<Connecting>,
    /// How often one of a cluster's connections for commands was lost.
    losses: Arc<AtomicU64>,
    ears: Ears,
    channels: Arc<Channels>,
    /// Nobody subscribes while channels are left: of the two, whichever comes last counts.
    subscribing: tokio::sync::RwLock<()>,
    /// Of a cluster only.
    listening: tokio::sync::Mutex<Option<Connection>>,
    /// Of a store of locks only.
    sentry: Option<Arc<Sentry>>,
}

/// Who connects: one at a time.
#[derive(Debug, Default)]
struct Connecting {
    generation: u64,
    /// When the last attempt ended in vain, and why.
    failed: Option<(Instant, StoreError)>,
}

/// The channels that this process hears.
#[derive(Debug, Default)]
struct Channels {
    names: Mutex<HashSet<Arc<str>>>,
    /// One of them is not heard any more, although somebody may wait for what is said there.
    is_one_lost: AtomicBool,
}

#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A connection that is not replaced when it breaks.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    link: &'a Link,
    generation: u64,
    connection: Connection,
}

impl Link {
    /// A link to the servers of a URL, as for [`Redis::open`](super::Redis::open). Nothing is connected yet.
    pub fn open(url: &str) -> Result<Self, BadRedisUrl> {
        Ok(Self::new(super::url::servers(url)?, Ears::Bells(Bells::default())))
    }

    pub(crate) fn new(servers: Servers, ears: Ears) -> Self {
        let silence_max = match servers {
            Servers::Cluster { .. } => CLUSTER_SILENCE_MAX,
            Servers::One(_) | Servers::Sentinel { .. } => SILENCE_MAX,
        };
        Self {
            servers,
            current: Current::none(silence_max),
            connecting: tokio::sync::Mutex::default(),
            losses: Arc::default(),
            ears,
            channels: Arc::default(),
            subscribing: tokio::sync::RwLock::default(),
            listening: tokio::sync::Mutex::default(),
            sentry: None,
        }
    }

    /// The same, where locks are kept: has the log warn of servers that may lose them.
    pub(crate) fn with_sentry(self) -> Self {
        Self { sentry: Some(Arc::new(Sentry::new())), ..self }
    }

    /// Whether its servers share the keys by their slots.
    pub fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster { .. })
    }

    /// Whether it has a connection, which may be broken.
    pub fn is_connected(&self) -> bool {
        self.current.get().is_some()
    }

    /// Sends one command.
    pub(crate) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let mut server = self.pinned().await?;
        server.send(command).await
    }

    /// Sends commands of one slot, or of any slots when it is not a cluster. Not a transaction.
    pub(crate) async fn send_all<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, StoreError> {
        let (generation, mut connection) = self.connected().await?;
        let asking = self.current.asks(generation);
        let answer = match &mut connection {
            Connection::One(one) => commands.query_async(one).await,
            Connection::Cluster(cluster) => commands.query_async(cluster).await,
        };
        asking.ends(end_of(&answer));
        answer.map_err(|error| self.failed(error, generation))
    }

    /// Sends one command to one node of a cluster.
    pub(super) async fn send_to<T: FromRedisValue>(
        &self,
        (host, port): (&str, u16),
        command: Cmd,
    ) -> Result<T, StoreError> {
        let (generation, mut connection) = self.connected().await?;
        let asking = self.current.asks(generation);
        let answer = match &mut connection {
            Connection::One(one) => one.req_packed_command(&command).await,
            Connection::Cluster(cluster) => {
                let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
                cluster.route_command(command, RoutingInfo::SingleNode(node)).await
            }
        };
        asking.ends(end_of(&answer));
        self.understood(answer, generation)
    }

    /// For [`may_be_repeated`](Self::may_be_repeated).
    pub(super) fn moment(&self) -> (Instant, u64) {
        (Instant::now(), self.losses.load(Ordering::Acquire))
    }

    /// Whether an answer may be that to a repetition of what was sent since then. A cluster's client sends again when it has
    /// had no answer for long, or lost a connection, and does not tell.
    pub(super) fn may_be_repeated(&self, (sent, losses): (Instant, u64)) -> bool {
        self.is_cluster()
            && (sent.elapsed() >= ANSWER_TIME_MAX || self.losses.load(Ordering::Acquire) != losses)
    }

    /// Runs a script, and gives the server its text when it does not know it.
    ///
    /// In a cluster its keys are of one slot, and it may be run twice: the client asks again after a redirection.
    pub async fn run<T: FromRedisValue>(
        &self,
        script: &Lua,
        keys: &[impl redis::ToRedisArgs + Sync],
        args: &[impl redis::ToRedisArgs + Sync],
    ) -> Result<T, StoreError> {
        self.pinned().await?.run(script, keys, args).await
    }

    /// The connection there is now, and no other: what is sent through it reaches one life of one server.
    pub(crate) async fn pinned(&self) -> Result<Pinned<'_>, StoreError> {
        let (generation, connection) = self.connected().await?;
        Ok(Pinned { link: self, generation, connection })
    }

    /// Has what is said on a channel told to this process's bells.
    pub(crate) async fn listen(&self, channel: Arc<str>) -> Result<(), StoreError> {
        if self.channels().contains(&channel) {
            return Ok(());
        }
        let (generation, mut connection) = match &self.servers {
            Servers::Cluster { nodes, transport } => (0, self.listening_to(nodes, transport).await?),
            Servers::One(_) | Servers::Sentinel { .. } => self.connected().await?,
        };
        {
            let _subscribing = self.subscribing.read().await;
            let subscribed = connection.subscribe(&channel).await;
            subscribed.map_err(|error| self.failed(error, generation))?;
            self.channels().insert(channel);
        }
        self.leave_quiet_channels(connection).await;
        Ok(())
    }

    /// Has everybody who waits told again after channels of a cluster were lost. Tried anew whenever a waiter looks. (Any
    /// other connection hears them again before it is used.)
    pub(super) fn hear_again(self: &Arc<Self>) {
        if !self.is_cluster() || !self.channels.is_one_lost.swap(false, Ordering::Relaxed) {
            return;
        }
        let link = self.clone();
        tokio::spawn(async move {
            let Servers::Cluster { nodes, transport } = &link.servers else { return };
            // A new client finds out where the servers are now, and hears what is waited for and nothing else.
            link.listening.lock().await.take();
            match link.listening_to(nodes, transport).await {
                Ok(_) => link.ears.missed(),
                Err(_) => link.channels.is_one_lost.store(true, Ordering::Relaxed),
            }
        });
    }

    async fn listening_to(
        &self,
        nodes: &[ConnectionInfo],
        transport: &Transport,
    ) -> Result<Connection, StoreError> {
        let mut listening = self.listening.lock().await;
        if let Some(connection) = &*listening {
            return Ok(connection.clone());
        }
        let client = cluster(nodes, transport).push_sender(pushes(self.ears.clone(), self.channels.clone()));
        let connecting = async { client.build()?.get_async_connection().await };
        let mut connection = match tokio::time::timeout(CONNECT_TIME_MAX * 2, connecting).await {
            Ok(connection) => Connection::Cluster(connection.map_err(failure)?),
            Err(elapsed) => return Err(StoreError::Unknown(elapsed.into())),
        };
        // Whoever waited before it was made relies on being told. One channel that cannot be heard now does not keep the
        // others from it. They count as heard together with the client: this caller may be gone in the middle of it.
        let mut heard = HashSet::new();
        for channel in self.ears.bells().channels() {
            match connection.subscribe(&channel).await.map_err(failure) {
                Ok(()) => drop(heard.insert(channel)),
                Err(StoreError::Unknown(_)) => self.channels.is_one_lost.store(true, Ordering::Relaxed),
                // Without the right to it, nobody waits to be told.
                Err(_) => {}
            }
        }
        *self.channels() = heard;
        Ok(listening.insert(connection).clone())
    }

    async fn leave_quiet_channels(&self, mut connection: Connection) {
        if self.channels().len() <= CHANNELS_MAX {
            return;
        }
        let _leaving = self.subscribing.write().await;
        let quiet: Vec<Arc<str>> = {
            let mut channels = self.channels();
            let loud = self.ears.bells().channels();
            channels.extract_if(|channel| !loud.contains(channel)).collect()
        };
        for channel in quiet {
            // If it fails, the channel goes on being heard, which harms nobody.
            let _ = connection.unsubscribe(&channel).await;
        }
    }

    /// The connection there is, for whoever is about to ask something.
    async fn connected(&self) -> Result<(u64, Connection), StoreError> {
        if let Some(connected) = self.current.get() {
            self.glance(&connected.1);
            return Ok(connected);
        }
        let asked = Instant::now();
        let mut connecting = self.connecting.lock().await;
        if let Some(connected) = self.current.get() {
            return Ok(connected);
        }
        // Whoever waited while somebody tried in vain does not try after that one: many would wait for each other.
        if let Some((at, error)) = &connecting.failed
            && *at >= asked
        {
            return Err(error.to_another());
        }
        connecting.generation += 1;
        match self.connect_and_listen().await {
            Ok(connection) => {
                self.current.set(connecting.generation, connection.clone());
                self.glance(&connection);
                Ok((connecting.generation, connection))
            }
            Err(error) => {
                connecting.failed = Some((Instant::now(), error.to_another()));
                Err(error)
            }
        }
    }

    /// A connection that hears what is waited for, before anybody can use it: whoever waits relies on being told, and who
    /// connects may be gone in the middle of it.
    async fn connect_and_listen(&self) -> Result<Connection, StoreError> {
        let connecting = tokio::time::timeout(CONNECT_TIME_MAX * 2, self.connect());
        let connection = match connecting.await {
            Ok(connection) => connection.map_err(failure)?,
            Err(elapsed) => return Err(StoreError::Unknown(elapsed.into())),
        };
        // A cluster's channels have a connection of their own.
        let resumed: Vec<Arc<str>> = match self.is_cluster() {
            true => Vec::new(),
            false => self.channels().iter().cloned().collect(),
        };
        for channel in resumed {
            match connection.clone().subscribe(&channel).await {
                // The rights were taken away meanwhile; looking has to do.
                Err(error) if matches!(error.kind(), ErrorKind::Server(_)) => {
                    self.channels().remove(&channel);
                }
                subscribed => subscribed.map_err(failure)?,
            }
        }
        Ok(connection)
    }

    async fn connect(&self) -> RedisResult<Connection> {
        match &self.servers {
            Servers::One(server) => {
                let client = Client::open((**server).clone())?;
                let config = self.config();
                let one = client.get_multiplexed_async_connection_with_config(&config).await?;
                self.connected_to(Some(&client));
                Ok(Connection::One(one))
            }
            Servers::Sentinel { sentinels, master } => {
                let client = sentinel_client(sentinels, master)?.async_get_client().await?;
                let config = self.config();
                let one = client.get_multiplexed_async_connection_with_config(&config).await?;
                self.connected_to(Some(&client));
                Ok(Connection::One(one))
            }
            Servers::Cluster { nodes, transport } => {
                let losses = self.losses.clone();
                let client = cluster(nodes, transport).push_sender(move |push: PushInfo| {
                    if push.kind == PushKind::Disconnection {
                        losses.fetch_add(1, Ordering::AcqRel);
                    }
                    Ok::<(), redis::aio::SendError>(())
                });
                let cluster = client.build()?.get_async_connection().await?;
                // The other client, which only listens, has lost its servers too if the one before this has. Somebody may
                // be making one right now.
                if let Ok(mut listening) = self.listening.try_lock()
                    && listening.take().is_some()
                {
                    self.channels.is_one_lost.store(true, Ordering::Relaxed);
                }
                self.connected_to(None);
                Ok(Connection::Cluster(cluster))
            }
        }
    }

    fn connected_to(&self, client: Option<&Client>) {
        if let Some(sentry) = &self.sentry {
            sentry.connected_to(client.map(|client| client.get_connection_info().addr().to_string()));
        }
    }

    fn glance(&self, connection: &Connection) {
        if let Some(sentry) = &self.sentry {
            sentry.glance(connection);
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIME_MAX))
            .set_response_timeout(Some(ANSWER_TIME_MAX))
            .set_push_sender(pushes(self.ears.clone(), self.channels.clone()))
    }

    fn understood<T: FromRedisValue>(
        &self,
        answer: RedisResult<Value>,
        generation: u64,
    ) -> Result<T, StoreError> {
        let answer = answer.and_then(Value::extract_error);
        let answer = answer.map_err(|error| self.failed(error, generation))?;
        T::from_redis_value(answer).map_err(|error| StoreError::Refused(error.into()))
    }

    /// Sorts an error, and leaves a connection that is of no more use.
    fn failed(&self, error: RedisError, generation: u64) -> StoreError {
        let of_no_use = error.is_unrecoverable_error()
            || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
            || error.is_timeout();
        if of_no_use && !self.is_cluster() {
            self.current.leave(generation);
        }
        failure(error)
    }

    fn channels(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.channels.names()
    }
}

impl Channels {
    fn names(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pinned<'_> {
    /// A number that no other connection of this link has.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) async fn send<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let answer = self.ask(command).await;
        self.link.understood(answer, self.generation)
    }

    async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        let asking = self.link.current.asks(self.generation);
        let answer = self.connection.send(command).await;
        asking.ends(end_of(&answer));
        answer
    }

    pub(crate) async fn run<T: FromRedisValue>(
        &mut self,
        script: &Lua,
        keys: &[impl redis::ToRedisArgs + Sync],
        args: &[impl redis::ToRedisArgs + Sync],
    ) -> Result<T, StoreError> {
        let mut command = script.by_hash(keys, args);
        for _ in 0..2 {
            match self.ask(&command).await.and_then(Value::extract_error) {
                Err(error) if is_unknown_script(&error) => {
                    command = script.by_text(keys, args);
                }
                answer => return self.link.understood(answer, self.generation),
            }
        }
        Err(StoreError::Refused("the server does not keep scripts".into()))
    }

    /// Runs a script only if the server knows it; `None` when it does not.
    pub(crate) async fn run_if_loaded<T: FromRedisValue>(
        &mut self,
        script: &Lua,
        keys: &[impl redis::ToRedisArgs + Sync],
        args: &[impl redis::ToRedisArgs + Sync],
    ) -> Result<Option<T>, StoreError> {
        let command = script.by_hash(keys, args);
        match self.ask(&command).await.and_then(Value::extract_error) {
            Err(error) if is_unknown_script(&error) => Ok(None),
            answer => self.link.understood(answer, self.generation).map(Some),
        }
    }
}

impl Connection {
    async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(one) => one.req_packed_command(command).await,
            Self::Cluster(cluster) => cluster.req_packed_command(command).await,
        }
    }

    /// Asks every master of a cluster, or the one server there is, which has this address. Answers by address.
    pub(super) async fn send_to_each(
        &mut self,
        address: &str,
        command: Cmd,
    ) -> RedisResult<Vec<(String, Value)>> {
        let answer = match self {
            Self::One(one) => {
                let answer = one.req_packed_command(&command).await?.extract_error()?;
                return Ok(vec![(address.to_owned(), answer)]);
            }
            Self::Cluster(cluster) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                cluster.route_command(command, masters).await?.extract_error()?
            }
        };
        Ok(Vec::<(String, Value)>::from_redis_value(answer)?)
    }

    async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::One(one) => one.subscribe(channel).await,
            Self::Cluster(cluster) => cluster.ssubscribe(channel).await,
        }
    }

    async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::One(one) => one.unsubscribe(channel).await,
            Self::Cluster(cluster) => cluster.sunsubscribe(channel).await,
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::One(_) => "Connection::One",
            Self::Cluster(_) => "Connection::Cluster",
        })
    }
}

/// A refusal shows that the server is there.
fn end_of<T>(answer: &RedisResult<T>) -> End {
    match answer {
        Err(error) if !matches!(error.kind(), ErrorKind::Server(_)) => End::Failed,
        _ => End::Answered,
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Passes on what the server says on its own. After a broken connection something may be lost, and a slot
/// that moved to another node is not told of any more.
fn pushes(
    ears: Ears,
    channels: Arc<Channels>,
) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> + Send + Sync + 'static {
    move |push| {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(what), ..]) => {
                ears.heard(&String::from_utf8_lossy(what));
            }
            (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
                let channel = String::from_utf8_lossy(channel);
                // Also said when this process left it, because nobody waits for it.
                if channels.names().remove(&*channel) | ears.bells().channels().contains(&*channel) {
                    channels.is_one_lost.store(true, Ordering::Relaxed);
                }
                ears.missed();
            }
            (PushKind::Disconnection, _) => {
                channels.is_one_lost.store(true, Ordering::Relaxed);
                ears.missed();
            }
            _ => {}
        }
        Ok(())
    }
}

impl Ears {
    fn heard(&self, what: &str) {
        match self {
            Self::Bells(bells) => bells.ring(what),
            Self::Tally { tally, node } => tally.heard(*node, what),
        }
    }

    fn missed(&self) {
        match self {
            Self::Bells(bells) => bells.ring_all(),
            Self::Tally { tally, .. } => tally.missed(),
        }
    }

    fn bells(&self) -> &Bells {
        match self {
            Self::Bells(bells) => bells,
            Self::Tally { tally, .. } => tally.bells(),
        }
    }
}
