//! Check `terms`: did two clients believe at one time that they held one lock?
//!
//! Looks at beliefs ([`crate::term`]), not at the service's data. Overlaps of beliefs are unsafe
//! whoever is answerable for them; which of them the service is answerable for is decided by certain
//! holds (see [`crate::term::Term::certain_until_ns`] and [`Evidence::double_grant`]): two that intersect mean that the
//! service granted the lock twice, or ended a lease early. The rest may be the inherent hazard of
//! leases: the lease ran out, and its holder did not know.
//!
//! A grant that was dead on arrival is the service's fault, unless a fault was in force on its client
//! between the request and the answer: then the lease may have run out after the grant.
//!
//! With clocks that differ, every interval is shrunk by the clock error at both ends. Cost: O(n log n).

use std::collections::{BTreeMap, HashSet};

use super::{
    CheckSpec, Class, MAX_WITNESSES, Metric, MetricSpec, Report, Verdict, Witness, metric,
};
use crate::cause::Story;
use crate::evidence::Evidence;
use crate::history::{Function, History, Ns, Outcome};
use crate::stats::ms;
use crate::sweep::{Interval, Overlap, Sweep, sweep};
use crate::term::Term;

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "terms",
    summary: "two clients believe at one time that they hold one lock; grants whose lease is already gone",
    metrics: METRICS,
    applies: |_| true,
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "terms",
        "terms",
        "successful acquires, up to the moment their client stopped believing",
    ),
    metric(
        "completed_terms",
        "terms",
        "terms that were released, or ended by their client when told that the lock was lost",
    ),
    metric(
        "overlapping_terms",
        "pairs",
        "pairs of terms of different clients on one lock that overlap",
    ),
    metric(
        "double_grants",
        "pairs",
        "overlapping pairs for which the service itself must have held the lock twice",
    ),
    metric(
        "overlap_total_ms",
        "ms",
        "time during which two or more clients believed, summed over the locks",
    ),
    metric(
        "overlap_longest_ms",
        "ms",
        "longest overlap of a pair of terms",
    ),
    metric(
        "overlap_depth",
        "clients",
        "most clients that believed in one lock at one time",
    ),
    metric(
        "first_overlap_ms",
        "ms",
        "start of the first overlap, after the start of the workload; absent without one",
    ),
    metric(
        "expired_grants",
        "acquires",
        "successful acquires whose lock was already gone when their client looked",
    ),
    metric("acquires_refused", "acquires", "acquires that failed"),
];

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let terms = &evidence.terms;
    let beliefs = sweep_locks(history, terms, |term| term.end_ns);
    let holds = sweep_locks(history, terms, |term| {
        term.certain_until_ns(evidence.ttl_ns)
    });
    let expired: Vec<usize> = places(history, |op| {
        op.outcome == Outcome::Ok && op.f == Function::Acquire && op.dead_on_arrival
    });
    let refused = places(history, |op| {
        op.outcome == Outcome::Fail && op.f == Function::Acquire
    });

    let mut report = Report::new(SPEC.name);
    report.set("terms", terms.len() as u64);
    let completed = terms.iter().filter(|term| term.completed()).count();
    report.set("completed_terms", completed as u64);
    report.set("overlapping_terms", beliefs.pairs);
    report.set("double_grants", holds.pairs);
    report.set("overlap_total_ms", Metric::ms(beliefs.shared_ns));
    report.set(
        "overlap_longest_ms",
        Metric::ms(beliefs.longest.map_or(0, |o| o.lasts_ns)),
    );
    report.set("overlap_depth", beliefs.depth);
    if let Some(first) = beliefs.first.first() {
        report.set(
            "first_overlap_ms",
            Metric::Number(history.at_ms(first.from_ns)),
        );
    }
    report.set("expired_grants", expired.len() as u64);
    report.set("acquires_refused", refused.len() as u64);

    if beliefs.pairs > 0 {
        report.blame(Some(Class::InherentHazard));
    }
    if holds.pairs > 0 && evidence.ttl_binds() {
        report.blame(Some(Class::ServerFault));
    }
    for &acquire in &expired {
        report.blame(Some(expired_class(&evidence, acquire)));
    }
    report.witnesses = witnesses(&evidence, &beliefs, &holds, &expired);
    if beliefs.pairs > 0 || !expired.is_empty() {
        report.verdict = Verdict::Invalid;
    } else if terms.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some("no acquire succeeded: there is no term to check".to_owned());
    }
    report
}

fn places(history: &History, wanted: impl Fn(&crate::history::Operation) -> bool) -> Vec<usize> {
    let operations = history.operations.iter().enumerate();
    operations
        .filter(|(_, operation)| wanted(operation))
        .map(|(place, _)| place)
        .collect()
}

/// Sweeps over each lock and adds the findings up; the earliest overlaps are kept.
fn sweep_locks(history: &History, terms: &[Term], until_ns: impl Fn(&Term) -> Ns) -> Sweep {
    let error_ns = history.header.clock_error_ns;
    let mut locks: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
    for (of, term) in terms.iter().enumerate() {
        locks.entry(term.lock).or_default().push(Interval {
            from_ns: term.start_ns.saturating_add(error_ns),
            to_ns: until_ns(term).saturating_sub(error_ns),
            of,
        });
    }
    let mut all = Sweep::default();
    for intervals in locks.into_values() {
        let one = sweep(intervals, MAX_WITNESSES);
        all.pairs += one.pairs;
        all.shared_ns += one.shared_ns;
        all.depth = all.depth.max(one.depth);
        let longest_ns = all.longest.map_or(0, |overlap| overlap.lasts_ns);
        if let Some(longest) = one.longest
            && longest.lasts_ns > longest_ns
        {
            all.longest = Some(longest);
        }
        all.first.extend(one.first);
        all.first
            .sort_by_key(|overlap| (overlap.from_ns, overlap.later));
        all.first.truncate(MAX_WITNESSES);
    }
    all
}

/// The service's faults first, then expired grants, then the other overlaps; each in the order of time.
fn witnesses(
    evidence: &Evidence<'_>,
    beliefs: &Sweep,
    holds: &Sweep,
    expired: &[usize],
) -> Vec<Witness> {
    let mut told: HashSet<(usize, usize)> = HashSet::new();
    let mut witnesses = Vec::new();
    for overlap in &holds.first {
        told.insert((overlap.earlier, overlap.later));
        // The belief lasts longer than the certain hold; it is the belief that harms.
        witnesses.push(overlap_witness(evidence, overlap));
    }
    let grants = expired.iter().take(MAX_WITNESSES);
    witnesses.extend(grants.map(|&acquire| expired_witness(evidence, acquire)));
    for overlap in beliefs.longest.iter().chain(&beliefs.first) {
        if told.insert((overlap.earlier, overlap.later)) {
            witnesses.push(overlap_witness(evidence, overlap));
        }
    }
    witnesses.truncate(MAX_WITNESSES);
    witnesses
}

fn overlap_witness(evidence: &Evidence<'_>, overlap: &Overlap) -> Witness {
    let (a, b) = (
        &evidence.terms[overlap.earlier],
        &evidence.terms[overlap.later],
    );
    let (stale, fresh) = evidence.stale_first(a, b);
    let double = evidence.double_grant(a, b);
    let until_ns = a.end_ns.min(b.end_ns);
    let mut story = Story::new(evidence);
    story.acquired(stale);
    story.acquired(fresh);
    story.lapse(stale, until_ns);
    story.ended(if stale.end_ns <= fresh.end_ns {
        stale
    } else {
        fresh
    });
    let why = if double {
        "the service must have held it for both"
    } else if evidence.ttl_binds() {
        "the lease of the first had run out, as far as is known"
    } else {
        "nobody can say how long the first lease was good, as a clock fault was in force on a node"
    };
    let headline = format!(
        "{} and {} both believed for {:.3} ms that they held lock `{}`: {why}",
        story.client(stale.client),
        story.client(fresh.client),
        ms(until_ns - a.start_ns.max(b.start_ns)),
        evidence.history.locks.name(a.lock),
    );
    let class = if double {
        Class::ServerFault
    } else {
        Class::InherentHazard
    };
    story.tell(headline, Some(class))
}

fn expired_class(evidence: &Evidence<'_>, acquire: usize) -> Class {
    if evidence.granted_dead(acquire) {
        Class::ServerFault
    } else {
        Class::InherentHazard
    }
}

fn expired_witness(evidence: &Evidence<'_>, acquire: usize) -> Witness {
    let operation = &evidence.history.operations[acquire];
    let class = expired_class(evidence, acquire);
    let lock = evidence.history.locks.name(operation.lock);
    let mut story = Story::new(evidence);
    let client = story.client(operation.client);
    let op = operation.op;
    story.line(
        operation.invoke_ns,
        format!("{client} asked for lock `{lock}` (op {op})"),
    );
    if let Some(renewed_ns) = operation.renewed_ns {
        let ttl_ms = evidence.history.header.ttl_ms;
        let text = format!("{client} sent the last renewal of its lease, good for {ttl_ms} ms");
        story.line(renewed_ns, text);
    }
    for fault in
        evidence.faults_on_client(operation.client, operation.invoke_ns, operation.return_ns)
    {
        let text = format!(
            "fault {} ({} of {}) was in force meanwhile",
            fault.id,
            fault.kind,
            fault.hosts.join(", ")
        );
        story.line(fault.from_ns, text);
    }
    let text = match operation.token {
        Some(token) => {
            format!("{client} was granted the lock (token {token}), looked, and it was gone")
        }
        None => format!("{client} was granted the lock, looked, and it was gone"),
    };
    story.line(operation.return_ns, text);
    story.involve(acquire);
    let why = match class {
        Class::ServerFault => "the service granted a lock whose lease was gone",
        _ => "its client was held up meanwhile, which may explain it",
    };
    story.tell(
        format!("{client} was granted lock `{lock}`, which was already gone: {why}"),
        Some(class),
    )
}
