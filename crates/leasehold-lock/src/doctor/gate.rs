//! The Redis in front of a ledger, which turns away those who come too late. Nothing rests on it but speed.

use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::cluster_view::ClusterView;
use super::redis_server::{Server, told};
use super::redis_servers::first_that_answers;
use super::secrecy::{Secrecy, is_loopback};
use super::{Chart, Finding};
use crate::error::StoreError;
use crate::redis::servers::Servers;
use crate::redis::{BadRedisUrl, url};

/// What the keys of a gate begin with.
const PREFIX: &str = "leasehold:gate:";

/// What happens without it.
const WITHOUT: &str = "Servers go straight to the ledger meanwhile: everything stays correct, and each buyer who comes \
                       too late costs the ledger a look";

/// Looks at the gate that a URL names. Nothing is changed.
pub async fn examine_gate(gate: &str) -> Result<Vec<Finding>, BadRedisUrl> {
    // In a box, as it is deep: the compiler's limit is for the futures of whoever awaits it.
    Box::pin(findings(gate)).await
}

async fn findings(gate: &str) -> Result<Vec<Finding>, BadRedisUrl> {
    let mut chart = Chart::default();
    match url::servers(gate)? {
        Servers::One(server) => {
            if let Some(server) = Server::reach_one(*server, &mut chart).await {
                if server.info("redis_mode") == "cluster" {
                    let text = "a node of a cluster: it has a part of the keys only. Use redis-cluster://";
                    chart.problem("gate-mode", &server.place, text);
                }
                examine(&server, &mut chart).await;
            }
        }
        Servers::Cluster { nodes, .. } => cluster(&nodes, &mut chart).await,
        Servers::Sentinel { sentinels, master } => {
            let place = format!("master {}, by {} sentinel(s)", master.name, sentinels.len());
            let secrecy = if master.transport.is_encrypted() {
                Secrecy::Encrypted
            } else {
                Secrecy::in_the_clear(sentinels.iter().all(is_local))
            };
            let servers = Servers::Sentinel { sentinels, master };
            if let Some(server) = Server::reach(servers, secrecy, &place, &mut chart).await {
                examine(&server, &mut chart).await;
            }
        }
    }
    let findings = chart.findings.into_iter().map(|finding| match finding.topic {
        "reachable" => {
            Finding { topic: "gate-reachable", text: format!("{}. {WITHOUT}", finding.text), ..finding }
        }
        _ => finding,
    });
    Ok(findings.collect())
}

fn is_local(server: &ConnectionInfo) -> bool {
    matches!(server.addr(), ConnectionAddr::Tcp(host, _) if is_loopback(host))
}

async fn cluster(nodes: &[ConnectionInfo], chart: &mut Chart) {
    let Some((seed, server)) = first_that_answers(nodes, chart).await else { return };
    let view = match ClusterView::of(&server).await {
        Ok(view) => view,
        Err(error) => {
            let text = format!("not a cluster: {}. Use redis://", told(&error));
            return chart.problem("gate-mode", &server.place, text);
        }
    };
    if view.is_whole {
        chart.ok("gate-cluster", &server.place, "the cluster is whole: every slot has a master");
    } else {
        chart.problem("gate-cluster", &server.place, format!("{}. {WITHOUT}", view.state));
    }
    if view.masters.len() < 3 {
        let text =
            format!("{} masters with slots: with fewer than 3 nobody can be voted in", view.masters.len());
        chart.warn("gate-masters", &server.place, text);
    }
    for master in view.masters {
        if master.replicas == 0 {
            let text = format!(
                "no replica that is alive: when it fails, its part of the seats has no gate. {WITHOUT}"
            );
            chart.warn("gate-takeover", &master.address, text);
        } else {
            let text = format!("{} replica(s) can take over", master.replicas);
            chart.ok("gate-takeover", &master.address, text);
        }
        if let Some(node) = master.beside(seed)
            && let Some(server) = Server::reach_one(node, chart).await
        {
            examine(&server, chart).await;
        }
    }
}

/// Everything that is asked of every server.
async fn examine(server: &Server, chart: &mut Chart) {
    let place = &server.place;
    chart.ok("gate-reachable", place, format!("Redis {} answers", server.info("redis_version")));
    server.secrecy.judge(
        "gate-encryption",
        place,
        "rediss:// and the like",
        "open and close the gate",
        chart,
    );
    if !server.is_new_enough() {
        chart.problem("gate-version", place, "the gate needs 7.0 or later");
    }
    if server.info("role") == "slave" {
        chart.problem("gate-role", place, "a replica: it takes no writes. Name the master");
    }
    let policy = server.setting("maxmemory-policy").unwrap_or_else(|| server.info("maxmemory_policy"));
    if policy == "noeviction" {
        let text = "noeviction: claims fail when it is full, and their callers go straight to the ledger";
        chart.ok("gate-eviction", place, text);
    } else {
        let text = format!(
            "{policy}: nothing is sold twice, but where memory is short the mark of an idempotency key can be evicted, and then a \
             repetition about units that have run out is refused instead of answered. Set maxmemory-policy noeviction"
        );
        chart.warn("gate-eviction", place, text);
    }
    let appends = server.setting("appendonly").map_or(server.info("aof_enabled") == "1", |it| it == "yes");
    if appends && server.setting("appendfsync") == Some("always") {
        let text = "appendfsync always: every claim waits for the disk, for nothing. What it forgets is built again \
                    from the ledger: set appendonly no, unless locks are kept there too";
        chart.warn("gate-persistence", place, text);
    } else {
        let text = "what it forgets in a restart is built again from the ledger: no persistence is needed";
        chart.ok("gate-persistence", place, text);
    }
    if let Some(error) = why_not(server).await {
        let text = format!(
            "this user may not use scripts, or the keys `{PREFIX}*`, and the gate is nothing else: {}. {WITHOUT}",
            told(&error)
        );
        chart.problem("gate-rights", place, text);
    } else {
        chart.ok("gate-rights", place, "scripts, and the keys of a gate, are allowed");
    }
}

/// What this user may not do. Tried on a key that is never there.
async fn why_not(server: &Server) -> Option<StoreError> {
    let key = format!("{PREFIX}\n");
    for words in [&["EVAL", "return 1", "0"][..], &["GET", &key], &["DEL", &key]] {
        // Other errors are no matter of rights: a node of a cluster has only some of the keys.
        if let Err(error @ StoreError::Refused(_)) = server.ask::<Value>(words).await {
            return Some(error);
        }
    }
    None
}
