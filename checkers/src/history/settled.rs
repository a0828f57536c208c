//! A history after reading: operations with their outcomes, and everything else by kind.

use std::collections::{BTreeMap, HashMap};

use super::event::{
    Access, ClientOpened, End, FaultEvent, FinalRead, Function, Header, LeaderSeen, LeaseEvent,
    Lost, Ns, Outcome,
};
use super::names::Names;

/// An operation with its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Its number.
    pub op: u64,
    /// The logical client that did it.
    pub client: u32,
    /// What it did.
    pub f: Function,
    /// The lock: a number in [`History::locks`].
    pub lock: u32,
    /// The register: a number in [`History::keys`].
    pub key: Option<u32>,
    /// The element that a write adds.
    pub element: Option<u64>,
    /// How it ended. One that never completed is [`Outcome::Info`].
    pub outcome: Outcome,
    /// When the controller handed it over: nothing of it happened before.
    pub handed_over_ns: Ns,
    /// Before the request was sent; of one that never completed, when it was handed over.
    pub invoke_ns: Ns,
    /// After the answer was received. [`Ns::MAX`] for [`Outcome::Info`]: it may take effect at any later time.
    pub return_ns: Ns,
    /// [`Outcome::Info`]: when its client gave up and was retired. Absent when the history ends before.
    pub gave_up_ns: Option<Ns>,
    /// Acquire: the fencing token.
    pub token: Option<u64>,
    /// Acquire: the lock was gone when the client looked right after the grant.
    pub dead_on_arrival: bool,
    /// Acquire: how often its client was woken while it waited, if it can know.
    pub wakes: Option<u64>,
    /// Read and write: the register's version.
    pub version: Option<u64>,
    /// Write: the version that it was built on.
    pub base: Option<u64>,
    /// Holds: the answer.
    pub holds: Option<bool>,
    /// When the client sent its latest successful lease renewal, as known at the return.
    pub renewed_ns: Option<Ns>,
    /// Why it failed or is unknown: `code: text`.
    pub error: Option<Box<str>>,
}

/// Where and why a history stops before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The first line that is not there, or not whole, from 1.
    pub line: u64,
    /// In words.
    pub why: String,
}

/// One trial, ready to be checked.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What was run.
    pub header: Header,
    /// All operations in the order of hand-over; those of one client are in their true order.
    pub operations: Vec<Operation>,
    /// Names of locks.
    pub locks: Names,
    /// Names of registers.
    pub keys: Names,
    /// Clients by number.
    pub clients: BTreeMap<u32, ClientOpened>,
    /// Ends of belief, in the order of the file.
    pub lost: Vec<Lost>,
    /// Accesses, in the resource's order.
    pub accesses: Vec<Access>,
    /// What the observer saw of leases.
    pub leases: Vec<LeaseEvent>,
    /// Leaders seen.
    pub leaders: Vec<LeaderSeen>,
    /// Fault events.
    pub faults: Vec<FaultEvent>,
    /// Final reads.
    pub finals: Vec<FinalRead>,
    /// The last line, if the recording was ended in an orderly way.
    pub end: Option<End>,
    /// Set when it was not: where it stops.
    pub truncated: Option<Truncation>,
    /// Oddities that no check depends on, with their lines.
    pub warnings: Vec<String>,
    /// The latest time that any event mentions.
    pub last_ns: Ns,
    /// Where operations stand whose number is not their place.
    pub(super) displaced: HashMap<u64, usize>,
}

impl History {
    /// The place in [`operations`](Self::operations) of the operation numbered `op`.
    #[must_use]
    pub fn index_of(&self, op: u64) -> Option<usize> {
        let place = usize::try_from(op).ok()?;
        match self.operations.get(place) {
            Some(operation) if operation.op == op => Some(place),
            _ => self.displaced.get(&op).copied(),
        }
    }

    /// The host on which a client lives, if it was opened in this history.
    #[must_use]
    pub fn host_of(&self, client: u32) -> Option<&str> {
        self.clients.get(&client).map(|client| client.host.as_str())
    }

    /// Milliseconds since the workload started, to the microsecond (negative before it).
    #[must_use]
    pub fn at_ms(&self, at_ns: Ns) -> f64 {
        let since_ns = i128::from(at_ns) - i128::from(self.header.at_ns);
        let since_us = (since_ns + 500).div_euclid(1000);
        since_us as f64 / 1000.0
    }
}
