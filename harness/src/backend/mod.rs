//! Lock services: how a cluster is started, when it is ready, who leads it. One file a backend, one
//! line each in [`BACKENDS`].
//!
//! A backend must not inject faults or hold locks; its lock clients are in `workloads`.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use checkers::history::LeaseEvent;
use futures_util::future::BoxFuture;

use crate::scenario::{ClusterPlan, Tuning};

pub mod builtin;
pub mod etcd;

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
    /// Shortest lease that the service grants under this tuning, in milliseconds.
    pub min_ttl_ms: fn(&Tuning) -> u64,
    /// True for a model that stands in for a real service; every output says so.
    pub model: bool,
    /// How it is run.
    pub backend: &'static dyn Backend,
}

/// Every backend there is.
pub const BACKENDS: &[BackendSpec] = &[etcd::SPEC, builtin::SPEC];

/// The backend of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static BackendSpec> {
    BACKENDS.iter().find(|spec| spec.name == name)
}

/// One node of a cluster that is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Host name, `n1` and up.
    pub name: String,
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
    /// The server's binary.
    pub server: PathBuf,
    /// The nodes in their order.
    pub nodes: Vec<NodeInfo>,
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

    /// Pause between the starts of two nodes.
    fn stagger(&self) -> Duration;

    /// The exact command line of a node.
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

    /// Where a node serves clients.
    #[must_use]
    pub fn endpoint(&self, backend: &dyn Backend, node: &NodeInfo) -> SocketAddr {
        SocketAddr::from((node.address, backend.client_port()))
    }
}

fn arguments(program: &Path, arguments: impl IntoIterator<Item = String>) -> Vec<OsString> {
    std::iter::once(program.into())
        .chain(arguments.into_iter().map(Into::into))
        .collect()
}
