//! Expectations that an arm can never meet, because what they count cannot happen in it.

use super::expect::Expectation;
use super::known::{Known, KnownMetric};
use nemesis::FaultPlan;

use super::plan::WorkloadPlan;
use workloads::resource::memory::store::TokenPolicy;

/// What is known about a metric before anything has run.
enum Certainty {
    /// No check reports it.
    NotReported,
    /// It is 0.
    AlwaysZero,
}

/// What decides whether a metric can occur.
struct Facts<'a> {
    workload: &'a WorkloadPlan,
    /// Whether the workload writes to a resource.
    writes: bool,
    faults: &'a [FaultPlan],
}

struct Rule {
    concerns: fn(&KnownMetric) -> bool,
    applies: fn(&Facts<'_>) -> bool,
    certainty: Certainty,
    why: &'static str,
    hint: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        concerns: |metric| {
            metric.check == "lost-writes" || metric.name.starts_with("stale_writes_")
        },
        applies: |facts| !facts.writes,
        certainty: Certainty::NotReported,
        why: "writes nothing, so it is never counted",
        hint: "take a workload that writes to a resource, or expect something of the terms",
    },
    Rule {
        concerns: |metric| metric.name == "stale_writes_rejected",
        applies: |facts| facts.workload.tokens == TokenPolicy::Record,
        certainty: Certainty::AlwaysZero,
        why: "has tokens = \"record\", which refuses no write",
        hint: "set workload.tokens = \"enforce\" or workload.discipline = \"token\"",
    },
    Rule {
        concerns: |metric| metric.name == "stale_writes_accepted",
        applies: |facts| facts.workload.tokens == TokenPolicy::Enforce,
        certainty: Certainty::AlwaysZero,
        why: "has tokens = \"enforce\", which refuses every stale write",
        hint: "set workload.tokens = \"record\"",
    },
    Rule {
        concerns: |metric| metric.name.starts_with("faults_"),
        applies: |facts| facts.faults.is_empty(),
        certainty: Certainty::AlwaysZero,
        why: "has no faults",
        hint: "add a [[fault]], or take `faults = false` out of the arm",
    },
];

/// Why the arm can never meet this expectation, and what to do; `None` when it may.
pub(super) fn impossible(
    expectation: &Expectation,
    known: &Known,
    workload: &WorkloadPlan,
    faults: &[FaultPlan],
) -> Option<(&'static str, &'static str)> {
    let metric = known.metric(&expectation.metric)?;
    let writes = known
        .workload(&workload.kind)
        .is_some_and(|kind| kind.needs_resource);
    let facts = Facts {
        workload,
        writes,
        faults,
    };
    RULES
        .iter()
        .filter(|rule| (rule.concerns)(metric) && (rule.applies)(&facts))
        // An expectation of zero holds for what is always zero: a control may well say so.
        .find(|rule| match rule.certainty {
            Certainty::NotReported => true,
            Certainty::AlwaysZero => !expectation.holds(0.0),
        })
        .map(|rule| (rule.why, rule.hint))
}
