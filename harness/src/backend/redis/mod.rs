//! Redis (and valkey): one primary, a primary with replicas and three Sentinels, or independent primaries.
//!
//! Roles change at run time and are kept in the configuration files that the servers rewrite themselves, so that
//! a server that is started again comes back as what it was. What must not be in here: a failover of our own.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, pending};
use workloads::option::{OptionKind, OptionSpec};
use workloads::redis::{Asker, TOPOLOGY, Topology, watch_locks};

use super::{
    Backend, BackendSpec, ClusterInfo, CommandLine, LeaseSink, NodeInfo, arguments, each_is_ready,
};
use crate::scenario::ClusterPlan;

mod conf;
mod sentinels;

/// Registry entry.
pub const SPEC: BackendSpec = BackendSpec {
    name: "redis",
    summary: "real Redis or valkey: one primary, a primary with replicas and Sentinels, or independent primaries",
    default_version: "7.0.15",
    nodes: &[1, 2, 3, 5],
    bugs: &[],
    options: &[
        TOPOLOGY,
        PERSISTENCE,
        MIN_REPLICAS,
        MIN_REPLICAS_MAX_LAG_S,
        DOWN_AFTER,
    ],
    check,
    ttl_ms: |_| MIN_TTL_MS..=MAX_TTL_MS,
    helpers: |plan| match Topology::of(&plan.options) {
        Topology::Sentinel => SENTINELS,
        Topology::Single | Topology::Independent => 0,
    },
    model: false,
    backend: &Redis,
};

const PERSISTENCE: OptionSpec = OptionSpec {
    name: "persistence",
    kind: OptionKind::Word(&["none", "everysec", "always"]),
    default: "everysec",
    about: "Whether servers keep their data: not at all, or in an append-only file that is synced every second or \
            before each answer.",
};
const MIN_REPLICAS: OptionSpec = OptionSpec {
    name: "min_replicas_to_write",
    kind: OptionKind::Integer { min: 0, max: 16 },
    default: "0",
    about: "With fewer replicas heard of lately a primary takes no writes.",
};
const MIN_REPLICAS_MAX_LAG_S: OptionSpec = OptionSpec {
    name: "min_replicas_max_lag",
    kind: OptionKind::Integer { min: 1, max: 3600 },
    default: "10",
    about: "What \"lately\" means with `min_replicas_to_write`, in seconds.",
};
/// With half a second the Sentinels of a busy machine take a primary that they have just promoted for dead too.
const DOWN_AFTER: OptionSpec = OptionSpec {
    name: "down_after",
    kind: OptionKind::Millis {
        min: 100,
        max: 600_000,
    },
    default: "1000",
    about: "How long a primary must be silent until a Sentinel takes it for dead.",
};

const CLIENT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// Sentinels of a cluster: the least number of which a majority outlives the loss of one.
const SENTINELS: u32 = 3;
/// Redis itself takes 1 ms; below this no client on a network can do anything with it.
const MIN_TTL_MS: u64 = 10;
/// A key's expiry is kept as milliseconds since 1970 in 64 bits.
const MAX_TTL_MS: u64 = 1 << 62;
/// How long a server may take to answer a question of ours.
const ASK: Duration = Duration::from_millis(300);
/// How often the leader is asked for, and after which time a broken watch is begun anew.
const ASK_EVERY: Duration = Duration::from_millis(150);

/// Redis.
struct Redis;

fn check(plan: &ClusterPlan) -> Result<(), String> {
    let replicas = u64::from(plan.nodes) - 1;
    let (topology, wanted) = (
        Topology::of(&plan.options),
        plan.options.number(&MIN_REPLICAS),
    );
    match topology {
        Topology::Single if plan.nodes != 1 => Err(format!(
            "nodes = 1 with options.topology = \"single\", and not {}; replicas need \"sentinel\", Redlock \
             \"independent\"",
            plan.nodes
        )),
        Topology::Sentinel if plan.nodes < 2 => Err(
            "at least 2 nodes with options.topology = \"sentinel\", a primary and a replica; one alone is \"single\""
                .to_owned(),
        ),
        Topology::Sentinel if wanted > replicas => Err(format!(
            "options.min_replicas_to_write of at most {replicas}, the number of replicas, and not {wanted}"
        )),
        Topology::Single | Topology::Independent if wanted > 0 => Err(
            "options.min_replicas_to_write only with options.topology = \"sentinel\": nobody else has replicas"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

impl Backend for Redis {
    fn client_port(&self) -> u16 {
        CLIENT_PORT
    }

    fn helper_port(&self) -> u16 {
        SENTINEL_PORT
    }

    fn stagger(&self) -> Duration {
        Duration::ZERO
    }

    fn prepare(&self, cluster: &ClusterInfo, node: &NodeInfo) -> io::Result<()> {
        let text = if node.is_helper {
            conf::sentinel(cluster, node)
        } else {
            conf::server(cluster, node)
        };
        write_synced(&node.data, conf::file_name(node), &text)
    }

    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine {
        let file = node.data.join(conf::file_name(node));
        let flags = std::iter::once(file.display().to_string());
        let sentinel = node.is_helper.then(|| "--sentinel".to_owned());
        CommandLine {
            argv: arguments(&cluster.server, flags.chain(sentinel)),
            env: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, cluster: &'a ClusterInfo) -> BoxFuture<'a, Result<(), String>> {
        async move {
            if Topology::of(&cluster.plan.options) == Topology::Sentinel {
                return sentinels::are_ready(cluster).await;
            }
            let accepts_writes = |endpoint, _| async move {
                let asker = Asker::to(endpoint, ASK);
                asker.accepts_writes().await
            };
            each_is_ready(self, cluster, accepts_writes).await
        }
        .boxed()
    }

    fn watch_leader(
        &self,
        cluster: ClusterInfo,
        found: Box<dyn Fn(&str) + Send + Sync>,
    ) -> BoxFuture<'static, ()> {
        match Topology::of(&cluster.plan.options) {
            Topology::Sentinel => sentinels::watch_leader(cluster, found).boxed(),
            Topology::Single => {
                // A server of one leads itself.
                found(cluster.nodes.first().map_or("", |node| node.name.as_str()));
                pending().boxed()
            }
            Topology::Independent => {
                found("");
                pending().boxed()
            }
        }
    }

    fn watch_leases(
        &self,
        cluster: ClusterInfo,
        node: NodeInfo,
        sink: LeaseSink,
    ) -> BoxFuture<'static, ()> {
        if Topology::of(&cluster.plan.options) == Topology::Independent {
            // One node's keys are no lock, and Redlock has no tokens to tell grants apart by.
            return pending().boxed();
        }
        let endpoint = cluster.endpoint(self, &node);
        async move {
            loop {
                if let Ok(mut watch) = watch_locks(endpoint, ASK).await {
                    while let Some(seen) = watch.next().await {
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
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
        .boxed()
    }
}

/// Writes a file so that it outlives a loss of power.
fn write_synced(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(folder.join(name))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Asks all of these at once, and gives back what each said.
async fn ask_each<T, F>(askers: &[Asker], ask: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T>,
{
    join_all((0..askers.len()).map(ask)).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use workloads::option::Options;

    use super::*;
    use crate::provision::Launch;
    use crate::sandbox::NetworkKind;
    use crate::scenario::Tuning;

    fn plan(nodes: u32, options: &[(&str, &str)]) -> ClusterPlan {
        ClusterPlan {
            backend: "redis".to_owned(),
            version: "7.0.15".to_owned(),
            nodes,
            network: NetworkKind::default(),
            bug: None,
            ready_timeout_ms: 30_000,
            tuning: Tuning::default(),
            options: Options::from(options),
        }
    }

    #[test]
    fn clusters_that_cannot_be_are_refused() {
        let sentinel = ("topology", "sentinel");
        assert_eq!(check(&plan(1, &[("topology", "single")])), Ok(()));
        assert_eq!(
            check(&plan(3, &[sentinel, ("min_replicas_to_write", "2")])),
            Ok(())
        );
        for (plan, expected) in [
            (plan(3, &[("topology", "single")]), "nodes = 1"),
            (plan(1, &[sentinel]), "at least 2 nodes"),
            (
                plan(2, &[sentinel, ("min_replicas_to_write", "2")]),
                "at most 1",
            ),
            (
                plan(
                    5,
                    &[("topology", "independent"), ("min_replicas_to_write", "1")],
                ),
                "only with",
            ),
        ] {
            let why = check(&plan).expect_err(expected);
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn files_name_the_others_and_the_first_primary() {
        let node = |name: &str, index: usize, is_helper, last| NodeInfo {
            name: name.to_owned(),
            index,
            is_helper,
            address: Ipv4Addr::new(198, 18, 0, last),
            data: "/data".into(),
        };
        let cluster = ClusterInfo {
            plan: plan(2, &[("topology", "sentinel"), ("persistence", "always")]),
            server: Launch::direct(Path::new("redis-server")),
            nodes: vec![node("n1", 0, false, 1), node("n2", 1, false, 2)],
            helpers: vec![
                node("s1", 0, true, 11),
                node("s2", 1, true, 12),
                node("s3", 2, true, 13),
            ],
        };
        let primary = conf::server(&cluster, &cluster.nodes[0]);
        let replica = conf::server(&cluster, &cluster.nodes[1]);
        assert!(primary.contains("appendfsync always\n") && !primary.contains("replicaof"));
        assert!(
            replica.ends_with("replicaof 198.18.0.1 6379\n"),
            "{replica}"
        );
        let sentinel = conf::sentinel(&cluster, &cluster.helpers[1]);
        for line in [
            "sentinel monitor fencepost 198.18.0.1 6379 2\n",
            "sentinel known-replica fencepost 198.18.0.2 6379\n",
            "sentinel known-sentinel fencepost 198.18.0.13 26379 0000000000000000000000000000000000000003\n",
        ] {
            assert!(sentinel.contains(line), "no {line:?} in {sentinel}");
        }
        assert!(
            !sentinel.contains("known-sentinel fencepost 198.18.0.12"),
            "not itself"
        );
    }
}
