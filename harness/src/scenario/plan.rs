//! What a scenario comes to: every arm with all its values, ready to run. It is stored in `plan.json`.
//!
//! Plain data: nothing here depends on how a scenario is written, and nothing is left to be defaulted.

use nemesis::{FaultPlan, Generator};
use serde::{Deserialize, Serialize};
use workloads::discipline::Discipline;
use workloads::option::Options;
use workloads::resource::memory::store::TokenPolicy;

use super::duration::RangeNs;
use super::expect::Expectation;
use super::holds_in::HoldsIn;
use crate::sandbox::NetworkKind;

/// A scenario with overrides, defaults and arms worked in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// What it shows, in one line.
    pub title: String,
    /// Background.
    pub about: Option<String>,
    /// Rows of the evidence ledger.
    pub claims: Vec<u8>,
    /// The public report that it reproduces.
    pub issue: Option<String>,
    /// The scenario file, as given.
    pub file: String,
    /// Trials of each arm.
    pub trials: u32,
    /// Seed that everything is drawn from.
    pub seed: u64,
    /// The arms, in the order of the file.
    pub arms: Vec<ArmPlan>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmPlan {
    /// Its name, unique within the scenario.
    pub name: String,
    /// What it is for.
    pub about: Option<String>,
    /// The lock service.
    pub cluster: ClusterPlan,
    /// What the clients do.
    pub workload: WorkloadPlan,
    /// What is done to hosts meanwhile.
    pub faults: Vec<FaultPlan>,
    /// How those of the faults are drawn that have a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nemesis: Option<Generator>,
    /// What it must show.
    pub expect: Vec<Expectation>,
    /// In how many trials.
    pub holds_in: HoldsIn,
    /// The sweep that it is a point of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepPoint>,
}

/// Where an arm stands in a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPoint {
    /// The sweep's name.
    pub sweep: String,
    /// The point, as it is to be printed.
    pub point: String,
}

/// A lock service to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterPlan {
    /// Registry name of the backend.
    pub backend: String,
    /// Its version.
    pub version: String,
    /// Number of nodes.
    pub nodes: u32,
    /// What joins the hosts.
    #[serde(default)]
    pub network: NetworkKind,
    /// The bug to switch on.
    pub bug: Option<String>,
    /// How long the nodes may take until they accept writes, in milliseconds.
    pub ready_timeout_ms: u64,
    /// Timing of its own protocol.
    pub tuning: Tuning,
    /// Settings that only this backend has, with their defaults.
    #[serde(default)]
    pub options: Options,
}

/// Timing of a cluster's own protocol; `None` is the backend's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Between two heartbeats of the leader, in milliseconds.
    pub heartbeat_ms: Option<u64>,
    /// Without a heartbeat until an election, in milliseconds.
    pub election_ms: Option<u64>,
}

/// What the clients do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPlan {
    /// Registry name of the workload.
    pub kind: String,
    /// Registry name of the lock.
    pub lock: String,
    /// Registry name of the resource, when the workload has one.
    pub resource: Option<String>,
    /// Logical clients.
    pub clients: u32,
    /// Client processes.
    pub workers: u32,
    /// Named locks.
    pub locks: u32,
    /// Lease time-to-live that clients ask for, in milliseconds.
    pub ttl_ms: u64,
    /// How long a holder works.
    pub hold: RangeNs,
    /// How long a client rests between two rounds.
    pub think: RangeNs,
    /// How long the clients go on, in nanoseconds.
    pub duration_ns: u64,
    /// How a holder finds out that it is none any more.
    pub discipline: Discipline,
    /// What the resource does with stale tokens.
    pub tokens: TokenPolicy,
    /// Whether leases are renewed.
    pub keep_alive: bool,
    /// Longest wait for a lock, in nanoseconds.
    pub acquire_timeout_ns: u64,
    /// Longest wait for any other answer, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Completed terms without which a trial is inconclusive.
    pub min_terms: u64,
    /// Most operations per second over all clients; `None` is without limit.
    pub rate_per_s: Option<f64>,
    /// Settings that only this lock has, with their defaults.
    #[serde(default)]
    pub options: Options,
}
