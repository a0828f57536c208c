//! ZooKeeper, from 3.4 on: real ensembles of the project's own server, on a Java runtime.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use workloads::belief::Belief;
use workloads::option::{OptionKind, OptionSpec};
use workloads::zookeeper::{
    CreateMode, LockSeen, ServerStatus, Session, SessionConfig, Told, status, watch_locks,
};

use super::{
    Backend, BackendSpec, ClusterInfo, CommandLine, LeaseSink, NodeInfo, arguments, each_is_ready,
};
use crate::scenario::{ClusterPlan, Tuning};

/// Registry entry.
pub const SPEC: BackendSpec = BackendSpec {
    name: "zookeeper",
    summary: "real ZooKeeper ensembles, from 3.4 on",
    default_version: "3.9.3",
    nodes: &[1, 3, 5],
    bugs: &[],
    options: &[FORCE_SYNC],
    check,
    ttl_ms,
    helpers: |_| 0,
    model: false,
    backend: &ZooKeeper,
};

const FORCE_SYNC: OptionSpec = OptionSpec {
    name: "force_sync",
    kind: OptionKind::Flag,
    default: "false",
    about: "Whether a server syncs each transaction to its disk before it answers, as it does by default; needed \
            where disks or power are the subject.",
};

const CLIENT_PORT: u16 = 2181;
const PEER_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;
/// A quarter of the default: sessions of 1 s are possible.
const TICK_MS: u64 = 500;
/// How long a server waits for a connection to another during an election. The default of 5 s is long behind
/// a partition.
const CONNECT_MS: u64 = 1000;
/// Ticks without a word of the leader until a follower looks for another.
const SYNC_LIMIT: u64 = 6;
/// A server without a quorum answers that it does not serve, or nothing: ask briefly and often.
const ASK: Duration = Duration::from_millis(400);
/// How often the leader is asked for.
const LEADER_EVERY: Duration = Duration::from_millis(250);
/// The observers' sessions hold nothing.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The server's class.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// ZooKeeper.
struct ZooKeeper;

fn tick_ms(tuning: &Tuning) -> u64 {
    tuning.heartbeat_ms.unwrap_or(TICK_MS)
}

/// The server's own bounds (`ZooKeeperServer.java`, `minSessionTimeout` and `maxSessionTimeout`): 2 and 20
/// ticks. It counts in ticks, so that a session may last up to one longer.
fn ttl_ms(plan: &ClusterPlan) -> RangeInclusive<u64> {
    let tick_ms = tick_ms(&plan.tuning);
    2 * tick_ms..=20 * tick_ms
}

fn check(plan: &ClusterPlan) -> Result<(), String> {
    let (tick_ms, election_ms) = (tick_ms(&plan.tuning), plan.tuning.election_ms);
    if election_ms.is_some_and(|election_ms| election_ms < 2 * tick_ms) {
        return Err(format!(
            "a tuning.election (syncLimit) of at least two of tuning.heartbeat (tickTime): {} ms",
            2 * tick_ms
        ));
    }
    Ok(())
}

/// The configuration file of a node (`zookeeperAdmin.md`, "Configuration Parameters").
fn configuration(cluster: &ClusterInfo, node: &NodeInfo) -> String {
    let Tuning { election_ms, .. } = cluster.plan.tuning;
    let tick_ms = tick_ms(&cluster.plan.tuning);
    let sync_limit = election_ms.map_or(SYNC_LIMIT, |election_ms| election_ms.div_ceil(tick_ms));
    let mut text = format!(
        "tickTime={tick_ms}\n\
         initLimit=20\n\
         syncLimit={sync_limit}\n\
         cnxTimeout={CONNECT_MS}\n\
         dataDir={}\n\
         clientPort={CLIENT_PORT}\n\
         clientPortAddress={}\n\
         maxClientCnxns=0\n",
        node.data.join("data").display(),
        node.address,
    );
    // A single server is no ensemble, and elects nobody.
    if cluster.nodes.len() > 1 {
        for (id, peer) in (1..).zip(&cluster.nodes) {
            let address = peer.address;
            text += &format!("server.{id}={address}:{PEER_PORT}:{ELECTION_PORT}\n");
        }
    }
    text
}

/// Flags of the Java runtime: a small heap, a quick start, and what the server reads from system properties.
fn java_flags(plan: &ClusterPlan) -> Vec<String> {
    let force_sync = if plan.options.flag(&FORCE_SYNC) {
        "yes"
    } else {
        "no"
    };
    let properties = [
        ("zookeeper.admin.enableServer", "false"),
        ("zookeeper.4lw.commands.whitelist", "*"),
        ("zookeeper.forceSync", force_sync),
        ("zookeeper.preAllocSize", "1024"),
        ("zookeeper.jmx.log4j.disable", "true"),
        ("java.net.preferIPv4Stack", "true"),
        ("org.slf4j.simpleLogger.showDateTime", "true"),
        // Each question whether it serves would be a line of the log.
        (
            "org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn",
            "error",
        ),
    ];
    ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        .map(str::to_owned)
        .into_iter()
        .chain(properties.map(|(name, value)| format!("-D{name}={value}")))
        .collect()
}

impl Backend for ZooKeeper {
    fn client_port(&self) -> u16 {
        CLIENT_PORT
    }

    fn stagger(&self) -> Duration {
        Duration::ZERO
    }

    fn prepare(&self, cluster: &ClusterInfo, node: &NodeInfo) -> io::Result<()> {
        let data = node.data.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), format!("{}\n", node.index + 1))?;
        fs::write(node.data.join("zoo.cfg"), configuration(cluster, node))
    }

    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine {
        let file = node.data.join("zoo.cfg").display().to_string();
        let own = java_flags(&cluster.plan)
            .into_iter()
            .chain([MAIN.to_owned(), file]);
        CommandLine {
            argv: arguments(&cluster.server, own),
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
            loop {
                let asked = cluster.nodes.iter().map(|node| async {
                    let answer = status(cluster.endpoint(&ZooKeeper, node), ASK).await;
                    (node.name.as_str(), answer.ok())
                });
                found(leader(&join_all(asked).await));
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
            let told = |seen: LockSeen| {
                let LockSeen {
                    lock,
                    token,
                    phase,
                    at_ns,
                    ..
                } = seen;
                let node = node.name.clone();
                sink(LeaseEvent {
                    lock,
                    token,
                    phase,
                    at_ns,
                    node,
                });
            };
            loop {
                // What was not seen meanwhile stays unseen; causes then say so.
                let _ended = watch_locks(endpoint, OBSERVER_TIMEOUT, ASK, &told).await;
                tokio::time::sleep(ASK).await;
            }
        }
        .boxed()
    }
}

/// The leader's name; empty for none. Of two that say so, the one that knows the later epoch.
fn leader<'a>(answers: &[(&'a str, Option<ServerStatus>)]) -> &'a str {
    let leading = answers.iter().filter_map(|(name, answer)| {
        let answer = answer.as_ref()?;
        matches!(answer.mode.as_str(), "leader" | "standalone").then_some((*name, answer.zxid))
    });
    leading
        .max_by_key(|(_, zxid)| *zxid)
        .map_or("", |(name, _)| name)
}

/// Asks for the mode first: a session costs the server more than a question.
async fn accepts_writes(endpoint: SocketAddr, name: String) -> Result<(), String> {
    status(endpoint, ASK)
        .await
        .map_err(|error| format!("it does not serve: {error}"))?;
    let config = SessionConfig {
        endpoint,
        timeout: OBSERVER_TIMEOUT,
        keep_alive: true,
        told: Told::Expired,
    };
    let wrote = async {
        let session = Session::open(config, Arc::new(Belief::new()), ASK).await?;
        let path = format!("/ready-{name}");
        let created = session.create(&path, b"", CreateMode::Ephemeral, ASK).await;
        session.close(ASK).await?;
        created
    };
    match wrote.await {
        Err(error) if !error.is_node_exists() => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(mode: &str, zxid: u64) -> Option<ServerStatus> {
        Some(ServerStatus {
            version: "3.8.0".to_owned(),
            mode: mode.to_owned(),
            zxid,
        })
    }

    #[test]
    fn the_later_of_two_leaders_leads() {
        let old = ("n1", said("leader", 0x1_0000_0009));
        let new = ("n3", said("leader", 0x2_0000_0000));
        let follower = ("n2", said("follower", 0x2_0000_0000));
        assert_eq!(leader(&[old.clone(), follower.clone(), new]), "n3");
        assert_eq!(leader(&[follower, ("n1", None)]), "");
        assert_eq!(leader(&[("n1", said("standalone", 1))]), "n1");
    }
}
