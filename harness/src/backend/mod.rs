//! Lock services: how a cluster is started, when it is ready, who leads it. One file a backend, one
//! line each in [`BACKENDS`].
//!
//! A backend must not inject faults or hold locks; its lock clients are in `workloads`.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::future::BoxFuture;
use workloads::option::OptionSpec;

use crate::provision::Launch;
use crate::scenario::ClusterPlan;

pub mod builtin;
pub mod consul;
pub mod etcd;
pub mod redis;
pub mod zookeeper;

/// A kind of lock service.
pub struct BackendSpec {
    /// Name in scenario files.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The version that a scenario gets which names none.
    pub default_version: &'static str,
    /// Cluster sizes that make sense.
    pub nodes: &'static [u32],
    /// Ways to be wrong on request.
    pub bugs: &'static [&'static str],
    /// Settings that only it has.
    pub options: &'static [OptionSpec],
    /// Says what was expected of values that are right each for itself, if no such cluster can be.
    pub check: fn(&ClusterPlan) -> Result<(), String>,
    /// The leases that a cluster grants, in milliseconds.
    pub ttl_ms: fn(&ClusterPlan) -> RangeInclusive<u64>,
    /// How many hosts of its own it needs beside the nodes, such as Sentinels.
    pub helpers: fn(&ClusterPlan) -> u32,
    /// True for a model that stands in for a real service; every output says so.
    pub model: bool,
    /// How it is run.
    pub backend: &'static dyn Backend,
}

/// Every backend there is.
pub const BACKENDS: &[BackendSpec] = &[
    etcd::SPEC,
    consul::SPEC,
    zookeeper::SPEC,
    redis::SPEC,
    builtin::SPEC,
];

/// The backend of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static BackendSpec> {
    BACKENDS.iter().find(|spec| spec.name == name)
}

/// One node of a cluster, or one of its helpers, that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Host name: nodes are `n1` and up, helpers `s1` and up.
    pub name: String,
    /// Which of its kind it is, from 0.
    pub index: usize,
    /// Whether it is a helper.
    pub is_helper: bool,
    /// Its address in the sandbox.
    pub address: Ipv4Addr,
    /// Its data directory, which survives a restart.
    pub data: PathBuf,
}

/// A cluster as a backend sees it.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    /// What the scenario asks for.
    pub plan: ClusterPlan,
    /// How the server is started.
    pub server: Launch,
    /// The nodes in their order.
    pub nodes: Vec<NodeInfo>,
    /// The helpers in their order; they start after the nodes.
    pub helpers: Vec<NodeInfo>,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Environment, besides PATH, HOME and TMPDIR.
    pub env: Vec<(OsString, OsString)>,
}

/// Told of each lease that an observer sees begin or end.
pub type LeaseSink = Box<dyn Fn(LeaseEvent) + Send + Sync>;

/// How a lock service is run.
pub trait Backend: Send + Sync {
    /// The port on which nodes serve clients.
    fn client_port(&self) -> u16;

    /// The port on which helpers serve clients, where there are any.
    fn helper_port(&self) -> u16 {
        self.client_port()
    }

    /// Pause between the starts of two hosts.
    fn stagger(&self) -> Duration;

    /// Writes what a node or helper must find in its data folder, once, before its first start.
    ///
    /// # Errors
    /// When it cannot be written.
    fn prepare(&self, _cluster: &ClusterInfo, _node: &NodeInfo) -> io::Result<()> {
        Ok(())
    }

    /// The exact command line of a node or helper.
    fn command(&self, cluster: &ClusterInfo, node: &NodeInfo) -> CommandLine;

    /// Whether every node accepts writes now.
    fn is_ready<'a>(&'a self, cluster: &'a ClusterInfo) -> BoxFuture<'a, Result<(), String>>;

    /// Starts asking who leads; the future ends only with its drop. `found` is told the leader's node
    /// name (empty for none) each time it was asked for.
    fn watch_leader(
        &self,
        cluster: ClusterInfo,
        found: Box<dyn Fn(&str) + Send + Sync>,
    ) -> BoxFuture<'static, ()>;

    /// Watches leases begin and end through one node; the future ends only with its drop.
    fn watch_leases(
        &self,
        cluster: ClusterInfo,
        node: NodeInfo,
        sink: LeaseSink,
    ) -> BoxFuture<'static, ()>;
}

impl ClusterInfo {
    /// The node that the client host of this index talks to.
    #[must_use]
    pub fn node_of(&self, client: usize) -> &NodeInfo {
        &self.nodes[client % self.nodes.len()]
    }

    /// Where a node or helper serves clients.
    #[must_use]
    pub fn endpoint(&self, backend: &dyn Backend, node: &NodeInfo) -> SocketAddr {
        let port = if node.is_helper {
            backend.helper_port()
        } else {
            backend.client_port()
        };
        SocketAddr::from((node.address, port))
    }

    /// Where these nodes or helpers serve clients, in their order.
    #[must_use]
    pub fn endpoints(&self, backend: &dyn Backend, nodes: &[NodeInfo]) -> Vec<SocketAddr> {
        nodes
            .iter()
            .map(|node| self.endpoint(backend, node))
            .collect()
    }
}

/// Asks every node in turn whether it is ready; an error names the first that is not.
async fn each_is_ready<F, E>(
    backend: &dyn Backend,
    cluster: &ClusterInfo,
    ask: impl Fn(SocketAddr, String) -> F + Send,
) -> Result<(), String>
where
    F: Future<Output = Result<(), E>> + Send,
    E: Display,
{
    for node in &cluster.nodes {
        let answer = ask(cluster.endpoint(backend, node), node.name.clone()).await;
        answer.map_err(|error| format!("{}: {error}", node.name))?;
    }
    Ok(())
}

/// The words that start a server, and then its own flags.
fn arguments(server: &Launch, flags: impl IntoIterator<Item = String>) -> Vec<OsString> {
    let words = server.words().iter().cloned().chain(flags);
    words.map(Into::into).collect()
}
