//! Check `lost-writes`: is every acknowledged write still there at the end?
//!
//! A write is lost when it was acknowledged and its element is not in the final read. Where a run was
//! killed before its final read, the content is derived from versions and accesses
//! ([`Register::survivors`]), and the report says so; where it cannot be, the verdict is unknown.
//! Which write clobbered which is found in one pass ([`Register::clobbers`]), why in [`crate::cause`].
//!
//! A write that is lost although no write overwrote it, with every write's version known, is no lock's
//! doing: the resource lost it. A resource that reports accesses is part of the harness.

use std::collections::HashSet;

use super::{
    CheckSpec, Class, MAX_WITNESSES, Metric, MetricSpec, Report, Verdict, Witness, metric,
};
use crate::cause::{self, Cause, Clobber, Story};
use crate::evidence::Evidence;
use crate::history::{History, Outcome};
use crate::register::{Register, registers};

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "lost-writes",
    summary: "acknowledged writes that are gone at the end, each with its cause",
    metrics: METRICS,
    applies: |header| !header.resource.is_empty(),
    run,
};

const METRICS: &[MetricSpec] = &[
    metric("attempted", "writes", "writes invoked"),
    metric("acknowledged", "writes", "writes that succeeded"),
    metric(
        "lost_writes",
        "writes",
        "writes that succeeded and are not there at the end",
    ),
    metric(
        "lost_percent",
        "%",
        "lost_writes of acknowledged; absent without any",
    ),
    metric(
        "recovered_writes",
        "writes",
        "writes of unknown outcome that are there at the end",
    ),
    metric(
        "unexpected_elements",
        "elements",
        "elements at the end that nobody wrote, or whose write definitely failed",
    ),
    metric(
        "duplicated_elements",
        "elements",
        "elements that stand more than once at the end",
    ),
    metric(
        "first_lost_write_ms",
        "ms",
        "when the first lost write was overwritten, after the start of the workload; absent without one",
    ),
];

#[derive(Default)]
struct Tally {
    attempted: u64,
    acknowledged: u64,
    recovered: u64,
    lost: Vec<Lost>,
    odd: Vec<Odd>,
    unexpected: u64,
    duplicated: u64,
    undecided: Vec<String>,
    derived: Vec<String>,
}

/// A lost write. `contradiction` is who is answerable when no write can have overwritten it.
struct Lost {
    clobber: Clobber,
    contradiction: Option<Class>,
}

/// An element that should not stand where it stands.
struct Odd {
    text: String,
    class: Class,
    operation: Option<usize>,
}

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let mut tally = Tally::default();
    for register in registers(&evidence) {
        count(history, &register, &mut tally);
    }
    tally
        .lost
        .sort_by_key(|lost| (lost.clobber.at_ns, lost.clobber.lost));

    let mut report = Report::new(SPEC.name);
    let lost = tally.lost.len() as u64;
    report.set("attempted", tally.attempted);
    report.set("acknowledged", tally.acknowledged);
    report.set("lost_writes", lost);
    if tally.acknowledged > 0 {
        let percent = 100.0 * lost as f64 / tally.acknowledged as f64;
        report.set("lost_percent", Metric::rounded(percent));
    }
    report.set("recovered_writes", tally.recovered);
    report.set("unexpected_elements", tally.unexpected);
    report.set("duplicated_elements", tally.duplicated);
    if let Some(first) = tally.lost.first() {
        report.set(
            "first_lost_write_ms",
            Metric::Number(history.at_ms(first.clobber.at_ns)),
        );
    }
    for lost in &tally.lost {
        report.blame(class_of(&evidence, lost));
    }
    for odd in &tally.odd {
        report.blame(Some(odd.class));
    }
    let told = tally.lost.iter().map(|lost| lost_witness(&evidence, lost));
    let told = told.chain(tally.odd.iter().map(|odd| odd_witness(&evidence, odd)));
    report.witnesses = told.take(MAX_WITNESSES).collect();
    decide(&mut report, &tally);
    report
}

fn decide(report: &mut Report, tally: &Tally) {
    report.notes.clone_from(&tally.derived);
    if !tally.lost.is_empty() || !tally.odd.is_empty() {
        report.verdict = Verdict::Invalid;
        report.notes.extend(tally.undecided.iter().cloned());
    } else if !tally.undecided.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some(tally.undecided.join("; "));
    } else if tally.acknowledged == 0 {
        report.verdict = Verdict::Unknown;
        let why = "no write was acknowledged: there is nothing that could be lost";
        report.unknown_because = Some(why.to_owned());
    }
}

fn count(history: &History, register: &Register, tally: &mut Tally) {
    let of_outcome = |outcome| {
        let writes = register.writes.iter();
        writes.filter(move |write| write.outcome == outcome)
    };
    tally.attempted += register.writes.len() as u64;
    let acknowledged = of_outcome(Outcome::Ok).count() as u64;
    tally.acknowledged += acknowledged;
    let present: HashSet<u64> = match &register.last_read {
        Some((_, content)) => content.keys().copied().collect(),
        None if acknowledged == 0 => return,
        None => match register.survivors() {
            Ok(survivors) => {
                tally.derived.push(format!(
                    "`{}` was not read at the end: what it held was derived from its versions",
                    register.key
                ));
                survivors
            }
            Err(why) => {
                tally.undecided.push(why);
                return;
            }
        },
    };
    let recovered = of_outcome(Outcome::Info).filter(|write| present.contains(&write.element));
    tally.recovered += recovered.count() as u64;
    count_odd(register, tally);
    let lost: Vec<usize> = (0..register.writes.len())
        .filter(|&place| {
            let write = &register.writes[place];
            write.outcome == Outcome::Ok && !present.contains(&write.element)
        })
        .collect();
    let contradiction = (register.unplaced() == 0).then_some(if register.reported {
        Class::HarnessFault
    } else {
        Class::ServerFault
    });
    for clobber in register.clobbers(history, &lost) {
        tally.lost.push(Lost {
            clobber,
            contradiction,
        });
    }
}

/// Elements that nobody wrote, whose write failed, or that stand there twice.
fn count_odd(register: &Register, tally: &mut Tally) {
    let Some((_, content)) = &register.last_read else {
        return;
    };
    let mut writes: Vec<(u64, Outcome, usize)> = register
        .writes
        .iter()
        .map(|write| (write.element, write.outcome, write.operation))
        .collect();
    writes.sort_unstable_by_key(|&(element, _, operation)| (element, operation));
    let key = &register.key;
    for (&element, &times) in content {
        let start = writes.partition_point(|&(written, ..)| written < element);
        let of_element: Vec<_> = writes[start..]
            .iter()
            .take_while(|&&(written, ..)| written == element)
            .collect();
        let operation = of_element.first().map(|&&(_, _, operation)| operation);
        if of_element
            .iter()
            .all(|(_, outcome, _)| *outcome == Outcome::Fail)
        {
            tally.unexpected += 1;
            let (why, class) = match operation {
                Some(_) => (
                    "although its write was reported as failed",
                    Class::ClientFault,
                ),
                None => ("although nobody wrote it", Class::HarnessFault),
            };
            let text = format!("element {element} of `{key}` is there at the end, {why}");
            tally.odd.push(Odd {
                text,
                class,
                operation,
            });
        }
        if times > 1 {
            tally.duplicated += 1;
            let class = if register.reported {
                Class::HarnessFault
            } else {
                Class::ServerFault
            };
            let text =
                format!("element {element} of `{key}` stands there {times} times at the end");
            tally.odd.push(Odd {
                text,
                class,
                operation,
            });
        }
    }
}

fn class_of(evidence: &Evidence<'_>, lost: &Lost) -> Option<Class> {
    match lost.clobber.by {
        Some(_) => cause::find(evidence, &lost.clobber).class(),
        None => match cause::find(evidence, &lost.clobber) {
            Cause::Forgotten => Cause::Forgotten.class(),
            _ => lost.contradiction,
        },
    }
}

fn lost_witness(evidence: &Evidence<'_>, lost: &Lost) -> Witness {
    let mut witness = cause::explain(evidence, &lost.clobber);
    if lost.clobber.by.is_none()
        && witness.class.is_none()
        && let Some(class) = lost.contradiction
    {
        witness.class = Some(class);
        witness
            .headline
            .push_str(", although every write's place is known: the resource itself lost it");
    }
    witness
}

fn odd_witness(evidence: &Evidence<'_>, odd: &Odd) -> Witness {
    let history = evidence.history;
    let mut story = Story::new(evidence);
    if let Some(operation) = odd.operation {
        let write = &history.operations[operation];
        let text = format!(
            "{} sent the write (op {})",
            story.client(write.client),
            write.op
        );
        story.line(write.invoke_ns, text);
        story.involve(operation);
    }
    story.tell(odd.text.clone(), Some(odd.class))
}
