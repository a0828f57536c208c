//! Check `availability`: how long nobody held a lock that somebody wanted, and who had to wait.
//!
//! It measures and judges nothing: what is too long is for a scenario to say.
//!
//! - A lock is *wanted* from the hand-over of an acquire to its return (or to when its client gave up), and
//!   *held* during terms. Time in which it is wanted and not held is *idle*.
//! - *Hand-over*: from the end of a term to the return of the next grant, when somebody was waiting at that end.
//! - *After a fault*: from the injection (or the healing) to the first grant that was returned after it,
//!   on any lock that was wanted.
//! - *Starvation*: the longest wait of one acquire, and the most grants to others that went past a waiting one
//!   (granted while it waited, asked for later).
//! - *Woken per release*: acquires that returned, with whatever outcome, between the end of a term and the return
//!   of the next grant, that one included. A herd that is woken and goes back to sleep inside the client
//!   library is not visible here.
//! - *Wake-ups*: what the clients themselves counted while they waited, over the releases at which somebody
//!   waited. Waits that the run's end cut off are not in it, so that with a long queue the figure is too low
//!   where a wait has many wake-ups. The *share* is not: the wake-ups of a granted wait over the releases
//!   during it, which is 1 when every release wakes every waiter.
//!
//! Cost: O(n log n).

use std::collections::BTreeMap;

use super::{CheckSpec, Metric, MetricSpec, Report, Verdict, metric};
use crate::evidence::Evidence;
use crate::history::{Function, History, Ns, Outcome};
use crate::stats::percentile;

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "availability",
    summary: "time without a holder, hand-over, starvation; judges nothing",
    metrics: METRICS,
    applies: |_| true,
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "idle_total_ms",
        "ms",
        "time in which a lock was wanted and not held, summed over the locks",
    ),
    metric("idle_longest_ms", "ms", "the longest such time"),
    metric(
        "handover_p50_ms",
        "ms",
        "median time from the end of a term to the next grant when somebody waited; absent without one",
    ),
    metric(
        "handover_p99_ms",
        "ms",
        "99th percentile of these; absent without one",
    ),
    metric(
        "handover_max_ms",
        "ms",
        "the longest of these; absent without one",
    ),
    metric(
        "grant_after_fault_max_ms",
        "ms",
        "longest time from the injection of a fault to the next grant of any lock; absent without one",
    ),
    metric(
        "grant_after_heal_max_ms",
        "ms",
        "longest time from the end of a fault to the next grant of any lock; absent without one",
    ),
    metric(
        "faults_without_grant_after",
        "faults",
        "faults after whose injection no lock was granted any more, although one was wanted",
    ),
    metric(
        "wait_longest_ms",
        "ms",
        "the longest wait for a lock, granted or not; absent without one",
    ),
    metric(
        "overtaken_most",
        "grants",
        "most grants to others, asked for later, during one wait",
    ),
    metric(
        "woken_per_release_max",
        "acquires",
        "most acquires that returned between the end of a term and the next grant; absent without one",
    ),
    metric(
        "wakes_per_release_mean",
        "wake-ups",
        "wake-ups that waiting clients counted, over ends of terms at which somebody waited; absent without one, \
         or when no client counts",
    ),
    metric(
        "wakes_share_mean",
        "wake-ups",
        "wake-ups of granted waits over the releases during them: 1 when each release wakes everybody; absent \
         without one, or when no client counts",
    ),
    metric(
        "wakes_per_acquire_max",
        "wake-ups",
        "most wake-ups of one acquire; absent when no client counts",
    ),
];

/// An acquire as a wait.
#[derive(Clone, Copy)]
struct Wait {
    from_ns: Ns,
    to_ns: Ns,
    granted: bool,
    wakes: Option<u64>,
}

#[derive(Default)]
struct Measured {
    idle_ns: Ns,
    idle_longest_ns: Ns,
    handovers_ns: Vec<Ns>,
    wait_longest_ns: Option<Ns>,
    overtaken: u64,
    woken: Option<u64>,
    contested_releases: u64,
    /// Of granted waits whose client counted: wake-ups, and releases during them.
    granted_wakes: (u64, u64),
}

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let waits = waits(history);
    let mut holds: BTreeMap<u32, Vec<(Ns, Ns)>> = BTreeMap::new();
    for term in &evidence.terms {
        holds
            .entry(term.lock)
            .or_default()
            .push((term.start_ns, term.end_ns));
    }
    let mut found = Measured::default();
    for (lock, waits) in &waits {
        let mut holds = holds.remove(lock).unwrap_or_default();
        holds.sort_unstable();
        idle(waits, &holds, &mut found);
        hand_over(waits, &holds, &mut found);
        count_wakes(waits, &holds, &mut found);
        starve(waits, &mut found);
    }
    let mut report = Report::new(SPEC.name);
    report.set("idle_total_ms", Metric::ms(found.idle_ns));
    report.set("idle_longest_ms", Metric::ms(found.idle_longest_ns));
    found.handovers_ns.sort_unstable();
    for (percent, suffix) in [(50, "p50"), (99, "p99"), (100, "max")] {
        if let Some(value) = percentile(&found.handovers_ns, percent) {
            report.set(&format!("handover_{suffix}_ms"), Metric::ms(value));
        }
    }
    if let Some(longest_ns) = found.wait_longest_ns {
        report.set("wait_longest_ms", Metric::ms(longest_ns));
    }
    report.set("overtaken_most", found.overtaken);
    if let Some(woken) = found.woken {
        report.set("woken_per_release_max", woken);
    }
    wakes(&waits, &found, &mut report);
    after_faults(&evidence, &waits, &mut report);
    if waits.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some("nobody asked for a lock".to_owned());
    }
    report
}

/// All acquires by lock, in the order of their beginning.
fn waits(history: &History) -> BTreeMap<u32, Vec<Wait>> {
    let mut waits: BTreeMap<u32, Vec<Wait>> = BTreeMap::new();
    for operation in history
        .operations
        .iter()
        .filter(|op| op.f == Function::Acquire)
    {
        waits.entry(operation.lock).or_default().push(Wait {
            from_ns: operation.invoke_ns,
            to_ns: match operation.outcome {
                Outcome::Info => operation.gave_up_ns.unwrap_or(history.last_ns),
                _ => operation.return_ns,
            },
            granted: operation.outcome == Outcome::Ok && !operation.dead_on_arrival,
            wakes: operation.wakes,
        });
    }
    for waits in waits.values_mut() {
        waits.sort_by_key(|wait| (wait.from_ns, wait.to_ns));
    }
    waits
}

/// Wanted and not held: the union of the waits less the union of the holds.
fn idle(waits: &[Wait], holds: &[(Ns, Ns)], found: &mut Measured) {
    let wanted = union(waits.iter().map(|wait| (wait.from_ns, wait.to_ns)));
    let held = union(holds.iter().copied());
    let mut next = 0;
    for (mut from_ns, to_ns) in wanted {
        while next < held.len() && held[next].1 <= from_ns {
            next += 1;
        }
        let mut at = next;
        while from_ns < to_ns {
            let until_ns = held.get(at).map_or(to_ns, |hold| hold.0.min(to_ns));
            let gap_ns = until_ns.saturating_sub(from_ns);
            found.idle_ns += gap_ns;
            found.idle_longest_ns = found.idle_longest_ns.max(gap_ns);
            from_ns = held.get(at).map_or(to_ns, |hold| hold.1.max(from_ns));
            at += 1;
        }
    }
}

/// Disjoint intervals that cover the same; the input is sorted by its beginnings.
fn union(intervals: impl Iterator<Item = (Ns, Ns)>) -> Vec<(Ns, Ns)> {
    let mut union: Vec<(Ns, Ns)> = Vec::new();
    for (from_ns, to_ns) in intervals {
        match union.last_mut() {
            Some(last) if last.1 >= from_ns => last.1 = last.1.max(to_ns),
            _ => union.push((from_ns, to_ns)),
        }
    }
    union
}

fn hand_over(waits: &[Wait], holds: &[(Ns, Ns)], found: &mut Measured) {
    let mut begins: Vec<Ns> = waits.iter().map(|wait| wait.from_ns).collect();
    begins.sort_unstable();
    let mut returns: Vec<Ns> = waits.iter().map(|wait| wait.to_ns).collect();
    returns.sort_unstable();
    let returned_by = |at_ns: Ns| returns.partition_point(|&to_ns| to_ns <= at_ns);
    let mut held_until_ns = 0;
    let furthest = holds.iter().map(|&(_, end_ns)| {
        held_until_ns = end_ns.max(held_until_ns);
        held_until_ns
    });
    let furthest: Vec<Ns> = furthest.collect();
    for &(_, end_ns) in holds {
        // Waiting at that end: begun by then, returned later.
        let begun = begins.partition_point(|&from_ns| from_ns <= end_ns);
        let next = holds.partition_point(|hold| hold.0 <= end_ns);
        let Some(&(next_ns, _)) = holds.get(next) else {
            continue;
        };
        // While another holds it too, nothing is handed over.
        let free = next == 0 || furthest[next - 1] <= end_ns;
        if free && begun > returned_by(end_ns) {
            found.contested_releases += 1;
            found.handovers_ns.push(next_ns - end_ns);
            let woken = (returned_by(next_ns) - returned_by(end_ns)) as u64;
            found.woken = found.woken.max(Some(woken));
        }
    }
}

fn count_wakes(waits: &[Wait], holds: &[(Ns, Ns)], found: &mut Measured) {
    let mut releases: Vec<Ns> = holds.iter().map(|hold| hold.1).collect();
    releases.sort_unstable();
    let released_by = |at_ns: Ns| releases.partition_point(|&end_ns| end_ns <= at_ns);
    for wait in waits.iter().filter(|wait| wait.granted) {
        if let Some(wakes) = wait.wakes {
            found.granted_wakes.0 += wakes;
            found.granted_wakes.1 += (released_by(wait.to_ns) - released_by(wait.from_ns)) as u64;
        }
    }
}

/// What the clients counted themselves.
fn wakes(waits: &BTreeMap<u32, Vec<Wait>>, found: &Measured, report: &mut Report) {
    let counted = || waits.values().flatten().filter_map(|wait| wait.wakes);
    let Some(most) = counted().max() else { return };
    report.set("wakes_per_acquire_max", most);
    let (of_granted, during) = found.granted_wakes;
    for (name, wakes, releases) in [
        (
            "wakes_per_release_mean",
            counted().sum(),
            found.contested_releases,
        ),
        ("wakes_share_mean", of_granted, during),
    ] {
        if releases > 0 {
            let mean = wakes as f64 / releases as f64;
            report.set(name, Metric::rounded(mean));
        }
    }
}

fn starve(waits: &[Wait], found: &mut Measured) {
    // Of grants asked for later than a wait began, those returned before it ended. Waits are sorted by their
    // beginnings: from the last to the first, the ones seen so far are those asked for later.
    let mut ends: Vec<Ns> = waits.iter().map(|wait| wait.to_ns).collect();
    ends.sort_unstable();
    let mut later = Counts::new(ends.len());
    for wait in waits.iter().rev() {
        found.wait_longest_ns = found
            .wait_longest_ns
            .max(Some(wait.to_ns.saturating_sub(wait.from_ns)));
        let rank = ends.partition_point(|&to_ns| to_ns < wait.to_ns);
        found.overtaken = found.overtaken.max(later.below(rank));
        if wait.granted {
            later.add(rank);
        }
    }
}

/// Prefix sums that can be added to (P. Fenwick, Softw. Pract. Exper. 24, 1994).
struct Counts(Vec<u64>);

impl Counts {
    fn new(len: usize) -> Self {
        Self(vec![0; len + 1])
    }

    fn add(&mut self, place: usize) {
        let mut node = place + 1;
        while node < self.0.len() {
            self.0[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    fn below(&self, place: usize) -> u64 {
        let (mut node, mut sum) = (place, 0);
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}

fn after_faults(evidence: &Evidence<'_>, waits: &BTreeMap<u32, Vec<Wait>>, report: &mut Report) {
    let all = || waits.values().flatten();
    let mut grants: Vec<Ns> = all()
        .filter(|wait| wait.granted)
        .map(|wait| wait.to_ns)
        .collect();
    grants.sort_unstable();
    let last_wait_ns = all().map(|wait| wait.to_ns).max().unwrap_or(0);
    let next = |at_ns: Ns| {
        grants
            .get(grants.partition_point(|&grant| grant <= at_ns))
            .copied()
    };
    let (mut after_fault, mut after_heal, mut never) = (None::<Ns>, None::<Ns>, 0_u64);
    for fault in &evidence.faults {
        match next(fault.from_ns) {
            Some(grant_ns) => after_fault = after_fault.max(Some(grant_ns - fault.from_ns)),
            None if fault.from_ns < last_wait_ns => never += 1,
            None => {}
        }
        if let Some(grant_ns) = next(fault.to_ns) {
            after_heal = after_heal.max(Some(grant_ns - fault.to_ns));
        }
    }
    for (name, value) in [
        ("grant_after_fault_max_ms", after_fault),
        ("grant_after_heal_max_ms", after_heal),
    ] {
        if let Some(value) = value {
            report.set(name, Metric::ms(value));
        }
    }
    report.set("faults_without_grant_after", never);
}
