//! Check `register`: does the protected resource itself behave like a register?
//!
//! A lock is only worth what stands behind it. Reads and writes carry versions, every version is written
//! once, and so each register can be held to the unique-value algorithm of [`crate::model`] exactly: a
//! read of version v comes after the write that made v and before the next. A write of unknown outcome
//! has no known version; when a version was read that no known write made, the unknown writes of that
//! register that were invoked before could have made it, and it is given the earliest invoke of them: that
//! can hide a violation, never make one up.
//!
//! What fails here is the resource's fault: the harness's where it reports accesses, else the store's.

use std::collections::{BTreeMap, HashMap};

use super::{CheckSpec, Class, MAX_WITNESSES, MetricSpec, Report, Verdict, Witness, metric};
use crate::cause::Story;
use crate::evidence::Evidence;
use crate::history::{Function, History, Outcome};
use crate::model::Model;
use crate::model::decision::{Decision, Violation};
use crate::model::op::{Action, FOREVER, Op};
use crate::search::spec::RegisterSpec;
use crate::search::wgl::Limits;

/// The check's entry in the registry.
pub const SPEC: CheckSpec = CheckSpec {
    name: "register",
    summary: "the protected resource is linearizable by its versions",
    metrics: METRICS,
    applies: |header| !header.resource.is_empty(),
    run,
};

const METRICS: &[MetricSpec] = &[
    metric(
        "registers",
        "registers",
        "registers with a read or write whose version is known",
    ),
    metric(
        "register_operations",
        "operations",
        "reads and writes whose version is known",
    ),
    metric(
        "registers_violated",
        "registers",
        "registers that no order of reads and writes explains",
    ),
    metric(
        "register_versions_guessed",
        "versions",
        "versions that were read and can only be those of writes of unknown outcome",
    ),
];

/// The operations of one register, and the versions behind its values.
#[derive(Default)]
struct Register {
    ops: Vec<Op>,
    values: HashMap<u64, u32>,
    produced: HashMap<u32, ()>,
    unknown_since: Option<u64>,
}

impl Register {
    fn value(&mut self, version: u64) -> u32 {
        let fresh = self.values.len() as u32 + 1;
        // Version 0 is a register that nobody wrote.
        if version == 0 {
            0
        } else {
            *self.values.entry(version).or_insert(fresh)
        }
    }
}

fn run(history: &History) -> Report {
    let evidence = Evidence::gather(history);
    let mut registers: BTreeMap<&str, Register> = BTreeMap::new();
    for place in 0..history.operations.len() {
        note(&evidence, place, &mut registers);
    }
    let class = if history.accesses.is_empty() {
        evidence.service_class()
    } else {
        Class::HarnessFault
    };
    let mut report = Report::new(SPEC.name);
    let (mut operations, mut violated, mut guessed, mut unknown) = (0, 0_u64, 0, Vec::new());
    registers.retain(|_, register| !register.ops.is_empty());
    for (key, register) in &mut registers {
        operations += register.ops.len() as u64;
        guessed += guess_writers(register);
        register.ops.sort_by_key(|op| (op.invoke_at, op.id));
        let spec = RegisterSpec {
            initial: 0,
            failed_cas_observes: false,
        };
        match Model::Register(spec).decide_one(&register.ops, Limits::default()) {
            Decision::Valid => {}
            Decision::Unknown(why) => unknown.push(format!("`{key}`: {why}")),
            Decision::Invalid(violation) => {
                violated += 1;
                if report.witnesses.len() < MAX_WITNESSES {
                    report
                        .witnesses
                        .push(witness(&evidence, key, &violation, class));
                }
            }
        }
    }
    report.set("registers", registers.len() as u64);
    report.set("register_operations", operations);
    report.set("registers_violated", violated);
    report.set("register_versions_guessed", guessed);
    if violated > 0 {
        report.verdict = Verdict::Invalid;
        report.blame(Some(class));
        report.notes.extend(unknown);
    } else if !unknown.is_empty() || operations == 0 {
        report.verdict = Verdict::Unknown;
        let none = "no read or write came with its version".to_owned();
        report.unknown_because = Some(if unknown.is_empty() {
            none
        } else {
            unknown.join("; ")
        });
    }
    report
}

fn note<'h>(evidence: &Evidence<'h>, place: usize, registers: &mut BTreeMap<&'h str, Register>) {
    let history = evidence.history;
    let operation = &history.operations[place];
    let action = match operation.f {
        Function::Read => Action::Read,
        Function::Write => Action::Write,
        _ => return,
    };
    let Some(key) = operation.key.filter(|_| operation.outcome != Outcome::Fail) else {
        return;
    };
    let register = registers.entry(history.keys.name(key)).or_default();
    // What the resource itself reported is known even where the client never heard of it.
    let accessed = evidence
        .access_of(place)
        .filter(|_| action == Action::Write);
    let version = operation.version.or(accessed.map(|access| access.version));
    let Some(version) = version else {
        if action == Action::Write {
            let since = register.unknown_since.get_or_insert(operation.invoke_ns);
            *since = (*since).min(operation.invoke_ns);
        }
        return;
    };
    let value = register.value(version);
    if action == Action::Write {
        register.produced.insert(value, ());
    }
    register.ops.push(Op {
        invoke_at: operation
            .invoke_ns
            .saturating_sub(history.header.clock_error_ns),
        return_at: match operation.outcome {
            Outcome::Ok => operation
                .return_ns
                .saturating_add(history.header.clock_error_ns),
            _ => FOREVER,
        },
        arg: value.into(),
        process: operation.client,
        key: 0,
        id: place as u32,
        action,
        outcome: operation.outcome,
    });
}

/// Adds a writer of unknown outcome for each version that only such a one can have made.
fn guess_writers(register: &mut Register) -> u64 {
    let Some(since) = register.unknown_since else {
        return 0;
    };
    let read = register
        .ops
        .iter()
        .filter(|op| op.action == Action::Read && op.arg != 0);
    #[allow(clippy::cast_possible_truncation)] // Values are numbered in 32 bits.
    let mut orphans: Vec<u32> = read.map(|op| op.arg as u32).collect();
    orphans.sort_unstable();
    orphans.dedup();
    orphans.retain(|value| !register.produced.contains_key(value));
    for &value in &orphans {
        register.ops.push(Op {
            invoke_at: since,
            return_at: FOREVER,
            arg: value.into(),
            process: u32::MAX,
            key: 0,
            id: u32::MAX,
            action: Action::Write,
            outcome: Outcome::Info,
        });
    }
    orphans.len() as u64
}

fn witness(evidence: &Evidence<'_>, key: &str, violation: &Violation, class: Class) -> Witness {
    let history = evidence.history;
    let mut story = Story::new(evidence);
    for &place in violation.ops.iter().filter(|&&place| place != u32::MAX) {
        let operation = &history.operations[place as usize];
        let what = if operation.f == Function::Read {
            "read"
        } else {
            "write"
        };
        let version = operation
            .version
            .map_or_else(String::new, |version| format!(" of version {version}"));
        let client = story.client(operation.client);
        story.line(
            operation.invoke_ns,
            format!("{client} began its {what}{version} (op {})", operation.op),
        );
        if operation.outcome == Outcome::Ok {
            story.line(
                operation.return_ns,
                format!(
                    "{client} had its {what}{version} answered (op {})",
                    operation.op
                ),
            );
        }
        story.involve(place as usize);
    }
    story.tell(
        format!("`{key}` is no register: {}", violation.rule),
        Some(class),
    )
}
