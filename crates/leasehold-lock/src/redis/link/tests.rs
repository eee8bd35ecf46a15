//! Who is heard over which connection.

use leasehold_testkit::servers::{Direction, FaultProxy, RedisServer};

use super::*;

fn link(url: &str) -> (Link, Bells) {
    let bells = Bells::default();
    let servers = crate::redis::url::servers(url).unwrap();
    (Link::new(servers, Ears::Bells(bells.clone())), bells)
}

#[tokio::test]
async fn waiter_that_is_heard_over_a_connection_that_was_just_left_is_told_all_the_same() {
    let server = RedisServer::start();
    let (link, bells) = link(&server.url());
    let (generation, _) = link.connected().await.unwrap();
    let mut watch = bells.watch_on(Some("freed".into()), "job");
    let leaving = link.subscribing.write().await;
    let mut listening = std::pin::pin!(link.listen("freed".into()));
    // It has chosen its connection, and another one takes that one's place.
    assert!(tokio::time::timeout(Duration::from_millis(100), listening.as_mut()).await.is_err());
    link.current.leave(generation);
    link.connected().await.unwrap();
    drop(leaving);
    listening.await.unwrap();
    let _: u32 = server.command(&["PUBLISH", "freed", "job"]);
    tokio::time::timeout(Duration::from_secs(5), watch.rung()).await.expect("it is told");
}

/// One round trip for each would take longer than a connection may take.
#[tokio::test]
async fn all_channels_are_heard_again_at_once_but_for_those_that_may_not_be() {
    let server = RedisServer::start();
    let rights = ["ACL", "SETUSER", "limited", "on", "nopass", "+@all", "~*", "resetchannels", "&freed:*"];
    let () = server.command(&rights);
    let proxy = FaultProxy::start(server.address()).await;
    let (link, bells) = link(&format!("redis://limited:any@{}", proxy.address()));
    let allowed: Vec<Arc<str>> = (0..700).map(|number| format!("freed:{number}").into()).collect();
    let watches: Vec<_> =
        allowed.iter().map(|channel| bells.watch_on(Some(channel.clone()), channel)).collect();
    let _not_allowed = bells.watch_on(Some("secret".into()), "secret");
    proxy.delay(Direction::Answers, Duration::from_millis(50));
    link.connected().await.unwrap();
    assert_eq!(*link.channels(), allowed.into_iter().collect());
    drop(watches);
}
