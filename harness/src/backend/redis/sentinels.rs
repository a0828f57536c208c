//! A primary, its replicas and the Sentinels: when they are whole, and which node leads by the Sentinels' word.

use std::net::SocketAddr;
use std::time::Duration;

use workloads::redis::{Asker, Role, SentinelView};

use super::{ASK, ASK_EVERY, Redis, ask_each};
use crate::backend::{ClusterInfo, NodeInfo};

/// How often Sentinels look and tell. Their own periods (10 s, 1 s and 2 s) make a server that comes back wait for
/// more than 10 s until they tell it whom to follow. Only those from 7.0 on can be told. The period of pings stays:
/// a replica whose latest answer to INFO is older than five of them is not promoted.
const PERIODS: &[(&str, Duration)] = &[
    ("INFO-PERIOD", Duration::from_millis(300)),
    ("ASK-PERIOD", Duration::from_millis(100)),
    ("PUBLISH-PERIOD", Duration::from_millis(200)),
];

/// Whether the Sentinels agree on a primary that takes writes, and all replicas follow it.
pub(super) async fn are_ready(cluster: &ClusterInfo) -> Result<(), String> {
    let sentinels = askers(cluster, &cluster.helpers);
    let views = ask_each(&sentinels, |index| sentinels[index].sentinel_view()).await;
    let mut primary = None;
    for (sentinel, view) in cluster.helpers.iter().zip(views) {
        let name = &sentinel.name;
        let view = view.map_err(|error| format!("{name}: {error}"))?;
        check_view(cluster, &view).map_err(|why| format!("{name}: {why}"))?;
        if *primary.get_or_insert(view.primary) != view.primary {
            return Err(format!(
                "{name}: it does not agree with the others on who is the primary"
            ));
        }
    }
    let primary = primary.ok_or("there is no Sentinel")?;
    check_servers(cluster, primary).await?;
    for sentinel in &sentinels {
        // Before 7.0 there is no such command, and it takes its time.
        let _ = sentinel.hasten(PERIODS).await;
    }
    Ok(())
}

fn check_view(cluster: &ClusterInfo, view: &SentinelView) -> Result<(), String> {
    let (replicas, others) = (cluster.nodes.len() - 1, cluster.helpers.len() - 1);
    if view.flags != "master" {
        return Err(format!(
            "expected a primary that it reaches, found it to be {}",
            view.flags
        ));
    }
    if (view.replicas, view.other_sentinels) != (replicas as u64, others as u64) {
        return Err(format!(
            "expected it to know {replicas} replicas and {others} other Sentinels, found {} and {}",
            view.replicas, view.other_sentinels
        ));
    }
    Ok(())
}

async fn check_servers(cluster: &ClusterInfo, primary: SocketAddr) -> Result<(), String> {
    let servers = askers(cluster, &cluster.nodes);
    let roles = ask_each(&servers, |index| servers[index].role()).await;
    let replicas = cluster.nodes.len() - 1;
    for ((node, server), role) in cluster.nodes.iter().zip(&servers).zip(roles) {
        let name = &node.name;
        let role = role.map_err(|error| format!("{name}: {error}"))?;
        if cluster.endpoint(&Redis, node) != primary {
            let expected = Role::Replica {
                primary,
                linked: true,
            };
            if role != expected {
                return Err(format!("{name}: expected {expected:?}, found {role:?}"));
            }
            continue;
        }
        if role != (Role::Primary { replicas }) {
            return Err(format!(
                "{name}: expected a primary with {replicas} replicas, found {role:?}"
            ));
        }
        let answer = server.accepts_writes().await;
        answer.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Tells who leads by the word of the Sentinel that is most up to date.
pub(super) async fn watch_leader(cluster: ClusterInfo, found: Box<dyn Fn(&str) + Send + Sync>) {
    let sentinels = askers(&cluster, &cluster.helpers);
    loop {
        let views = ask_each(&sentinels, |index| sentinels[index].sentinel_view()).await;
        let latest = views.into_iter().flatten().max_by_key(|view| view.epoch);
        found(latest.map_or("", |view| name_of(&cluster, view.primary)));
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn name_of(cluster: &ClusterInfo, server: SocketAddr) -> &str {
    let mut nodes = cluster.nodes.iter();
    let node = nodes.find(|node| cluster.endpoint(&Redis, node) == server);
    node.map_or("", |node| node.name.as_str())
}

fn askers(cluster: &ClusterInfo, hosts: &[NodeInfo]) -> Vec<Asker> {
    let endpoints = cluster.endpoints(&Redis, hosts).into_iter();
    endpoints.map(|endpoint| Asker::to(endpoint, ASK)).collect()
}
