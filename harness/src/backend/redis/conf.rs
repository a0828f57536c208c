//! The configuration files of servers and Sentinels, as they are before the first start.

use std::fmt::Write as _;

use workloads::redis::{PRIMARY_NAME, Topology};

use super::{
    CLIENT_PORT, DOWN_AFTER, MIN_REPLICAS, MIN_REPLICAS_MAX_LAG_S, PERSISTENCE, SENTINEL_PORT,
};
use crate::backend::{ClusterInfo, NodeInfo};

/// A Sentinel gives a failover so long before it starts another one.
const FAILOVER_TIMEOUT_MS: u64 = 3000;

/// The name of a host's file in its data folder.
pub(super) fn file_name(node: &NodeInfo) -> &'static str {
    if node.is_helper {
        "sentinel.conf"
    } else {
        "redis.conf"
    }
}

/// A server's file. With Sentinel the first node is the primary, until they say otherwise.
pub(super) fn server(cluster: &ClusterInfo, node: &NodeInfo) -> String {
    let options = &cluster.plan.options;
    let (append_only, sync) = match options.text(&PERSISTENCE) {
        "none" => ("no", "no"),
        "always" => ("yes", "always"),
        _ => ("yes", "everysec"),
    };
    let mut text = format!(
        "port {CLIENT_PORT}\n\
         bind {address}\n\
         protected-mode no\n\
         dir {data}\n\
         save \"\"\n\
         appendonly {append_only}\n\
         appendfsync {sync}\n\
         notify-keyspace-events Eg$x\n\
         repl-diskless-sync yes\n\
         repl-diskless-sync-delay 0\n\
         repl-ping-replica-period 1\n\
         min-replicas-to-write {replicas}\n\
         min-replicas-max-lag {lag_s}\n",
        address = node.address,
        data = node.data.display(),
        replicas = options.number(&MIN_REPLICAS),
        lag_s = options.number(&MIN_REPLICAS_MAX_LAG_S),
    );
    if Topology::of(options) == Topology::Sentinel && node.index > 0 {
        let primary = cluster.nodes[0].address;
        let _ = writeln!(text, "replicaof {primary} {CLIENT_PORT}");
    }
    text
}

/// A Sentinel's file. It knows all others and every replica from the start, as it would after half a minute.
pub(super) fn sentinel(cluster: &ClusterInfo, node: &NodeInfo) -> String {
    let primary = cluster.nodes[0].address;
    let quorum = cluster.helpers.len() / 2 + 1;
    let mut text = format!(
        "port {SENTINEL_PORT}\n\
         bind {address}\n\
         protected-mode no\n\
         dir {data}\n\
         sentinel myid {id}\n\
         sentinel monitor {PRIMARY_NAME} {primary} {CLIENT_PORT} {quorum}\n\
         sentinel down-after-milliseconds {PRIMARY_NAME} {down_after_ms}\n\
         sentinel failover-timeout {PRIMARY_NAME} {FAILOVER_TIMEOUT_MS}\n\
         sentinel parallel-syncs {PRIMARY_NAME} {replicas}\n",
        address = node.address,
        data = node.data.display(),
        id = identity(node),
        down_after_ms = cluster.plan.options.number(&DOWN_AFTER),
        replicas = cluster.nodes.len() - 1,
    );
    // Writing to a string cannot fail.
    for replica in &cluster.nodes[1..] {
        let address = replica.address;
        let _ = writeln!(
            text,
            "sentinel known-replica {PRIMARY_NAME} {address} {CLIENT_PORT}"
        );
    }
    for other in cluster.helpers.iter().filter(|other| *other != node) {
        let (address, id) = (other.address, identity(other));
        let _ = writeln!(
            text,
            "sentinel known-sentinel {PRIMARY_NAME} {address} {SENTINEL_PORT} {id}"
        );
    }
    text
}

/// The forty hexadecimal digits by which Sentinels tell each other apart.
fn identity(sentinel: &NodeInfo) -> String {
    format!("{:040x}", sentinel.index + 1)
}
