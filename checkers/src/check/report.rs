//! What a check concludes, in the form in which it is stored and shown.
//!
//! Reports go into `verdict.json`, which must come out bit for bit the same whenever a history is
//! checked again: no time of day, no hash order, no float that is not rounded.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats;

/// At most this many witnesses are kept; the counts in the metrics are exact all the same.
pub const MAX_WITNESSES: usize = 10;

/// What a check says about a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing that the check looks for is there.
    Valid,
    /// It is there, and a witness shows it.
    Invalid,
    /// The history does not tell. Never to be counted as valid.
    Unknown,
}

/// Who is answerable for a violation. Ordered by how much it matters: a report's class is that of its
/// worst witness, and a fault of the harness casts doubt on everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// What the service stands on broke its promise: a disk said that it had written what it had not, and
    /// then the power was gone.
    FaultsDoing,
    /// A correct lock service with leases allows it: the lease ran out while its holder still acted.
    InherentHazard,
    /// The client acted outside a term, or reported what was not so.
    ClientFault,
    /// The service broke its own promise.
    ServerFault,
    /// The harness contradicts itself; do not trust the run.
    HarnessFault,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Valid => "valid",
            Verdict::Invalid => "invalid",
            Verdict::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::FaultsDoing => "doing of the fault: the disks broke their promise",
            Class::InherentHazard => "inherent hazard of leases",
            Class::ClientFault => "fault of the client",
            Class::ServerFault => "fault of the lock service",
            Class::HarnessFault => "fault of the harness",
        })
    }
}

/// A figure. Serialises as a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Metric {
    /// A count.
    Count(u64),
    /// Anything else, rounded to three decimals.
    Number(f64),
}

impl Metric {
    /// A duration or time in milliseconds, to the microsecond.
    #[must_use]
    pub fn ms(ns: u64) -> Self {
        Metric::Number(stats::ms(ns))
    }

    /// Any finite number, rounded to three decimals.
    #[must_use]
    pub fn rounded(value: f64) -> Self {
        Metric::Number((value * 1000.0).round() / 1000.0)
    }

    /// Its value, for comparisons.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Metric::Count(count) => count as f64,
            Metric::Number(number) => number,
        }
    }
}

impl From<u64> for Metric {
    fn from(count: u64) -> Self {
        Metric::Count(count)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Count(count) => count.fmt(f),
            Metric::Number(number) => number.fmt(f),
        }
    }
}

/// One line of a witness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WitnessLine {
    /// Milliseconds since the workload started.
    pub at_ms: f64,
    /// What happened.
    pub text: String,
}

/// A violation, told from cause to effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// It, in one sentence.
    pub headline: String,
    /// Who is answerable; absent when the history does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The story, in the order of time.
    pub lines: Vec<WitnessLine>,
    /// The operations that make the violation.
    pub ops: Vec<u64>,
}

/// What one check says about one history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the check.
    pub check: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The worst class among all violations (not only those kept as witnesses).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Figures by name. A time that never came (the first of nothing) is absent.
    pub metrics: BTreeMap<String, Metric>,
    /// Violations, the one to read first at the front; at most [`MAX_WITNESSES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witnesses: Vec<Witness>,
    /// Why the verdict is unknown; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_because: Option<String>,
    /// What the reader should know beside the verdict: what was derived, what could not be decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How often each error code was reported (only `stats`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
}

impl Report {
    /// A valid report without figures, to be filled in.
    #[must_use]
    pub fn new(check: &str) -> Self {
        Self {
            check: check.to_owned(),
            verdict: Verdict::Valid,
            class: None,
            metrics: BTreeMap::new(),
            witnesses: Vec::new(),
            unknown_because: None,
            notes: Vec::new(),
            errors: BTreeMap::new(),
        }
    }

    /// Sets a figure.
    pub fn set(&mut self, name: &str, metric: impl Into<Metric>) {
        self.metrics.insert(name.to_owned(), metric.into());
    }

    /// Raises the class to `class` if that is worse.
    pub fn blame(&mut self, class: Option<Class>) {
        self.class = self.class.max(class);
    }
}
