//! Check `lease`: did the service keep the promise that a lease makes?
//!
//! A lease may run out under its holder; that is no fault (facts: E). What the service owes is decided
//! with the *certain hold* of a grant: from the return of its acquire to the earliest of S + TTL (S = when
//! its last known renewal, or its request, was sent) and the moment its client let go.
//!
//! - **E2, with tokens**, exact for what is known: grants in the order of their tokens take effect one
//!   behind the other, each in its acquire and after the certain end of the one before: x = max(a, e₋₁) must
//!   be ≤ a′, then e = max(x, min(r, S + TTL)). It contains E1 (two certain holds overlap) and E3 (tokens out
//!   of the order of time). Grants without a token are judged by E1 in the check `terms`.
//! - **Early expiry**: an observer heard that a lease had ended before its certain hold was over. News
//!   come late, never early.
//! - **Late expiry** is allowed; it is measured against S + TTL of the last *known* renewal, so it is an
//!   upper bound.
//! - **Awareness**: from the moment the observer heard that the lease had ended to the moment its client was
//!   told or let go. A lower bound of how long the client believed in vain.
//!
//! A lock that was gone when its client looked (`dead_on_arrival`) is no certain hold. When a clock fault was
//! in force on a node, its seconds are not ours and TTL bounds nothing: what would be the service's
//! fault is then reported as the inherent hazard. Beliefs that overlap are the business of `terms`.

use std::collections::BTreeMap;

use super::{
    CheckSpec, Class, MAX_WITNESSES, Metric, MetricSpec, Report, Verdict, Witness, metric,
};
use crate::cause::Story;
use crate::evidence::Evidence;
use crate::history::{History, LeaseEvent, Ns};
use crate::stats::{ms, percentile};
use crate::term::{Term, TermEnd};

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "lease",
    summary: "no lease ends before its time, grants follow their tokens; expiry and awareness latency",
    metrics: METRICS,
    applies: |header| header.ttl_ms > 0,
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "lease_grants",
        "grants",
        "grants with a token whose lease was judged",
    ),
    metric(
        "lease_violations",
        "grants",
        "grants that, by their tokens, began before the one before must have ended",
    ),
    metric(
        "early_expiries",
        "leases",
        "leases that ended before their TTL was over",
    ),
    metric(
        "expiries_observed",
        "leases",
        "leases that an observer saw run out under a client that had not let go",
    ),
    metric(
        "expiry_late_p50_ms",
        "ms",
        "median of how much later than its TTL after the last known renewal a lease ran out, at most; absent without one",
    ),
    metric(
        "expiry_late_max_ms",
        "ms",
        "the longest of these; absent without one",
    ),
    metric(
        "awareness_p50_ms",
        "ms",
        "median time from the observed end of a lease to its client's being told or letting go, at least; absent without one",
    ),
    metric(
        "awareness_max_ms",
        "ms",
        "the longest of these; absent without one",
    ),
    metric(
        "never_aware",
        "leases",
        "leases that ran out under a client that had not noticed when the history ends",
    ),
];

/// A lease that ended early, and what was heard.
struct Early<'e> {
    term: &'e Term,
    heard: &'e LeaseEvent,
    owed_until_ns: Ns,
}

/// A grant that came too early, and the one before it.
struct TooEarly<'e> {
    before: &'e Term,
    term: &'e Term,
    owed_until_ns: Ns,
}

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let (grants, too_early) = in_token_order(&evidence);
    let expiry = expiries(&evidence);
    let mut report = Report::new(SPEC.name);
    report.set("lease_grants", grants);
    report.set("lease_violations", too_early.len() as u64);
    report.set("early_expiries", expiry.early.len() as u64);
    report.set("expiries_observed", expiry.late_ns.len() as u64);
    report.set("never_aware", expiry.never_aware);
    for (name, mut values) in [
        ("expiry_late", expiry.late_ns),
        ("awareness", expiry.aware_ns),
    ] {
        values.sort_unstable();
        for (percent, suffix) in [(50, "p50"), (100, "max")] {
            if let Some(value) = percentile(&values, percent) {
                report.set(&format!("{name}_{suffix}_ms"), Metric::ms(value));
            }
        }
    }
    let clocks = !evidence.ttl_binds();
    let class = if clocks {
        Class::InherentHazard
    } else {
        evidence.service_class()
    };
    let witnesses = too_early
        .iter()
        .map(|found| too_early_witness(&evidence, found, class));
    let witnesses = witnesses.chain(
        expiry
            .early
            .iter()
            .map(|early| early_witness(&evidence, early, class)),
    );
    report.witnesses = witnesses.take(MAX_WITNESSES).collect();
    if !report.witnesses.is_empty() {
        report.verdict = Verdict::Invalid;
        report.blame(Some(class));
    } else if grants == 0 && history.leases.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some(
            "no grant came with a token and nobody observed the leases: nothing can be judged"
                .to_owned(),
        );
    }
    report.notes.push(format!(
        "bound: TTL {} ms after the last known renewal was sent, {}; clock error {} ns at both ends",
        history.header.ttl_ms,
        if clocks {
            "not binding, as a clock fault was in force on a node"
        } else {
            "clock drift taken as 0 (one machine, no clock fault on a node)"
        },
        history.header.clock_error_ns
    ));
    report
}

/// Grants of each lock in the order of their tokens (E2).
fn in_token_order<'e>(evidence: &'e Evidence<'_>) -> (u64, Vec<TooEarly<'e>>) {
    let history = evidence.history;
    let error_ns = history.header.clock_error_ns;
    let mut locks: BTreeMap<u32, Vec<&Term>> = BTreeMap::new();
    for term in &evidence.terms {
        let certain = !history.operations[term.acquire].dead_on_arrival;
        if term.token.is_some() && certain {
            locks.entry(term.lock).or_default().push(term);
        }
    }
    let (mut grants, mut found) = (0, Vec::new());
    for mut terms in locks.into_values() {
        grants += terms.len() as u64;
        terms.sort_by_key(|term| (term.token, term.start_ns, term.acquire));
        let mut owed: Option<(&Term, Ns)> = None;
        for term in terms {
            // A token given twice is the check `fencing`'s to report.
            if owed.is_some_and(|(before, _)| before.token == term.token) {
                continue;
            }
            let invoke_ns = history.operations[term.acquire]
                .invoke_ns
                .saturating_sub(error_ns);
            let until_ns = owed.map_or(0, |(_, until_ns)| until_ns);
            let began_ns = invoke_ns.max(until_ns);
            let latest_ns = term.start_ns.saturating_add(error_ns);
            if let Some((before, owed_until_ns)) = owed
                && began_ns > latest_ns
            {
                found.push(TooEarly {
                    before,
                    term,
                    owed_until_ns,
                });
            }
            let certain_ns = term
                .certain_until_ns(evidence.ttl_ns)
                .saturating_sub(error_ns);
            let ends_ns = certain_ns.max(began_ns.min(latest_ns));
            if ends_ns >= until_ns {
                owed = Some((term, ends_ns));
            }
        }
    }
    (grants, found)
}

#[derive(Default)]
struct Expiries<'e> {
    early: Vec<Early<'e>>,
    late_ns: Vec<Ns>,
    aware_ns: Vec<Ns>,
    never_aware: u64,
}

fn expiries<'e>(evidence: &'e Evidence<'_>) -> Expiries<'e> {
    let history = evidence.history;
    let mut found = Expiries::default();
    for term in &evidence.terms {
        let Some(heard) = evidence.lease_end(term) else {
            continue;
        };
        let certain = !history.operations[term.acquire].dead_on_arrival;
        let owed_until_ns = term.certain_until_ns(evidence.ttl_ns);
        let error_ns = history.header.clock_error_ns.saturating_mul(2);
        if certain && heard.at_ns.saturating_add(error_ns) < owed_until_ns {
            found.early.push(Early {
                term,
                heard,
                owed_until_ns,
            });
            continue;
        }
        // One that was let go before ended by that, not by running out.
        if heard.at_ns > term.end_ns && term.ended != TermEnd::Died {
            continue;
        }
        let runs_out_ns = term.renewed_ns.saturating_add(evidence.ttl_ns);
        found.late_ns.push(heard.at_ns.saturating_sub(runs_out_ns));
        let told = evidence.told_lost(term, term.end_ns).map(|lost| lost.at_ns);
        let let_go = (term.ended != TermEnd::Open).then_some(term.end_ns);
        match told.into_iter().chain(let_go).min() {
            _ if term.ended == TermEnd::Died => {}
            Some(aware_ns) => found.aware_ns.push(aware_ns.saturating_sub(heard.at_ns)),
            None => found.never_aware += 1,
        }
    }
    found
}

fn too_early_witness(evidence: &Evidence<'_>, found: &TooEarly<'_>, class: Class) -> Witness {
    let TooEarly {
        before,
        term,
        owed_until_ns,
    } = found;
    let mut story = Story::new(evidence);
    story.acquired(before);
    story.lapse(before, term.start_ns);
    story.ended(before);
    story.acquired(term);
    let lock = evidence.history.locks.name(term.lock);
    let headline = format!(
        "lock `{lock}` was granted to {} {:.3} ms before the grant of {}, which has the smaller token, can have ended",
        story.client(term.client),
        ms(owed_until_ns.saturating_sub(term.start_ns)),
        story.client(before.client),
    );
    story.tell(headline, Some(class))
}

fn early_witness(evidence: &Evidence<'_>, early: &Early<'_>, class: Class) -> Witness {
    let mut story = Story::new(evidence);
    story.acquired(early.term);
    story.lapse(early.term, early.heard.at_ns);
    story.ended(early.term);
    let lock = evidence.history.locks.name(early.term.lock);
    let headline = format!(
        "the lease of {} on lock `{lock}` ended {:.3} ms at least before its time",
        story.client(early.term.client),
        ms(early.owed_until_ns.saturating_sub(early.heard.at_ns)),
    );
    story.tell(headline, Some(class))
}
