//! Consul, the last free releases: real clusters of servers, without client agents.
//!
//! Each server is the agent of the clients that talk to it, so that a session belongs to its node.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use nix::sys::resource::{Resource, getrlimit};
use workloads::consul::{ConsulClient, LOCK_PREFIX, SessionAsk, watch_locks};
use workloads::option::{OptionKind, OptionSpec};

use super::{
    Backend, BackendSpec, ClusterInfo, CommandLine, LeaseSink, NodeInfo, arguments, each_is_ready,
};
use crate::scenario::ClusterPlan;

/// Registry entry.
pub const SPEC: BackendSpec = BackendSpec {
    name: "consul",
    summary: "real clusters of Consul servers",
    default_version: "1.8.7",
    nodes: &[1, 3, 5],
    bugs: &[],
    options: &[SESSION_TTL_MIN, RAFT_MULTIPLIER, CLEANUP_DEAD_SERVERS],
    check,
    ttl_ms,
    helpers: |_| 0,
    model: false,
    backend: &Consul,
};

const SESSION_TTL_MIN: OptionSpec = OptionSpec {
    name: "session-ttl-min",
    kind: OptionKind::Millis {
        min: 100,
        max: 3_600_000,
    },
    default: "1000",
    about: "The shortest session that the servers grant (`session_ttl_min`); Consul's own default is 10 s.",
};

const RAFT_MULTIPLIER: OptionSpec = OptionSpec {
    name: "raft-multiplier",
    kind: OptionKind::Integer { min: 1, max: 10 },
    default: "1",
    about: "The servers' raft timeouts in seconds (`performance.raft_multiplier`): 1 is what Consul recommends \
            for production, 5 its default.",
};

const CLEANUP_DEAD_SERVERS: OptionSpec = OptionSpec {
    name: "cleanup-dead-servers",
    kind: OptionKind::Flag,
    default: "true",
    about: "Whether a server that is taken for dead is removed from the cluster (`autopilot`).",
};

const HTTP_PORT: u16 = 8500;
/// `structs.SessionTTLMax`: 24 h.
const MAX_TTL_MS: u64 = 86_400_000;
/// A server without a leader holds requests back for 7 s: ask briefly and often.
const ASK: Duration = Duration::from_millis(300);
/// How often the leader is asked for.
const LEADER_EVERY: Duration = Duration::from_millis(150);
/// Each waiter and each monitor keeps a connection; Consul allows a client 200 unless told otherwise.
const CONNECTIONS_A_CLIENT: u64 = 5_000;
/// Consul's default, and what it does not need as connections of clients (it refuses to start with less left).
const LEAST_CONNECTIONS: u64 = 200;
const OTHER_FILES: u64 = 100;

/// Consul.
struct Consul;

fn check(plan: &ClusterPlan) -> Result<(), String> {
    if plan.tuning.heartbeat_ms.is_some() || plan.tuning.election_ms.is_some() {
        return Err(
            "a consul cluster without `tuning`: its timing is the option `raft-multiplier`"
                .to_owned(),
        );
    }
    Ok(())
}

fn ttl_ms(plan: &ClusterPlan) -> RangeInclusive<u64> {
    plan.options.number(&SESSION_TTL_MIN)..=MAX_TTL_MS
}

/// Consul checks at its start that it may open so many files.
fn connections() -> u64 {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    files
        .saturating_sub(OTHER_FILES)
        .clamp(LEAST_CONNECTIONS, CONNECTIONS_A_CLIENT)
}

/// What has no flag of its own.
fn settings(plan: &ClusterPlan) -> Vec<String> {
    let options = &plan.options;
    vec![
        format!(
            "performance {{ raft_multiplier = {} }}",
            options.number(&RAFT_MULTIPLIER)
        ),
        format!(
            "autopilot {{ cleanup_dead_servers = {} }}",
            options.flag(&CLEANUP_DEAD_SERVERS)
        ),
        format!(
            "session_ttl_min = \"{}ms\"",
            options.number(&SESSION_TTL_MIN)
        ),
        format!("limits {{ http_max_conns_per_client = {} }}", connections()),
        "ports { dns = -1, serf_wan = -1 }".to_owned(),
        "connect { enabled = false }".to_owned(),
        "disable_update_check = true".to_owned(),
        "skip_leave_on_interrupt = true".to_owned(),
    ]
}

impl Backend for Consul {
    fn client_port(&self) -> u16 {
        HTTP_PORT
    }

    fn stagger(&self) -> Duration {
        Duration::ZERO
    }

    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine {
        let mut words: Vec<String> = vec!["agent".to_owned(), "-server".to_owned()];
        let mut flag = |name: &str, value: String| words.extend([format!("-{name}"), value]);
        flag("node", node.name.clone());
        flag("data-dir", node.data.display().to_string());
        flag("bind", node.address.to_string());
        flag("client", node.address.to_string());
        flag("bootstrap-expect", cluster.nodes.len().to_string());
        flag("retry-interval", "200ms".to_owned());
        for peer in cluster.nodes.iter().filter(|peer| peer.name != node.name) {
            flag("retry-join", peer.address.to_string());
        }
        for setting in settings(&cluster.plan) {
            flag("hcl", setting);
        }
        CommandLine {
            argv: arguments(&cluster.server, words),
            env: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, cluster: &'a ClusterInfo) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let ask = SessionAsk {
                ttl: Duration::from_millis(cluster.plan.options.number(&SESSION_TTL_MIN)),
                lock_delay: Duration::ZERO,
                behaviour: "delete".to_owned(),
                serf_health: true,
            };
            // It takes a leader, a write, and the node's own entry and health in the catalogue.
            let session = |endpoint, _| {
                let ask = &ask;
                async move {
                    let client = ConsulClient::connect(endpoint, ASK).await?;
                    let session = client.create_session(ask, ASK).await?;
                    client.destroy_session(&session, ASK).await
                }
            };
            each_is_ready(self, cluster, session).await
        }
        .boxed()
    }

    fn watch_leader(
        &self,
        cluster: ClusterInfo,
        found: Box<dyn Fn(&str) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        async move {
            let mut clients = HashMap::new();
            loop {
                found(&leader(&cluster, &mut clients).await);
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
                    while let Ok(changes) = watch.next().await {
                        for seen in changes {
                            sink(LeaseEvent {
                                lock: seen.lock,
                                token: seen.token,
                                phase: seen.phase,
                                at_ns: seen.at_ns,
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

/// The leader's name by the word of most servers; empty for none. A leader that was cut off gives up within
/// half a second, and until then its word is one against the others'.
async fn leader(cluster: &ClusterInfo, clients: &mut HashMap<String, ConsulClient>) -> String {
    for node in &cluster.nodes {
        if !clients.contains_key(&node.name)
            && let Ok(client) = ConsulClient::connect(cluster.endpoint(&Consul, node), ASK).await
        {
            clients.insert(node.name.clone(), client);
        }
    }
    let asked = clients.values().map(|client| client.leader(ASK));
    let mut votes: HashMap<_, usize> = HashMap::new();
    for leader in join_all(asked).await.into_iter().flatten().flatten() {
        *votes.entry(leader.ip()).or_default() += 1;
    }
    let elected = votes.into_iter().max_by_key(|(_, votes)| *votes);
    let node =
        elected.and_then(|(address, _)| cluster.nodes.iter().find(|node| node.address == address));
    node.map(|node| node.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use workloads::option::Options;

    use super::*;
    use crate::scenario::Tuning;

    fn plan(options: &[(&str, &str)]) -> ClusterPlan {
        ClusterPlan {
            backend: SPEC.name.to_owned(),
            version: SPEC.default_version.to_owned(),
            nodes: 3,
            network: Default::default(),
            bug: None,
            ready_timeout_ms: 1_000,
            tuning: Tuning::default(),
            options: Options::from(options),
        }
    }

    #[test]
    fn the_shortest_session_is_the_option() {
        assert_eq!(ttl_ms(&plan(&[])), 1_000..=MAX_TTL_MS);
        let longer = plan(&[("session-ttl-min", "10000")]);
        assert_eq!(ttl_ms(&longer), 10_000..=MAX_TTL_MS);
    }

    #[test]
    fn options_become_settings() {
        let text = settings(&plan(&[("cleanup-dead-servers", "false")])).join("; ");
        for setting in [
            "cleanup_dead_servers = false",
            "raft_multiplier = 1 ",
            "session_ttl_min = \"1000ms\"",
        ] {
            assert!(text.contains(setting), "{text}");
        }
        assert!((LEAST_CONNECTIONS..=CONNECTIONS_A_CLIENT).contains(&connections()));
    }

    #[test]
    fn raft_timing_of_others_is_refused() {
        let mut tuned = plan(&[]);
        assert_eq!(check(&tuned), Ok(()));
        tuned.tuning.election_ms = Some(500);
        assert!(check(&tuned).unwrap_err().contains("raft-multiplier"));
    }
}
