//! Redis servers together: a cluster, Sentinel and its master, or an independent set.

use std::collections::BTreeMap;

use redis::ConnectionInfo;

use super::Chart;
use super::cluster_view::ClusterView;
use super::redis_server::{Part, Server, told};
use super::secrecy::{Secrecy, is_loopback};
use crate::redis::keys::Keys;
use crate::redis::servers::{Master, Servers};
use crate::redis::{PREFIX_DEFAULT, url};
use crate::redlock::STATE;
use crate::store::StoreOptions;

/// One server, a cluster, or the master that Sentinel names.
pub(super) async fn examine(store: &str, options: &StoreOptions, chart: &mut Chart) {
    let Ok(servers) = url::servers(store) else { return };
    let keys = keys(options);
    let has_epochs = options.epochs.is_some();
    match servers {
        Servers::One(server) => match Server::reach_one(*server, chart).await {
            Some(server) => {
                if server.info("redis_mode") == "cluster" {
                    let text = "a node of a cluster: it has a part of the names only. Use redis-cluster://";
                    chart.problem("mode", &server.place, text);
                }
                server.examine(Part::Alone, has_epochs, &keys, chart).await;
            }
            None => chart.is_unreachable = true,
        },
        Servers::Cluster { nodes, .. } => cluster(nodes, has_epochs, &keys, chart).await,
        Servers::Sentinel { sentinels, master } => {
            sentinel(sentinels, master, has_epochs, &keys, chart).await
        }
    }
}

async fn cluster(nodes: Vec<ConnectionInfo>, has_epochs: bool, keys: &Keys, chart: &mut Chart) {
    let Some((seed, server)) = first_that_answers(&nodes, chart).await else {
        chart.is_unreachable = true;
        return;
    };
    let place = server.place.clone();
    let view = match ClusterView::of(&server).await {
        Ok(view) => view,
        Err(error) => {
            chart.is_unreachable = true;
            return chart.problem("cluster", &place, format!("not a cluster: {}", told(&error)));
        }
    };
    if view.is_whole {
        chart.ok("cluster", &place, "the cluster is ok, and every slot has a master");
    } else {
        chart.problem("cluster", &place, format!("{}; the names of others fail", view.state));
    }
    if view.masters.len() < 3 {
        let text =
            format!("{} masters with slots: with fewer than 3 nobody can be voted in", view.masters.len());
        chart.warn("masters", &place, text);
    }
    let mut is_any_reached = false;
    for master in view.masters {
        if master.replicas == 0 {
            let text = "no replica that is alive: while it is down, its names cannot be locked";
            chart.warn("takeover", &master.address, text);
        } else {
            let text = format!("{} replica(s) can take over", master.replicas);
            chart.ok("takeover", &master.address, text);
        }
        let Some(node) = master.beside(seed) else { continue };
        // The names of one that does not answer cannot be locked from here; those of the others can.
        if let Some(server) = Server::reach_one(node, chart).await {
            is_any_reached = true;
            server.examine(Part::Alone, has_epochs, keys, chart).await;
        }
    }
    chart.is_unreachable |= !is_any_reached;
}

/// The first node that answers; notes why not when there is none.
pub(super) async fn first_that_answers<'a>(
    nodes: &'a [ConnectionInfo],
    chart: &mut Chart,
) -> Option<(&'a ConnectionInfo, Server)> {
    // The nodes that do not answer are told of by those that do.
    let mut silent = Chart::default();
    for node in nodes {
        if let Some(server) = Server::reach_one(node.clone(), &mut silent).await {
            return Some((node, server));
        }
    }
    chart.findings.extend(silent.findings);
    None
}

async fn sentinel(
    sentinels: Vec<ConnectionInfo>,
    master: Master,
    has_epochs: bool,
    keys: &Keys,
    chart: &mut Chart,
) {
    let count = sentinels.len();
    let name = master.name.clone();
    let mut agreed = 0;
    let mut is_local = true;
    for sentinel in &sentinels {
        let Some(server) = Server::reach_one(sentinel.clone(), chart).await else { continue };
        match server.ask::<BTreeMap<String, String>>(&["SENTINEL", "MASTER", &name]).await {
            Ok(state) => {
                agreed += 1;
                server.secrecy(chart);
                let value = |name: &str| state.get(name).map_or("?", String::as_str);
                is_local &= is_loopback(value("ip"));
                let others = value("num-other-sentinels");
                let text = format!(
                    "watches {name}: quorum {}, {others} other sentinel(s), {} replica(s)",
                    value("quorum"),
                    value("num-slaves")
                );
                let enough = others.parse::<usize>().is_ok_and(|others| others >= 2);
                if enough {
                    chart.ok("sentinel", &server.place, text);
                } else {
                    let text = format!("{text}; with fewer than 3 nobody can be voted in safely");
                    chart.warn("sentinel", &server.place, text);
                }
                if let Err(error) = server.ask::<String>(&["SENTINEL", "CKQUORUM", &name]).await {
                    chart.warn("sentinel-quorum", &server.place, told(&error));
                }
            }
            Err(error) => {
                let text = format!("it does not know `{name}`: {}", told(&error));
                chart.problem("sentinel", &server.place, text);
            }
        }
    }
    if agreed == 0 {
        chart.is_unreachable = true;
        return;
    }
    let place = format!("master {name}, by {count} sentinel(s)");
    let secrecy =
        if master.transport.is_encrypted() { Secrecy::Encrypted } else { Secrecy::in_the_clear(is_local) };
    // Its replicas have its login, and are where it says.
    let login =
        sentinels.first().map(|sentinel| sentinel.clone().set_redis_settings(master.settings.clone()));
    match Server::reach(Servers::Sentinel { sentinels, master }, secrecy, &place, chart).await {
        Some(mut server) => {
            server.login = login;
            server.examine(Part::Alone, has_epochs, keys, chart).await;
        }
        None => chart.is_unreachable = true,
    }
}

/// Independent servers, of which most must agree.
pub(super) async fn examine_redlock(store: &str, options: &StoreOptions, chart: &mut Chart) {
    let Ok(nodes) = url::independent(store) else { return };
    let keys = keys(options);
    let count = nodes.len();
    let quorum = count / 2 + 1;
    let mut runs: BTreeMap<String, String> = BTreeMap::new();
    let mut silent = Vec::new();
    let mut reached = 0;
    for node in nodes {
        let mut unanswered = Chart::default();
        let place = node.addr().to_string();
        let Some(server) = Server::reach_one(node, &mut unanswered).await else {
            silent.extend(unanswered.findings.into_iter().map(|finding| (place.clone(), finding.text)));
            continue;
        };
        reached += 1;
        if let Some(same) = runs.insert(server.info("run_id").to_owned(), server.place.clone()) {
            let text = format!("the same server as {same}: it would have two votes. Name each server once");
            chart.problem("distinct", &server.place, text);
        }
        standing(&server, count, chart).await;
        server.examine(Part::Voter, false, &keys, chart).await;
    }
    for (place, why) in silent {
        chart.warn("reachable", &place, format!("{why}. Its vote is missing"));
    }
    let place = format!("{count} servers");
    if reached < quorum {
        chart.is_unreachable = true;
        let text = format!("{reached} of {count} answer, and {quorum} are needed");
        chart.problem("quorum", &place, text);
    } else {
        let text = format!("{reached} of {count} answer, and {quorum} are needed");
        chart.ok("quorum", &place, text);
    }
    match count {
        1 => chart.warn("set", &place, "one server: when it is down, nothing can be locked"),
        count if count % 2 == 0 => {
            let text = format!("an even number: it stands no more failures than {} would", count - 1);
            chart.warn("set", &place, text);
        }
        count => chart.ok("set", &place, format!("{} may fail", count - quorum)),
    }
}

/// Whether a server may vote.
async fn standing(server: &Server, members: usize, chart: &mut Chart) {
    let state = server.ask::<BTreeMap<String, String>>(&["HGETALL", STATE]).await.unwrap_or_default();
    let value = |name: &str| state.get(name).map_or("", String::as_str);
    let known = value("members");
    if !known.is_empty() && known != members.to_string() {
        let text =
            format!("it belongs to a set of {known}, and {members} are named here: it refuses to vote");
        return chart.problem("members", &server.place, text);
    }
    match value("status") {
        "admitted" if value("run") == server.info("run_id") => {
            chart.ok("standing", &server.place, "it may vote");
        }
        "admitted" => {
            let text = "it started again since it was asked last, and is looked at before its next vote";
            chart.ok("standing", &server.place, text);
        }
        "" => {
            let text = "it has never voted, or was emptied: it is admitted when a lock is next asked for";
            chart.warn("standing", &server.place, text);
        }
        status => {
            let text = format!("in quarantine ({status}): it votes again when it has the others' counters");
            chart.warn("standing", &server.place, text);
        }
    }
}

fn keys(options: &StoreOptions) -> Keys {
    Keys::new(options.prefix.as_deref().unwrap_or(PREFIX_DEFAULT))
}
