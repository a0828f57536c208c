//! A foreign history and a model in, a report out: the same report that the checks of fencepost's own
//! histories give, so that whatever shows one shows the other.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::check::{MAX_WITNESSES, Metric, Report, Verdict, Witness, WitnessLine};
use crate::foreign::{Foreign, Shape};
use crate::history::Outcome;
use crate::model::Model;
use crate::model::decision::{Decision, Rule, Violation};
use crate::model::name::ModelName;
use crate::model::op::{Action, FOREVER, Op, UNKNOWN, partition, unpair};
use crate::search::spec::RegisterSpec;
use crate::search::wgl::Limits;
use crate::set_full::{self, SetFull};

/// What to hold a history to.
#[derive(Clone, Debug)]
pub struct Question {
    /// The model.
    pub model: ModelName,
    /// Its name, as it was asked for.
    pub name: String,
    /// A register's value at the beginning, in the file's notation; absent: nil.
    pub initial: Option<String>,
    /// How far a search may go.
    pub limits: Limits,
}

impl ModelName {
    /// What the operations of its histories are about.
    #[must_use]
    pub fn shape(self) -> Shape {
        match self {
            ModelName::Register => Shape::Register,
            ModelName::Set => Shape::Set,
            _ => Shape::Lock,
        }
    }
}

/// Judges a history. Its operations are sorted on the way.
#[must_use]
pub fn judge(foreign: &mut Foreign, question: &Question) -> Report {
    let mut report = Report::new(&question.name);
    let mut ops = std::mem::take(&mut foreign.ops);
    let count = |outcome| ops.iter().filter(|op| op.outcome == outcome).count() as u64;
    report.set("operations", ops.len() as u64);
    report.set("unknown_outcomes", count(Outcome::Info));
    report.set("failed", count(Outcome::Fail));
    report.set("keys", foreign.keys.len() as u64);
    match model(foreign, question) {
        Some(model) => judge_model(foreign, &mut ops, &model, question.limits, &mut report),
        None => judge_set(foreign, &mut ops, &mut report),
    }
    if ops.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some("there is no operation to judge".to_owned());
    }
    foreign.ops = ops;
    report
        .notes
        .push(format!("read as {}", foreign.format.name()));
    if let Some(truncated) = &foreign.truncated {
        report.notes.push(format!(
            "the history stops at line {}: {}; what came before was judged, with open operations as unknown",
            truncated.line, truncated.why
        ));
    }
    report.notes.extend(foreign.warnings.iter().cloned());
    report
}

/// `None` for a set, which is no object with an order.
fn model(foreign: &mut Foreign, question: &Question) -> Option<Model> {
    if let Some(lock) = question.model.lock() {
        return Some(lock);
    }
    if question.model == ModelName::Set {
        return None;
    }
    let initial = question.initial.as_deref().unwrap_or("nil");
    Some(Model::Register(RegisterSpec {
        initial: foreign.values.intern(initial),
        failed_cas_observes: foreign.failed_cas_observes,
    }))
}

fn judge_model(
    foreign: &Foreign,
    ops: &mut [Op],
    model: &Model,
    limits: Limits,
    report: &mut Report,
) {
    let (mut invalid, mut unknown) = (0_u64, Vec::new());
    let _: ControlFlow<()> = partition(ops, |one| {
        match model.decide_one(one, limits) {
            Decision::Valid => {}
            Decision::Unknown(why) => {
                unknown.push(format!("`{}`: {why}", foreign.keys.name(one[0].key)));
            }
            Decision::Invalid(violation) => {
                invalid += 1;
                if report.witnesses.len() < MAX_WITNESSES {
                    report.witnesses.push(witness(foreign, one, &violation));
                }
            }
        }
        ControlFlow::Continue(())
    });
    report.set("invalid_keys", invalid);
    if invalid > 0 {
        report.verdict = Verdict::Invalid;
        report.notes.extend(unknown);
    } else if !unknown.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some(unknown.join("; "));
    }
}

fn judge_set(foreign: &Foreign, ops: &mut [Op], report: &mut Report) {
    let mut sum: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut stale_longest_ns, mut unread) = (0, Vec::new());
    let _: ControlFlow<()> = partition(ops, |one| {
        let found = set_full::judge(one, &foreign.lists);
        for (name, count) in [
            ("adds_attempted", found.attempted),
            ("adds_acknowledged", found.acknowledged),
            ("reads", found.reads),
            ("stable", found.stable),
            ("never_read", found.never_read),
            ("recovered", found.recovered),
            ("lost", found.lost.len() as u64),
            ("stale", found.stale.len() as u64),
            ("duplicated", found.duplicated.len() as u64),
            ("unexpected", found.unexpected.len() as u64),
        ] {
            *sum.entry(name).or_default() += count;
        }
        for &(add, read) in &found.stale {
            let (known, missed) = (
                foreign.time_ns(one[add].return_at),
                foreign.time_ns(one[read].invoke_at),
            );
            if let (Some(known), Some(missed)) = (known, missed) {
                stale_longest_ns = stale_longest_ns.max(missed.saturating_sub(known));
            }
        }
        if found.attempted > 0 && found.reads == 0 {
            unread.push(foreign.keys.name(one[0].key).to_owned());
        }
        set_witnesses(foreign, one, &found, report);
        ControlFlow::Continue(())
    });
    let bad = ["lost", "duplicated", "unexpected"]
        .iter()
        .any(|name| sum.get(name).is_some_and(|&count| count > 0));
    for (name, count) in sum {
        report.set(name, count);
    }
    report.set("stale_longest_ms", Metric::ms(stale_longest_ns));
    if bad {
        report.verdict = Verdict::Invalid;
    } else if !unread.is_empty() {
        report.verdict = Verdict::Unknown;
        report.unknown_because = Some(format!(
            "no read of {} succeeded: nobody knows what is there",
            unread.join(", ")
        ));
    }
}

fn set_witnesses(foreign: &Foreign, ops: &[Op], found: &SetFull, report: &mut Report) {
    let set = foreign.keys.name(ops[0].key);
    let text = |number: u32| foreign.values.text(number);
    #[allow(clippy::cast_possible_truncation)] // Elements are numbered in 32 bits.
    let added = |add: usize| text(ops[add].arg as u32);
    let lost = found.lost.iter().map(|&(add, read)| {
        let headline = format!(
            "element {} of `{set}` was there and is lost: a later read misses it",
            added(add)
        );
        (headline, vec![add, read])
    });
    let duplicated = found.duplicated.iter().map(|&(element, read)| {
        (
            format!(
                "element {} of `{set}` stands more than once in a read",
                text(element)
            ),
            vec![read],
        )
    });
    let unexpected = found.unexpected.iter().map(|&(element, read)| {
        (
            format!(
                "element {} of `{set}` was read although nobody added it",
                text(element)
            ),
            vec![read],
        )
    });
    let room = MAX_WITNESSES.saturating_sub(report.witnesses.len());
    for (headline, places) in lost.chain(duplicated).chain(unexpected).take(room) {
        let told: Vec<&Op> = places.iter().map(|&place| &ops[place]).collect();
        report.witnesses.push(tell(foreign, headline, &told));
    }
}

fn witness(foreign: &Foreign, ops: &[Op], violation: &Violation) -> Witness {
    let find = |id: &u32| ops.iter().find(|op| op.id == *id);
    let told: Vec<&Op> = violation.ops.iter().filter_map(find).collect();
    let last = match violation.rule {
        Rule::NoOrder | Rule::Exhausted => told
            .last()
            .map(|op| format!("; op {} cannot be placed", op.id)),
        _ => None,
    };
    let headline = format!(
        "`{}`: {}{}",
        foreign.keys.name(ops[0].key),
        violation.rule,
        last.unwrap_or_default()
    );
    tell(foreign, headline, &told)
}

/// The invokes and returns of some operations, in the order of time.
fn tell(foreign: &Foreign, headline: String, told: &[&Op]) -> Witness {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for op in told {
        let line = foreign.lines.get(op.id as usize);
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        let who = format!("process {} op {}{line}", op.process, op.id);
        let what = describe(foreign, op);
        lines.push((op.invoke_at, format!("{who}: {what} is invoked")));
        if op.return_at == FOREVER {
            lines.push((
                op.invoke_at,
                format!("{who}: {what} has an unknown outcome"),
            ));
        } else {
            lines.push((
                op.return_at,
                format!("{who}: {what} returns {}", outcome(op.outcome)),
            ));
        }
    }
    lines.sort_by_key(|&(tick, _)| tick);
    let mut ops: Vec<u64> = told.iter().map(|op| op.id.into()).collect();
    ops.sort_unstable();
    Witness {
        headline,
        class: None,
        lines: lines
            .into_iter()
            .map(|(tick, text)| WitnessLine {
                // Without times the position in the file stands in their place.
                at_ms: foreign
                    .time_ns(tick)
                    .map_or(tick as f64, |at_ns| since_start_ms(foreign, at_ns)),
                text,
            })
            .collect(),
        ops,
    }
}

fn since_start_ms(foreign: &Foreign, at_ns: u64) -> f64 {
    let since_ns = i128::from(at_ns) - i128::from(foreign.start_ns);
    let since_us = (since_ns + 500).div_euclid(1000);
    since_us as f64 / 1000.0
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Fail => "fail",
        Outcome::Info => "info",
    }
}

#[allow(clippy::cast_possible_truncation)] // Values are numbered in 32 bits.
fn describe(foreign: &Foreign, op: &Op) -> String {
    let text = |number: u32| foreign.values.text(number);
    let value = |arg: u64| match arg {
        UNKNOWN => "?",
        number => text(number as u32),
    };
    match op.action {
        Action::Acquire => op.token().map_or_else(
            || "acquire".to_owned(),
            |token| format!("acquire (token {token})"),
        ),
        Action::Release => "release".to_owned(),
        Action::Read => format!("read {}", value(op.arg)),
        Action::Write => format!("write {}", value(op.arg)),
        Action::Cas => {
            let (expected, new) = unpair(op.arg);
            format!("compare-and-set {} to {}", text(expected), text(new))
        }
        Action::Add => format!("add {}", value(op.arg)),
        Action::ReadAll => match op.arg {
            UNKNOWN => "read".to_owned(),
            list => format!("read of {} elements", foreign.lists.get(list).len()),
        },
    }
}
