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
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, Pipeline, RedisError,
    RedisResult, ServerErrorKind, Value,
};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;

pub(crate) use super::ears::Ears;
use super::ears::{Channels, pushes};
use super::failure::failure;
use super::script::Lua;
use super::sentry::Sentry;
use super::servers::{ANSWER_TIME_MAX, CONNECT_TIME_MAX, Servers, sentinel_client};
use super::transport::Transport;
use super::{BadRedisUrl, cluster, keys};
use crate::bells::Bells;
use crate::current::{Current, End};
use crate::error::StoreError;

/// How long a cluster's client may leave questions open before another one takes its place: one that lost all its
/// connections may look for servers for ever, and in vain. In that time it has found them again, if it can. The same when
/// the server of one slot is silent: the client goes on asking it, and does not find out who has its slots.
const CLUSTER_SILENCE_MAX: Duration = Duration::from_secs(2);
/// The same for a connection to one server, whose renewals of short leases are given up sooner than answers count as lost.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// A slot whose server is silent is looked for again so long after it was looked for in vain.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Channels in one subscription, and subscriptions on their way at a time, when all of them are made again.
const CHANNELS_PER_COMMAND: usize = 256;
const SUBSCRIPTIONS_MAX: usize = 64;
/// Beyond so many channels, those nobody listens to are left.
const CHANNELS_MAX: usize = 256;
/// How long leaving channels may take, while nobody can begin to hear others.
const LEAVE_TIME_MAX: Duration = Duration::from_millis(500);

/// A connection to Redis that comes back after it broke: one server, the master that Sentinel names, or a cluster.
#[derive(Debug)]
pub struct Link {
    servers: Servers,
    current: Arc<Current<Connection>>,
    connecting: AsyncMutex<Connecting>,
    /// How many connections there were.
    generations: Arc<AtomicU64>,
    /// Looks for the slots of a server that is silent; one at a time.
    search: Mutex<JoinSet<()>>,
    /// When a connection was left last although its server answers.
    #[cfg(feature = "postgres")]
    looked_elsewhere: Mutex<Option<Instant>>,
    /// How often one of a cluster's connections for commands was lost.
    losses: Arc<AtomicU64>,
    ears: Ears,
    channels: Arc<Channels>,
    /// Nobody subscribes while channels are left: of the two, whichever comes last counts.
    subscribing: tokio::sync::RwLock<()>,
    /// Of a cluster only.
    listening: Arc<AsyncMutex<Listening>>,
    /// Of a store of locks only.
    sentry: Option<Arc<Sentry>>,
}

/// Who connects: one at a time.
#[derive(Debug, Default)]
struct Connecting {
    /// Of a cluster only.
    under_way: JoinSet<Result<ClusterConnection, StoreError>>,
    /// When the last attempt ended in vain, and why.
    failed: Option<(Instant, StoreError)>,
}

/// The client of a cluster that only listens.
#[derive(Debug, Default)]
struct Listening {
    client: Option<Connection>,
    under_way: JoinSet<Result<Connection, StoreError>>,
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
            current: Arc::new(Current::none(silence_max)),
            connecting: AsyncMutex::default(),
            generations: Arc::default(),
            search: Mutex::default(),
            #[cfg(feature = "postgres")]
            looked_elsewhere: Mutex::default(),
            losses: Arc::default(),
            ears,
            channels: Arc::default(),
            subscribing: tokio::sync::RwLock::default(),
            listening: Arc::default(),
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
        let slot = commands.cmd_iter().next().and_then(|first| connection.slot_of(first));
        let asking = self.current.asks(generation, slot);
        let answer = match &mut connection {
            Connection::One(one) => commands.query_async(one).await,
            Connection::Cluster(cluster) => commands.query_async(cluster).await,
        };
        asking.ends(end_of(&answer));
        answer.map_err(|error| self.failed(error, generation))
    }

    /// Asks all masters of a cluster what any of them can say, so that a silent one is not waited for.
    pub(super) async fn send_to_any<T: FromRedisValue>(&self, command: Cmd) -> Result<T, StoreError> {
        let (generation, mut connection) = self.connected().await?;
        let asking = self.current.asks(generation, None);
        let answer = match &mut connection {
            Connection::One(one) => one.req_packed_command(&command).await,
            Connection::Cluster(cluster) => {
                let any = (MultipleNodeRoutingInfo::AllMasters, Some(ResponsePolicy::OneSucceeded));
                cluster.route_command(command, RoutingInfo::MultiNode(any)).await
            }
        };
        asking.ends(end_of(&answer));
        self.understood(answer, generation)
    }

    /// Sends one command to one node of a cluster.
    pub(super) async fn send_to<T: FromRedisValue>(
        &self,
        (host, port): (&str, u16),
        command: Cmd,
    ) -> Result<T, StoreError> {
        let (generation, mut connection) = self.connected().await?;
        let asking = self.current.asks(generation, None);
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
    pub(super) async fn moment(&self) -> Result<(Instant, u64), StoreError> {
        // The time that connecting takes is not one in which something was sent.
        if self.is_cluster() && self.current.get().is_none() {
            self.connected().await?;
        }
        Ok((Instant::now(), self.losses.load(Ordering::Acquire)))
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
            let subscribed = connection.subscribe(vec![&*channel]).await;
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
            link.listening.lock().await.client.take();
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
        if let Some(connection) = &listening.client {
            return Ok(connection.clone());
        }
        let builder = super::servers::cluster(nodes, transport);
        let builder = builder.push_sender(pushes(self.ears.clone(), self.channels.clone()));
        let (ears, channels) = (self.ears.clone(), self.channels.clone());
        let connecting = async move {
            let connection = Connection::Cluster(cluster::made(builder).await?);
            // Whoever waited before it was made relies on being told. They count as heard together with the client.
            let heard = connection.hear(ears.bells().channels(), &channels).await?;
            *channels.names() = heard;
            Ok(connection)
        };
        let connection = cluster::shared(&mut listening.under_way, connecting).await?;
        Ok(listening.client.insert(connection).clone())
    }

    async fn leave_quiet_channels(&self, connection: Connection) {
        if self.channels().len() <= CHANNELS_MAX {
            return;
        }
        let _leaving = self.subscribing.write().await;
        let quiet: Vec<Arc<str>> = {
            let mut channels = self.channels();
            let loud = self.ears.bells().channels();
            channels.extract_if(|channel| !loud.contains(channel)).collect()
        };
        // If it fails, the channel goes on being heard, which harms nobody. Others must not wait for a silent server here.
        let leaving = quiet.iter().map(|channel| {
            let mut connection = connection.clone();
            async move { connection.unsubscribe(channel).await }
        });
        let _ = tokio::time::timeout(LEAVE_TIME_MAX, futures_util::future::join_all(leaving)).await;
    }

    /// The connection there is, for whoever is about to ask something.
    async fn connected(&self) -> Result<(u64, Connection), StoreError> {
        if let Some(connected) = self.current.get() {
            if let Connection::Cluster(_) = connected.1
                && let Some(slot) = self.current.take_silent_part()
            {
                self.look_for(slot, connected.0);
            }
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
        match self.connect_and_listen(&mut connecting).await {
            Ok(connection) => {
                let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
                self.current.set(generation, connection.clone());
                self.glance(&connection);
                Ok((generation, connection))
            }
            Err(error) => {
                connecting.failed = Some((Instant::now(), error.to_another()));
                Err(error)
            }
        }
    }

    /// Has another client take the place of one that a slot's server does not answer, once the slot answers that one.
    /// Until then the one there is stays: it is of use to all whose servers answer.
    fn look_for(&self, slot: u16, generation: u64) {
        let Servers::Cluster { nodes, transport } = &self.servers else { return };
        let mut search = self.search.lock().unwrap_or_else(PoisonError::into_inner);
        while search.try_join_next().is_some() {}
        if !search.is_empty() {
            return;
        }
        let (current, generations) = (self.current.clone(), self.generations.clone());
        let (listening, channels) = (self.listening.clone(), self.channels.clone());
        let connecting = cluster::client(nodes.clone(), transport.clone(), self.losses.clone());
        search.spawn(async move {
            match connecting.await {
                Ok(client) if cluster::answers(client.clone(), slot).await => {
                    let next = generations.fetch_add(1, Ordering::Relaxed) + 1;
                    if current.replace(generation, next, Connection::Cluster(client)) {
                        stop_listening(&listening, &channels);
                    }
                }
                _ => tokio::time::sleep(LOOK_AGAIN_AFTER).await,
            }
        });
    }

    /// Has others than the one there is looked for: its server answers, but was replaced.
    #[cfg(feature = "postgres")]
    pub(super) fn look_elsewhere(&self, slot: u16, generation: u64) {
        if self.is_cluster() {
            return self.look_for(slot, generation);
        }
        // Now and then: where no other is found, everybody else has use for the connection.
        let mut looked = self.looked_elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_none_or(|at| at.elapsed() >= LOOK_AGAIN_AFTER) {
            *looked = Some(Instant::now());
            self.current.leave(generation);
        }
    }

    /// A connection that hears what is waited for, before anybody can use it: whoever waits relies on being told, and who
    /// connects may be gone in the middle of it.
    async fn connect_and_listen(&self, connecting: &mut Connecting) -> Result<Connection, StoreError> {
        if let Servers::Cluster { nodes, transport } = &self.servers {
            let client = cluster::client(nodes.clone(), transport.clone(), self.losses.clone());
            let client = cluster::shared(&mut connecting.under_way, client).await?;
            stop_listening(&self.listening, &self.channels);
            self.connected_to(None);
            return Ok(Connection::Cluster(client));
        }
        let connecting = tokio::time::timeout(CONNECT_TIME_MAX * 2, self.connect());
        let connection = match connecting.await {
            Ok(connection) => Connection::One(connection.map_err(failure)?),
            Err(elapsed) => return Err(StoreError::Unknown(elapsed.into())),
        };
        // With those of waiters that are about to be heard over the connection before this one, and come too late there.
        let mut resumed = self.ears.bells().channels();
        resumed.extend(self.channels().iter().cloned());
        let hearing = connection.hear(resumed, &self.channels);
        match tokio::time::timeout(CONNECT_TIME_MAX, hearing).await {
            Ok(heard) => *self.channels() = heard?,
            Err(elapsed) => return Err(StoreError::Unknown(elapsed.into())),
        }
        Ok(connection)
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let client = match &self.servers {
            Servers::One(server) => Client::open((**server).clone())?,
            Servers::Sentinel { sentinels, master } => {
                sentinel_client(sentinels, master)?.async_get_client().await?
            }
            Servers::Cluster { .. } => unreachable!("a cluster's client is made in a task of its own"),
        };
        let one = client.get_multiplexed_async_connection_with_config(&self.config()).await?;
        self.connected_to(Some(&client));
        Ok(one)
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
        let asking = self.link.current.asks(self.generation, self.connection.slot_of(command));
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

    /// The slot that a command is about, in a cluster.
    fn slot_of(&self, command: &Cmd) -> Option<u16> {
        if let Self::One(_) = self {
            return None;
        }
        let mut words = command.args_iter().map(|word| match word {
            Arg::Simple(word) => word,
            _ => b"",
        });
        let key = match words.next()? {
            b"EVALSHA" | b"EVAL" => words.nth(2)?,
            b"SET" | b"GET" => words.next()?,
            _ => return None,
        };
        std::str::from_utf8(key).ok().map(keys::slot)
    }

    /// Hears channels; returns those that it hears.
    async fn hear(
        &self,
        channels: HashSet<Arc<str>>,
        lost: &Channels,
    ) -> Result<HashSet<Arc<str>>, StoreError> {
        let mut heard = HashSet::new();
        let mut wanted: Vec<Arc<str>> = channels.into_iter().collect();
        // What is refused together may not be refused one by one. A cluster's are of many slots.
        for together in if self.is_cluster() { &[1][..] } else { &[CHANNELS_PER_COMMAND, 1] } {
            let asked = std::mem::take(&mut wanted);
            let commands = asked.chunks(*together).map(|some| self.clone().subscribed(some.to_vec()));
            let commands: Vec<_> = commands.collect();
            let mut answers = stream::iter(commands).buffer_unordered(SUBSCRIPTIONS_MAX);
            while let Some((some, answer)) = answers.next().await {
                match answer {
                    Ok(()) => heard.extend(some),
                    // Some slots may have no server now, and the others do.
                    Err(StoreError::Unknown(_)) if self.is_cluster() => {
                        lost.is_one_lost.store(true, Ordering::Relaxed);
                    }
                    Err(unknown @ StoreError::Unknown(_)) => return Err(unknown),
                    // Without the right to it, nobody waits to be told; looking has to do.
                    Err(StoreError::Refused(_)) => wanted.extend(some),
                }
            }
        }
        Ok(heard)
    }

    fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    async fn subscribed(mut self, some: Vec<Arc<str>>) -> (Vec<Arc<str>>, Result<(), StoreError>) {
        let answer = self.subscribe(some.iter().map(|channel| &**channel).collect()).await;
        (some, answer.map_err(failure))
    }

    async fn subscribe(&mut self, channels: Vec<&str>) -> RedisResult<()> {
        match self {
            Self::One(one) => one.subscribe(channels).await,
            Self::Cluster(cluster) => cluster.ssubscribe(channels).await,
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

/// Whoever listens in a cluster has lost its servers too, if the client for commands has. Another one is made by the next
/// who waits; somebody may be making it right now.
fn stop_listening(listening: &AsyncMutex<Listening>, channels: &Channels) {
    if let Ok(mut listening) = listening.try_lock()
        && listening.client.take().is_some()
    {
        channels.is_one_lost.store(true, Ordering::Relaxed);
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

#[cfg(test)]
mod tests;
