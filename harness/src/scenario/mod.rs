//! Scenario files: from TOML to a checked plan in which nothing is left open.
//!
//! [`Scenario::load`] reads a file and reports every mistake in it, each with its line;
//! [`Scenario::resolve`] works in the overrides of the command line. What a scenario may name comes in
//! through [`Known`]. What must not be in here: the name of any backend, lock, resource, workload or
//! fault, and anything that runs.
//!
//! ```text
//! text ─ node ─→ tree with places ─ overrides ─→ tree of each arm ─ read, build ─→ plan
//! ```
//!
//! Values take precedence in this order: command line, the arm's `set`, the file, the default.

mod arm;
mod build;
mod duration;
mod error;
mod expect;
mod fault;
mod holds_in;
mod keys;
mod known;
mod node;
mod overrides;
mod plan;
mod possible;
mod read;
mod reference;
mod suggest;
#[cfg(test)]
mod tests;

use std::path::Path;

pub use duration::{DurationError, RangeNs, format_ns, parse_ns};
pub use error::{Place, ScenarioError, render};
pub use expect::{Condition, ConditionError, Expectation};
pub use holds_in::{HoldsIn, HoldsInError};
pub use known::{
    Known, KnownBackend, KnownFault, KnownLock, KnownMetric, KnownResource, KnownWorkload,
};
pub use plan::{ArmPlan, ClusterPlan, Resolved, SweepPoint, Tuning, WorkloadPlan};
pub use reference::reference;

use error::Problem;
use keys::{LEDGER_ROWS, Table};
use node::{Node, Origin, Value};
use read::{Context, Section};

/// A scenario file that has been read and found in order.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file, as given.
    pub file: String,
    /// What it shows, in one line.
    pub title: String,
    /// Background.
    pub about: Option<String>,
    /// Rows of the evidence ledger.
    pub claims: Vec<u8>,
    /// The public report that it reproduces.
    pub issue: Option<String>,
    /// Trials of each arm.
    pub trials: u32,
    /// Seed, when the file fixes one.
    pub seed: Option<u64>,
    /// The arms as the file has them, without overrides.
    pub arms: Vec<ArmPlan>,
    // Kept for `resolve`: an override can make wrong what was right, and the error shows where.
    source: String,
    tree: Node,
    known: Known,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes: all of them, in the order of the file.
    pub fn load(path: &Path, known: &Known) -> Result<Self, Vec<ScenarioError>> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&file, &text, known),
            Err(error) => Err(vec![ScenarioError {
                file,
                place: Place::File,
                key: String::new(),
                expected: "a readable TOML file in UTF-8".to_owned(),
                found: error.to_string(),
                hint: (error.kind() == std::io::ErrorKind::NotFound)
                    .then(|| "paths count from the current folder".to_owned()),
                arms: Vec::new(),
                overrides: Vec::new(),
            }]),
        }
    }

    /// Reads a scenario from its text; `file` is what errors call it.
    ///
    /// # Errors
    /// It has mistakes: all of them, in the order of the text.
    pub fn parse(file: &str, text: &str, known: &Known) -> Result<Self, Vec<ScenarioError>> {
        let tree = node::parse_document(text).map_err(|problems| {
            let mut errors: Vec<_> = problems
                .into_iter()
                .map(|problem| problem.locate(file, text))
                .collect();
            error::sort(&mut errors);
            errors
        })?;
        let (head, arms) = analyse(file, text, &tree, known, &[])?;
        Ok(Self {
            file: file.to_owned(),
            title: head.title,
            about: head.about,
            claims: head.claims,
            issue: head.issue,
            trials: head.trials,
            seed: head.seed,
            arms,
            source: text.to_owned(),
            tree,
            known: known.clone(),
        })
    }

    /// The plan with the overrides of the command line worked in. Each is a dotted key and a value; a
    /// value that is no TOML is taken as a text. `trials` goes over the file's when given.
    ///
    /// # Errors
    /// An override has a mistake or makes the scenario impossible: all of these.
    pub fn resolve(
        &self,
        overrides: &[(String, String)],
        seed: u64,
        trials: Option<u32>,
    ) -> Result<Resolved, Vec<ScenarioError>> {
        let (_, arms) = analyse(&self.file, &self.source, &self.tree, &self.known, overrides)?;
        if trials == Some(0) {
            let problem = Problem {
                at: Origin::Flag("--trials 0".to_owned()),
                key: "trials".to_owned(),
                expected: "at least one trial".to_owned(),
                found: "0".to_owned(),
                hint: None,
            };
            return Err(vec![problem.locate(&self.file, &self.source)]);
        }
        Ok(Resolved {
            title: self.title.clone(),
            about: self.about.clone(),
            claims: self.claims.clone(),
            issue: self.issue.clone(),
            file: self.file.clone(),
            trials: trials.unwrap_or(self.trials),
            seed,
            arms,
        })
    }
}

/// The top level without its tables.
struct Head {
    title: String,
    about: Option<String>,
    claims: Vec<u8>,
    issue: Option<String>,
    trials: u32,
    seed: Option<u64>,
}

fn read_head(top: &Section<'_>) -> Option<Head> {
    let (title, trials, claims) = (
        top.text("title"),
        top.integer_u32("trials"),
        read_claims(top),
    );
    let (about, issue, seed) = (top.text("about"), top.text("issue"), top.integer("seed"));
    Some(Head {
        title: title?,
        about,
        claims: claims?,
        issue,
        trials: trials?,
        seed,
    })
}

fn read_claims(top: &Section<'_>) -> Option<Vec<u8>> {
    let Some(node) = top.written("claims") else {
        return Some(Vec::new());
    };
    let key = Table::Top.key("claims")?;
    if !matches!(node.value, Value::List(_)) {
        return top.wrong_kind(key, node, None);
    }
    let mut claims = Vec::new();
    for item in node.items() {
        let row = match item.value {
            Value::Integer(row @ 1..=LEDGER_ROWS) => u8::try_from(row).ok(),
            _ => None,
        };
        let found = match row {
            Some(row) if !claims.contains(&row) => {
                claims.push(row);
                continue;
            }
            Some(row) => format!("row {row} again"),
            None => item.describe(),
        };
        top.cx.report(Problem {
            at: item.at.clone(),
            key: "claims".to_owned(),
            expected: format!("ledger rows from 1 to {LEDGER_ROWS}, each once"),
            found,
            hint: None,
        });
    }
    Some(claims)
}

/// Reads the whole tree, with overrides over it, and checks every arm.
fn analyse(
    file: &str,
    source: &str,
    tree: &Node,
    known: &Known,
    flags: &[(String, String)],
) -> Result<(Head, Vec<ArmPlan>), Vec<ScenarioError>> {
    let cx = Context::new(known);
    let top = Section::open(&cx, Table::Top, String::new(), tree);
    let head = top.as_ref().and_then(read_head);
    let heads = top.as_ref().map(arm::read_heads).unwrap_or_default();
    if let Some(top) = &top {
        // Only so that a table of the wrong form is reported; the arms read what is in them.
        check_forms(top);
    }
    let faults = tree.get("fault").map_or(0, |node| node.items().len());
    let (overrides, problems) = overrides::from_flags(flags, faults, known);
    problems.into_iter().for_each(|problem| cx.report(problem));

    let mut plans = Vec::new();
    let mut of_arms: Vec<(Problem, Vec<String>)> = Vec::new();
    let mut arms_with_faults = 0;
    for head in &heads {
        let arm_cx = Context::new(known);
        let (varied, faults_on) = head.varied(tree, &overrides);
        arms_with_faults += usize::from(faults_on);
        plans.extend(head.plan(&arm_cx, &varied, faults_on));
        for problem in arm_cx.into_problems() {
            match of_arms.iter_mut().find(|(other, _)| *other == problem) {
                Some((_, arms)) if arms.last() == Some(&head.name) => {}
                Some((_, arms)) => arms.push(head.name.clone()),
                None => of_arms.push((problem, vec![head.name.clone()])),
            }
        }
    }
    let mut errors: Vec<ScenarioError> = cx
        .into_problems()
        .into_iter()
        .map(|problem| problem.locate(file, source))
        .collect();
    for (problem, arms) in of_arms {
        let mut error = problem.locate(file, source);
        // What is wrong in every arm is wrong in the file; an arm without faults has no say on them.
        let concerned = if error.key.starts_with("fault.") || error.key.starts_with("nemesis") {
            arms_with_faults
        } else {
            heads.len()
        };
        if arms.len() < concerned && !error.key.starts_with("arm.") {
            error.arms = arms;
        }
        errors.push(error);
    }
    match head {
        Some(head) if errors.is_empty() && plans.len() == heads.len() => Ok((head, plans)),
        _ => Err(finish(errors, file, flags)),
    }
}

/// Reports `[[cluster]]`, `workload = 5`, `[fault]` and the like.
fn check_forms(top: &Section<'_>) {
    for name in ["cluster", "workload", "nemesis"] {
        let is_table = top
            .written(name)
            .is_none_or(|node| matches!(node.value, Value::Table(_)));
        if !is_table {
            top.subsection(name);
        }
    }
    top.tables("fault");
}

/// Sorts the errors, and says of each that shows a line of the file which overrides it comes with.
fn finish(
    mut errors: Vec<ScenarioError>,
    file: &str,
    flags: &[(String, String)],
) -> Vec<ScenarioError> {
    if errors.is_empty() {
        errors.push(ScenarioError {
            file: file.to_owned(),
            place: Place::File,
            key: String::new(),
            expected: "a plan or the reason why there is none".to_owned(),
            found: "neither: this is a mistake in fencepost".to_owned(),
            hint: Some("please report it together with the file".to_owned()),
            arms: Vec::new(),
            overrides: Vec::new(),
        });
    }
    for error in &mut errors {
        if !matches!(error.place, Place::Flag(_)) {
            error.overrides = flags
                .iter()
                .map(|(path, text)| overrides::flag_text(path, text))
                .collect();
        }
    }
    error::sort(&mut errors);
    errors
}
