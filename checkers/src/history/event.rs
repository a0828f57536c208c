//! The events of a history and their on-disk form.
//!
//! Every time in here is *truth time*: nanoseconds of the host's `CLOCK_MONOTONIC`, read so that no
//! clock fault reaches it. One event is one JSON object; the field `e` names its kind. What must not
//! be in here: anything that depends on a backend, and anything a checker concludes.

use serde::{Deserialize, Serialize};

/// Truth time in nanoseconds (host `CLOCK_MONOTONIC`).
pub type Ns = u64;

/// Version of the on-disk format. A reader refuses a larger one and must keep reading smaller ones.
pub const FORMAT_VERSION: u32 = 1;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "kebab-case")]
pub enum Event {
    /// First line: what was run.
    Header(Header),
    /// A logical client was opened in a worker.
    Client(ClientOpened),
    /// An operation was handed to its client.
    Invoke(Invoke),
    /// The operation took effect between its invoke and its return.
    Ok(Completion),
    /// The operation definitely had no effect.
    Fail(Completion),
    /// The operation may have taken effect at any time after its invoke, or never. Its client is retired.
    Info(Completion),
    /// A client was told, or found out by itself, that it no longer holds a lock.
    Lost(Lost),
    /// The protected resource handled an access (only resources that know the true order report this).
    Access(Access),
    /// An independent observer saw a lease begin or end in the lock service.
    Lease(LeaseEvent),
    /// An independent observer saw who leads the lock service's cluster.
    Leader(LeaderSeen),
    /// A fault was injected, healed, skipped or failed.
    Fault(FaultEvent),
    /// The resource's content, read once at the end by the controller itself.
    Final(FinalRead),
    /// Last line. A history without it ended when its recorder was killed; it can still be checked.
    End(End),
}

/// What was run. Everything a check needs to know besides the events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`] at the time of writing.
    pub format: u32,
    /// The scenario's title.
    pub title: String,
    /// Name of the arm.
    pub arm: String,
    /// Number of the trial, from 1.
    pub trial: u32,
    /// Seed of this trial.
    pub seed: u64,
    /// Backend and version, for instance `etcd@3.5.16`.
    pub backend: String,
    /// Registry name of the workload, for instance `guarded-set`.
    pub workload: String,
    /// Registry name of the lock, for instance `etcd-v3lock`.
    pub lock: String,
    /// Registry name of the resource; empty when the workload has none.
    pub resource: String,
    /// Holder discipline: `ignore`, `session`, `deadline`, `token` or `txn`.
    pub discipline: String,
    /// Whether the resource refuses stale tokens (`enforce`) or only notes them (`record`).
    pub tokens: String,
    /// Lease time-to-live that the clients asked for, in milliseconds.
    pub ttl_ms: u64,
    /// True when the arm injects faults: then a trial without a proven fault is inconclusive.
    pub faults: bool,
    /// Largest error of the truth clock between processes, in nanoseconds (0 on one machine).
    pub clock_error_ns: Ns,
    /// When the workload started.
    pub at_ns: Ns,
}

impl Header {
    /// True when a holder under this discipline stops at the moment it is told that its lock is lost.
    /// The others act on a lost lock until they release it; what protects them, if anything, is the resource.
    #[must_use]
    pub fn heeds_lost(&self) -> bool {
        matches!(self.discipline.as_str(), "session" | "deadline")
    }
}

/// A logical client and where it lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientOpened {
    /// Logical client, never reused.
    pub client: u32,
    /// The worker's host name in the sandbox, for instance `c1`. Faults name hosts.
    pub host: String,
    /// The node its connection goes to, for instance `n1`.
    pub node: String,
    /// When it was opened.
    pub at_ns: Ns,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// Wait for the lock and take it.
    Acquire,
    /// Give the lock back.
    Release,
    /// Read the protected value.
    Read,
    /// Write the protected value back with one element more.
    Write,
    /// Ask the client whether it believes that it holds the lock.
    Holds,
}

/// An operation as it was handed to its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoke {
    /// Operation, numbered from 0 in the order of hand-over.
    pub op: u64,
    /// Logical client that does it.
    pub client: u32,
    /// What it does.
    pub f: Function,
    /// The lock it acquires, releases, or acts under.
    pub lock: String,
    /// The register of the resource (read and write).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The element that a write adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<u64>,
    /// When the controller handed it over: a lower bound of the true invoke, which the completion carries.
    pub at_ns: Ns,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It took effect.
    Ok,
    /// It definitely had no effect.
    Fail,
    /// Nobody can know.
    Info,
}

/// The end of an operation, with the times taken in its client: invoke before the request was sent,
/// return after the answer was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// The operation that ended.
    pub op: u64,
    /// Truth time before the request was sent.
    pub invoke_ns: Ns,
    /// Truth time after the answer was received.
    pub return_ns: Ns,
    /// Acquire: the fencing token. Absent when the service gave none (see the lock's documentation).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Acquire: true when the client looked right after the grant and its lock was already gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dead_on_arrival: bool,
    /// Acquire: how often its client was woken while it waited. Absent when its client cannot know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<u64>,
    /// Read and write: the version of the register that was read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Write: the version that the written value was built on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// Holds: the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// When the client sent its latest successful lease renewal (or the grant), if it has a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_ns: Option<Ns>,
    /// Why it failed, or why it is unknown: `code: text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The end of a belief: the client library told its holder, or the holder's own deadline passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// Logical client.
    pub client: u32,
    /// The lock that was lost.
    pub lock: String,
    /// When the holder could know.
    pub at_ns: Ns,
    /// What told it, for instance `lease not found`, `deadline`.
    pub why: String,
}

/// One access to a register of the protected resource, in the resource's own order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Position in the resource's order, from 0.
    pub seq: u64,
    /// The operation behind it.
    pub op: u64,
    /// The register.
    pub key: String,
    /// [`Function::Read`] or [`Function::Write`].
    pub f: Function,
    /// The fencing token that came with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// False when the resource refused it.
    pub accepted: bool,
    /// The register's version afterwards.
    pub version: u64,
    /// Elements that were there before this write and are not there any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<u64>,
    /// When it was handled.
    pub at_ns: Ns,
}

/// Whether a lease began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeasePhase {
    /// The lock (or a place in its queue) was entered in the service.
    Granted,
    /// The service removed it: released, revoked or expired.
    Ended,
}

/// What an observer saw in the lock service's own data. It arrives a little later than it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseEvent {
    /// The lock.
    pub lock: String,
    /// Fencing token of the grant it is about.
    pub token: u64,
    /// Began or ended.
    pub phase: LeasePhase,
    /// When the observer heard of it.
    pub at_ns: Ns,
    /// The node that told the observer.
    pub node: String,
}

/// A leader was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaderSeen {
    /// The leading node; empty when there is none.
    pub node: String,
    /// When it was seen.
    pub at_ns: Ns,
}

/// Where a fault is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPhase {
    /// It is in force from `at_ns` on.
    Injected,
    /// It ended at `at_ns`; the receipt covers the whole of it.
    Healed,
    /// It could not apply now (no holder, no leader …): nothing was done.
    Skipped,
    /// Injecting or healing went wrong.
    Failed,
}

/// One step in the life of one injected fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultEvent {
    /// Number of the injection within the trial, from 1; both of its events carry it.
    pub id: u32,
    /// Registry name of the fault, for instance `pause`.
    pub kind: String,
    /// The selector as written in the scenario, for instance `holder`.
    pub target: String,
    /// The hosts that it reached, for instance `["c1"]`.
    pub hosts: Vec<String>,
    /// What this event says.
    pub phase: FaultPhase,
    /// The measured edge: when the fault was known to be in force, or began to be lifted.
    pub at_ns: Ns,
    /// When the nemesis asked for it.
    pub requested_ns: Ns,
    /// Healed: true when the receipt proves that the fault was there.
    #[serde(default)]
    pub proven: bool,
    /// What was measured, in words and figures, or why it was skipped or failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub receipt: String,
}

/// A register's content at the end, read by the controller after every fault was healed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalRead {
    /// The register.
    pub key: String,
    /// Its version.
    pub version: u64,
    /// Its elements, in the order in which they stand there; one that stands there twice is listed twice.
    pub elements: Vec<u64>,
    /// When it was read.
    pub at_ns: Ns,
}

/// Why the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The workload's time was over.
    Completed,
    /// The user interrupted it; faults were healed first.
    Interrupted,
    /// Something in the harness or its servers failed; see the run's log.
    Failed,
}

/// The last line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// When.
    pub at_ns: Ns,
}
