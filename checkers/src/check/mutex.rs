//! Check `mutex`: are acquires and releases those of a lock that one holds at a time, leases apart?
//!
//! It holds the history to the fenced owner mutex of [`crate::model`]: sections are disjoint, known tokens
//! strictly increase. A section goes from the return of its acquire to the moment its client let go (release
//! invoked, told lost and heeding it, crashed, retired), see [`crate::term`]. The expiry of a lease is
//! no step of this model. So where locks have leases a violation is the inherent hazard; whether
//! the service broke its own promise is for the check `lease` to say. Without leases (TTL 0) it did.
//!
//! Violations are counted as the fewest sections without which the rest is a mutex's (greedy by the end of
//! the section, which is exact for intervals). Cost: O(n log n).

use std::collections::BTreeMap;

use super::{CheckSpec, Class, MAX_WITNESSES, MetricSpec, Report, Verdict, Witness, metric};
use crate::cause::Story;
use crate::evidence::Evidence;
use crate::history::{History, Ns};
use crate::term::Term;

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "mutex",
    summary: "acquires and releases are linearizable as a fenced mutex, leases apart",
    metrics: METRICS,
    // Those may be held more than once by design.
    applies: |header| !matches!(header.workload.as_str(), "semaphore" | "reentrant"),
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "mutex_sections",
        "sections",
        "holdings from an acquire's return to its client's letting go",
    ),
    metric(
        "mutex_violations",
        "sections",
        "fewest sections without which the rest never overlap",
    ),
    metric(
        "mutex_token_inversions",
        "sections",
        "sections of those that do not overlap, whose token is not above all before",
    ),
];

/// A section that breaks the rule, and the one before it.
struct Broken<'t> {
    before: &'t Term,
    section: &'t Term,
    overlap: bool,
}

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let mut locks: BTreeMap<u32, Vec<&Term>> = BTreeMap::new();
    for term in &evidence.terms {
        locks.entry(term.lock).or_default().push(term);
    }
    let error_ns = history.header.clock_error_ns;
    let mut broken = Vec::new();
    for sections in locks.into_values() {
        overlaps(sections, error_ns, &mut broken);
    }
    broken.sort_by_key(|broken| (broken.section.start_ns, broken.section.acquire));

    let mut report = Report::new(SPEC.name);
    report.set("mutex_sections", evidence.terms.len() as u64);
    let count = |overlap| broken.iter().filter(|b| b.overlap == overlap).count() as u64;
    report.set("mutex_violations", count(true));
    report.set("mutex_token_inversions", count(false));
    let class = if evidence.ttl_ns == 0 {
        Class::ServerFault
    } else {
        Class::InherentHazard
    };
    if evidence.terms.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because =
            Some("no acquire succeeded: there is no section to judge".to_owned());
    } else if !broken.is_empty() {
        report.verdict = Verdict::Invalid;
        report.blame(Some(class));
        let told = broken.iter().take(MAX_WITNESSES);
        report.witnesses = told
            .map(|broken| witness(&evidence, broken, class))
            .collect();
    }
    report.notes.push(format!(
        "model: fenced owner mutex; sections end when their client lets go; clock error {error_ns} ns"
    ));
    report
}

/// Notes the sections of one lock that overlap, then, of the rest, those whose token is not above.
fn overlaps<'t>(mut sections: Vec<&'t Term>, error_ns: Ns, broken: &mut Vec<Broken<'t>>) {
    let core = |term: &Term| {
        (
            term.start_ns.saturating_add(error_ns),
            term.end_ns.saturating_sub(error_ns),
        )
    };
    sections.retain(|term| core(term).0 < core(term).1);
    sections.sort_by_key(|term| (core(term), term.acquire));
    // Whenever two overlap, the one that ends later is left out: it stands in the way of more.
    let mut kept: Vec<&Term> = Vec::with_capacity(sections.len());
    for section in sections {
        match kept.last() {
            Some(before) if core(before).1 > core(section).0 => {
                broken.push(Broken {
                    before,
                    section,
                    overlap: true,
                });
                if core(section).1 < core(before).1 {
                    *kept.last_mut().expect("just looked") = section;
                }
            }
            _ => kept.push(section),
        }
    }
    let mut highest: Option<&Term> = None;
    for section in kept.into_iter().filter(|section| section.token.is_some()) {
        match highest {
            Some(before) if before.token >= section.token => {
                broken.push(Broken {
                    before,
                    section,
                    overlap: false,
                });
            }
            _ => highest = Some(section),
        }
    }
}

fn witness(evidence: &Evidence<'_>, broken: &Broken<'_>, class: Class) -> Witness {
    let mut story = Story::new(evidence);
    story.acquired(broken.before);
    story.acquired(broken.section);
    story.ended(broken.before);
    story.ended(broken.section);
    let lock = evidence.history.locks.name(broken.section.lock);
    let (first, second) = (
        story.client(broken.before.client),
        story.client(broken.section.client),
    );
    let headline = if broken.overlap {
        format!("lock `{lock}`: {first} and {second} held it at once, which no mutex allows")
    } else {
        format!("lock `{lock}`: {second} held it after {first}, with a token that is not above")
    };
    story.tell(headline, Some(class))
}
