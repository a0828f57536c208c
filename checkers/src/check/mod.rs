//! Checks: what is looked for in a history, one file a check, one line each in [`CHECKS`].
//!
//! A check is a pure function of a settled history. It gives a verdict, figures, and witnesses that
//! a person can follow. `unknown` is an answer and never counts as valid.
//!
//! # Who is answerable
//! | class | when |
//! |---|---|
//! | doing of the fault | a store forgot what it had acknowledged, after a loss of power on disks that had lied about their syncs: no store could help |
//! | inherent hazard | the lease had (or may have) run out while its holder still believed: a pause, a partition or a late message does this to a correct service |
//! | server fault | certain holds overlap; a grant whose lease was gone, without a fault on its client; a token repeated or out of order; a store that lost a write nobody overwrote |
//! | client fault | a write outside any term; a write reported as failed that took effect |
//! | harness fault | the resource contradicts itself: a stale write accepted although it enforces tokens, a write lost that nothing overwrote, an element that nobody wrote |

pub mod availability;
pub mod fencing;
pub mod lease;
pub mod lost_writes;
pub mod mutex;
pub mod register;
mod report;
pub mod stats;
pub mod terms;

pub use report::{Class, MAX_WITNESSES, Metric, Report, Verdict, Witness, WitnessLine};

use crate::history::{Header, History};

/// A figure that a check gives.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Its name, as expectations use it. Unique over all checks.
    pub name: &'static str,
    /// Its unit, for instance `ms`.
    pub unit: &'static str,
    /// What it counts or measures.
    pub summary: &'static str,
}

/// A check.
#[derive(Clone, Copy)]
pub struct CheckSpec {
    /// Its name.
    pub name: &'static str,
    /// What it looks for.
    pub summary: &'static str,
    /// Its figures.
    pub metrics: &'static [MetricSpec],
    /// Whether it makes sense for a history with this header.
    pub applies: fn(&Header) -> bool,
    /// Runs it.
    pub run: fn(&History) -> Report,
}

/// All checks.
pub const CHECKS: &[CheckSpec] = &[
    terms::SPEC,
    lost_writes::SPEC,
    fencing::SPEC,
    mutex::SPEC,
    lease::SPEC,
    register::SPEC,
    availability::SPEC,
    stats::SPEC,
];

/// Runs every check that applies, in the order of [`CHECKS`].
#[must_use]
pub fn run_all(history: &History) -> Vec<Report> {
    CHECKS
        .iter()
        .filter(|check| (check.applies)(&history.header))
        .map(|check| (check.run)(history))
        .collect()
}

const fn metric(name: &'static str, unit: &'static str, summary: &'static str) -> MetricSpec {
    MetricSpec {
        name,
        unit,
        summary,
    }
}
