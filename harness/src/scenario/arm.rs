//! Arms: what differs in each, what each must show, and the plan that comes of it.

use super::build;
use super::error::Problem;
use super::expect::{Condition, ConditionError, Expectation};
use super::holds_in::HoldsIn;
use super::keys::Table;
use super::node::{Entry, Node, Origin, Value, shortened};
use super::overrides::{self, Override};
use nemesis::FaultPlan;

use super::plan::{ArmPlan, SweepPoint, WorkloadPlan};
use super::possible::impossible;
use super::read::{Context, Section};
use super::suggest::did_you_mean;

/// The only arm of a scenario that states none.
const DEFAULT_ARM: &str = "default";

/// An arm as it is written, before the tables that it varies are read.
pub(super) struct ArmHead {
    pub(super) name: String,
    about: Option<String>,
    set: Vec<Override>,
    /// False when part of `set` was refused: the arm is then not what its author had in mind.
    whole: bool,
    expect: Vec<Expected>,
    holds_in: HoldsIn,
    sweep: Option<SweepPoint>,
}

/// An expectation and where it is written.
struct Expected {
    expectation: Expectation,
    at: Origin,
    key: String,
}

/// Reads all `[[arm]]` tables. A mistake in one leaves the rest of it to be checked.
pub(super) fn read_heads(top: &Section<'_>) -> Vec<ArmHead> {
    let faults = top.written("fault").map_or(0, |node| node.items().len());
    let mut heads: Vec<ArmHead> = Vec::new();
    for (index, node) in top.tables("arm").iter().enumerate() {
        let Some(section) = Section::open(top.cx, Table::Arm, format!("arm.{}", index + 1), node)
        else {
            continue;
        };
        let head = read_head(&section, faults, index + 1);
        if heads.iter().any(|other| other.name == head.name) {
            section.problem(
                "name",
                "a name that no other arm has",
                &format!("\"{}\" again", shortened(&head.name)),
                None,
            );
        }
        if head.sweep.is_some() && heads.iter().any(|other| other.sweep == head.sweep) {
            section.problem(
                "point",
                "a point that no other arm of this sweep has",
                "the same again",
                None,
            );
        }
        heads.push(head);
    }
    if heads.is_empty() {
        heads.push(ArmHead {
            name: DEFAULT_ARM.to_owned(),
            about: None,
            set: Vec::new(),
            whole: true,
            expect: Vec::new(),
            holds_in: HoldsIn::All,
            sweep: None,
        });
    }
    heads
}

fn read_head(section: &Section<'_>, faults: usize, number: usize) -> ArmHead {
    let (mut set, mut whole) = (Vec::new(), true);
    if let Some(node) = table_of(section, "set") {
        let (overrides, problems) = overrides::from_set(node, faults, section.cx.known);
        whole = problems.is_empty();
        problems
            .into_iter()
            .for_each(|problem| section.cx.report(problem));
        set = overrides;
    }
    let expect = table_of(section, "expect").map_or(&[][..], Node::entries);
    ArmHead {
        name: section
            .text("name")
            .unwrap_or_else(|| format!("number {number}")),
        about: section.text("about"),
        set,
        whole,
        expect: expect
            .iter()
            .filter_map(|entry| read_expectation(section, entry))
            .collect(),
        holds_in: read_holds_in(section),
        sweep: read_sweep(section),
    }
}

/// The node under a key that must be a table.
fn table_of<'a>(section: &Section<'a>, name: &str) -> Option<&'a Node> {
    let node = section.written(name)?;
    if matches!(node.value, Value::Table(_)) {
        return Some(node);
    }
    let key = Table::Arm.key(name)?;
    section.wrong_kind(key, node, None)
}

fn read_expectation(section: &Section<'_>, entry: &Entry) -> Option<Expected> {
    let metric = &entry.key;
    let key = section.path_of(&format!("expect.{}", shortened(metric)));
    let report = |at: &Origin, expected: &str, found: String, hint: Option<String>| {
        let (at, key, expected) = (at.clone(), key.clone(), expected.to_owned());
        section.cx.report(Problem {
            at,
            key,
            expected,
            found,
            hint,
        });
    };
    let known = section.cx.known;
    if known.metric(metric).is_none() {
        let hint = did_you_mean(
            metric,
            known.metrics.iter().map(|known| known.name.as_str()),
        )
        .unwrap_or_else(|| "`fencepost list` names all metrics".to_owned());
        report(
            &entry.key_at,
            "the name of a metric",
            format!("`{}`", shortened(metric)),
            Some(hint),
        );
    }
    let at = &entry.node.at;
    let condition = match &entry.node.value {
        Value::Text(text) => Condition::parse(text),
        Value::Integer(number) => Err(ConditionError::Syntax(format!("write \"== {number}\""))),
        Value::Float(number) => Err(ConditionError::Syntax(format!("write \"== {number}\""))),
        _ => Err(ConditionError::Syntax(
            "write a text such as \"> 0\" or \"> 0, < 5\"".to_owned(),
        )),
    };
    let expected = match &condition {
        Err(ConditionError::Contradiction(_)) => "a condition that can hold",
        _ => "a condition such as \"> 0\"",
    };
    match condition {
        Ok(is) => {
            let expectation = Expectation {
                metric: metric.clone(),
                is,
            };
            known.metric(metric)?;
            Some(Expected {
                expectation,
                at: at.clone(),
                key,
            })
        }
        Err(error) => {
            report(at, expected, entry.node.describe(), Some(error.to_string()));
            None
        }
    }
}

fn read_sweep(section: &Section<'_>) -> Option<SweepPoint> {
    match (section.text("sweep"), section.text("point")) {
        (Some(sweep), Some(point)) => Some(SweepPoint { sweep, point }),
        (Some(_), None) if section.written("point").is_none() => {
            section.problem_here(
                "`point` beside `sweep`",
                "none",
                Some(
                    "add where in the sweep this arm stands, such as point = \"0.25x\"".to_owned(),
                ),
            );
            None
        }
        (None, Some(_)) if section.written("sweep").is_none() => {
            section.problem_here(
                "`sweep` beside `point`",
                "none",
                Some("add the sweep's name, such as sweep = \"clock rate\"".to_owned()),
            );
            None
        }
        _ => None,
    }
}

fn read_holds_in(section: &Section<'_>) -> HoldsIn {
    let Some(text) = section.text("holds_in") else {
        return HoldsIn::All;
    };
    HoldsIn::parse(&text).unwrap_or_else(|error| {
        section.problem(
            "holds_in",
            "\"all\", \"any\" or a share",
            &format!("\"{}\"", shortened(&text)),
            Some(error.to_string()),
        );
        HoldsIn::All
    })
}

impl ArmHead {
    /// The file as this arm has it, and whether it has faults. Flags go over what the arm sets: who
    /// gives one on the command line means it for this run, whatever the file says.
    pub(super) fn varied(&self, root: &Node, flags: &[Override]) -> (Node, bool) {
        let mut varied = root.clone();
        let faults_on = overrides::apply(&mut varied, self.set.iter().chain(flags));
        (varied, faults_on)
    }

    /// The arm's plan, from the file as this arm has it.
    pub(super) fn plan(&self, cx: &Context<'_>, varied: &Node, faults_on: bool) -> Option<ArmPlan> {
        // The top level has been checked once for all arms; only what it contains is read here.
        let table = |name: &str, table: Table| {
            let node = varied
                .get(name)
                .filter(|node| matches!(node.value, Value::Table(_)))?;
            Section::open(cx, table, name.to_owned(), node)
        };
        let cluster =
            table("cluster", Table::Cluster).and_then(|section| build::cluster::read(&section));
        let workload = table("workload", Table::Workload)
            .and_then(|section| build::workload::read(&section, cluster.as_ref()));
        let mut faults = Some(Vec::new());
        if faults_on {
            let nodes = varied.get("fault").map_or(&[][..], Node::items);
            let drawn = varied.get("nemesis").is_some();
            let read = nodes.iter().enumerate().map(|(index, node)| {
                let path = format!("fault.{}", index + 1);
                let (cluster, workload) = (cluster.as_ref(), workload.as_ref());
                let fault = build::fault::read(cx, path, node, cluster, workload)?;
                (drawn || build::when::needs_no_draw(cx, index + 1, node, &fault)).then_some(fault)
            });
            // Collected twice so that a mistake in one fault does not hide those of the next.
            faults = read
                .collect::<Vec<_>>()
                .into_iter()
                .collect::<Option<Vec<_>>>();
        }
        let nemesis = match varied.get("nemesis") {
            None => Some(None),
            Some(_) if !faults_on => Some(None),
            Some(_) => table("nemesis", Table::Nemesis)
                .and_then(|section| {
                    build::nemesis::read(&section, faults.as_deref(), workload.as_ref())
                })
                .map(Some),
        };
        if let (true, Some(workload), Some(faults)) = (self.whole, &workload, &faults) {
            self.check_possible(cx, workload, faults);
        }
        Some(ArmPlan {
            name: self.name.clone(),
            about: self.about.clone(),
            cluster: cluster?,
            workload: workload?,
            faults: faults?,
            nemesis: nemesis?,
            expect: self
                .expect
                .iter()
                .map(|expected| expected.expectation.clone())
                .collect(),
            holds_in: self.holds_in,
            sweep: self.sweep.clone(),
        })
    }

    fn check_possible(&self, cx: &Context<'_>, workload: &WorkloadPlan, faults: &[FaultPlan]) {
        for Expected {
            expectation,
            at,
            key,
        } in &self.expect
        {
            if let Some((why, hint)) = impossible(expectation, cx.known, workload, faults) {
                cx.report(Problem {
                    at: at.clone(),
                    key: key.clone(),
                    expected: "an expectation that the arm can meet".to_owned(),
                    found: format!("{expectation}, but the arm {why}"),
                    hint: Some(hint.to_owned()),
                });
            }
        }
    }
}
