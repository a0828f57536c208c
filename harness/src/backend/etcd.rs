//! etcd, from 3.3 on: real clusters of the vendor's binary.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use workloads::etcd::{EtcdClient, LOCK_PREFIX, Status, watch_locks};

use super::{
    Backend, BackendSpec, ClusterInfo, CommandLine, LeaseSink, NodeInfo, arguments, each_is_ready,
};
use crate::scenario::Tuning;

/// Registry entry.
pub const SPEC: BackendSpec = BackendSpec {
    name: "etcd",
    summary: "real etcd clusters, from 3.3 on",
    default_version: "3.5.16",
    nodes: &[1, 3, 5],
    bugs: &[],
    options: &[],
    check: |_| Ok(()),
    ttl_ms: |plan| min_ttl_ms(&plan.tuning)..=MAX_TTL_MS,
    helpers: |_| 0,
    model: false,
    backend: &Etcd,
};

/// lease/lessor.go, `MaxLeaseTTL`: 9,000,000,000 s.
const MAX_TTL_MS: u64 = 9_000_000_000_000;
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// Half of etcd's own defaults: a cluster is up in well under a second, and leases of 1 s are possible.
const HEARTBEAT_MS: u64 = 50;
const ELECTION_MS: u64 = 500;
/// A node without a leader does not answer: ask briefly and often.
const ASK: Duration = Duration::from_millis(300);
/// How often the leader is asked for.
const LEADER_EVERY: Duration = Duration::from_millis(150);

/// etcd.
struct Etcd;

/// etcd raises leases below 1.5 election timeouts to that, in whole seconds (lease/lessor.go, `minLeaseTTL`).
fn min_ttl_ms(tuning: &Tuning) -> u64 {
    (tuning.election_ms.unwrap_or(ELECTION_MS) * 3).div_ceil(2000) * 1000
}

impl Backend for Etcd {
    fn client_port(&self) -> u16 {
        CLIENT_PORT
    }

    fn stagger(&self) -> Duration {
        // Nodes that start at the same moment ask each other for members too early and stall for 2 s.
        Duration::from_millis(80)
    }

    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine {
        let url = |node: &NodeInfo, port| format!("http://{}:{port}", node.address);
        let members: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| format!("{}={}", node.name, url(node, PEER_PORT)))
            .collect();
        let Tuning {
            heartbeat_ms,
            election_ms,
        } = cluster.plan.tuning;
        let flags = [
            ("name", node.name.clone()),
            ("data-dir", node.data.display().to_string()),
            ("listen-peer-urls", url(node, PEER_PORT)),
            ("initial-advertise-peer-urls", url(node, PEER_PORT)),
            ("listen-client-urls", url(node, CLIENT_PORT)),
            ("advertise-client-urls", url(node, CLIENT_PORT)),
            ("initial-cluster", members.join(",")),
            ("initial-cluster-state", "new".to_owned()),
            ("initial-cluster-token", "fencepost".to_owned()),
            (
                "heartbeat-interval",
                heartbeat_ms.unwrap_or(HEARTBEAT_MS).to_string(),
            ),
            (
                "election-timeout",
                election_ms.unwrap_or(ELECTION_MS).to_string(),
            ),
        ];
        let flags = flags
            .into_iter()
            .flat_map(|(flag, value)| [format!("--{flag}"), value]);
        CommandLine {
            argv: arguments(&cluster.server, flags),
            env: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, cluster: &'a ClusterInfo) -> BoxFuture<'a, Result<(), String>> {
        each_is_ready(self, cluster, accepts_writes).boxed()
    }

    fn watch_leader(
        &self,
        cluster: ClusterInfo,
        found: Box<dyn Fn(&str) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        async move {
            let mut asked = Asked::default();
            loop {
                let leader = asked.leader(&cluster).await;
                found(&leader);
                tokio::time::sleep(LEADER_EVERY).await;
            }
        }
        .boxed()
    }

    fn watch_leases(
        &self,
        cluster: ClusterInfo,
        node: NodeInfo,
        sink: LeaseSink,
    ) -> BoxFuture<'static, ()> {
        let endpoint = cluster.endpoint(self, &node);
        async move {
            loop {
                if let Ok(mut watch) = watch_locks(endpoint, LOCK_PREFIX, ASK).await {
                    while let Some(seen) = watch.next().await {
                        // A gap only means that some lease ends stay unseen; causes then say so.
                        if let Ok(seen) = seen {
                            let (lock, token, phase, at_ns) =
                                (seen.lock, seen.token, seen.phase, seen.at_ns);
                            sink(LeaseEvent {
                                lock,
                                token,
                                phase,
                                at_ns,
                                node: node.name.clone(),
                            });
                        }
                    }
                }
                tokio::time::sleep(ASK).await;
            }
        }
        .boxed()
    }
}

async fn accepts_writes(endpoint: SocketAddr, name: String) -> Result<(), String> {
    let client = EtcdClient::connect(endpoint, ASK)
        .await
        .map_err(|error| error.to_string())?;
    let status = client
        .status(ASK)
        .await
        .map_err(|error| error.to_string())?;
    if status.leader_id == 0 {
        return Err("it has no leader".to_owned());
    }
    let key = format!("fencepost/ready/{name}");
    client
        .put(key.as_bytes(), b"ready".to_vec(), ASK)
        .await
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Connections that are kept between two questions.
#[derive(Default)]
struct Asked {
    clients: HashMap<String, EtcdClient>,
    names: HashMap<u64, String>,
}

impl Asked {
    /// The leader's name by the word of the node with the highest raft term; empty for none.
    async fn leader(&mut self, cluster: &ClusterInfo) -> String {
        for node in &cluster.nodes {
            if !self.clients.contains_key(&node.name)
                && let Ok(client) = EtcdClient::connect(cluster.endpoint(&Etcd, node), ASK).await
            {
                self.clients.insert(node.name.clone(), client);
            }
        }
        let clients = &self.clients;
        let asked = clients
            .iter()
            .map(|(name, client)| async move { (name.clone(), client.status(ASK).await.ok()) });
        let answers: Vec<(String, Status)> = join_all(asked)
            .await
            .into_iter()
            .filter_map(|(name, status)| Some((name, status?)))
            .collect();
        for (name, status) in &answers {
            self.names.insert(status.member_id, name.clone());
        }
        let latest = answers
            .iter()
            .filter(|(_, status)| status.leader_id != 0)
            .max_by_key(|(_, status)| status.raft_term);
        latest
            .and_then(|(_, status)| self.names.get(&status.leader_id))
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_lease_follows_the_election_timeout() {
        for (election_ms, expected) in [(None, 1000), (Some(1000), 2000), (Some(5000), 8000)] {
            assert_eq!(
                min_ttl_ms(&Tuning {
                    heartbeat_ms: None,
                    election_ms
                }),
                expected,
                "{election_ms:?}"
            );
        }
    }
}
