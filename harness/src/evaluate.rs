//! From a stored trial to its verdict, and from trials to the verdict of arms and run.
//!
//! It reads files only and depends on nothing but them: the same folder always gives the same verdict.
//! A detector that cannot fail proves nothing, so what is unproven or unknown never passes.

use std::collections::BTreeMap;
use std::path::Path;

use checkers::check::{Class, Metric, Report, Verdict, run_all};
use checkers::history::{EndReason, FaultEvent, FaultPhase, History};
use nemesis::Trigger;
use serde::{Deserialize, Serialize};

use crate::scenario::Expectation;
use crate::store::{self, StoreError, names};
use crate::sweep::{self, Sweep};
use crate::trial::{FORMAT_VERSION, RunPlan, TrialPlan};

/// What a trial, an arm or a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// Every expectation was met.
    Pass,
    /// One was not, and the trial proves it.
    Fail,
    /// The trial proves nothing.
    Inconclusive,
}

impl Conclusion {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Conclusion::Pass => "pass",
            Conclusion::Fail => "fail",
            Conclusion::Inconclusive => "inconclusive",
        }
    }
}

/// One expectation and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The expectation in words, for instance `lost_writes > 0`.
    pub expected: String,
    /// What was found; absent when no check measured it.
    pub found: Option<Metric>,
    /// Whether it was met.
    pub met: bool,
}

/// The verdict of one trial: `verdict.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialVerdict {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// Name of the arm.
    pub arm: String,
    /// Number of the trial.
    pub trial: u32,
    /// Its seed.
    pub seed: u64,
    /// What it came to.
    pub conclusion: Conclusion,
    /// Why, when it is not a pass: one sentence each.
    pub reasons: Vec<String>,
    /// How the recording ended; absent when the recorder was killed.
    pub end: Option<EndReason>,
    /// Every expectation.
    pub findings: Vec<Finding>,
    /// What each check found.
    pub reports: Vec<Report>,
}

impl TrialVerdict {
    /// A metric of any check.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<Metric> {
        self.reports
            .iter()
            .find_map(|report| report.metrics.get(name))
            .copied()
    }

    /// A count, 0 where it was not measured.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn count(&self, name: &str) -> u64 {
        self.metric(name).map_or(0, |metric| metric.value() as u64)
    }
}

/// The verdict of one arm over its trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmVerdict {
    /// Its name.
    pub arm: String,
    /// What it came to.
    pub conclusion: Conclusion,
    /// Trials that passed.
    pub passed: u32,
    /// Trials that had to.
    pub needed: u32,
    /// The trials.
    pub trials: Vec<TrialVerdict>,
}

/// The verdict of a run: `verdict.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunVerdict {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// The scenario's title.
    pub title: String,
    /// The run's seed.
    pub seed: u64,
    /// What it came to.
    pub conclusion: Conclusion,
    /// The arms, in the scenario's order.
    pub arms: Vec<ArmVerdict>,
    /// What its sweeps came to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Sweep>,
}

/// Checks the trial in `folder` anew, without writing anything.
///
/// # Errors
/// When its plan cannot be read. A history that cannot be read makes the trial inconclusive instead.
pub fn trial(folder: &Path) -> Result<TrialVerdict, StoreError> {
    let plan: TrialPlan = store::read_json(&folder.join(names::PLAN), "the plan of a trial")?;
    Ok(match History::read(&folder.join(names::HISTORY)) {
        Ok(history) => judge(&plan, &history),
        Err(error) => match &error.partial {
            Some(history) => {
                let mut verdict = judge(&plan, history);
                verdict
                    .reasons
                    .insert(0, format!("the history is damaged: {error}"));
                verdict.conclusion = Conclusion::Inconclusive;
                verdict
            }
            None => unreadable(&plan, format!("the history cannot be read: {error}")),
        },
    })
}

/// The verdict of a trial without a history.
#[must_use]
pub fn unreadable(plan: &TrialPlan, reason: String) -> TrialVerdict {
    TrialVerdict {
        format: FORMAT_VERSION,
        arm: plan.arm.name.clone(),
        trial: plan.trial,
        seed: plan.seed,
        conclusion: Conclusion::Inconclusive,
        reasons: vec![reason],
        end: None,
        findings: Vec::new(),
        reports: Vec::new(),
    }
}

/// Runs every check over a history and compares with what the arm expects.
#[must_use]
pub fn judge(plan: &TrialPlan, history: &History) -> TrialVerdict {
    let mut verdict = unreadable(plan, String::new());
    verdict.reports = run_all(history);
    verdict.end = history.end.as_ref().map(|end| end.reason);
    let arm = &plan.arm;
    verdict.findings = arm
        .expect
        .iter()
        .map(|expectation| find(expectation, &verdict))
        .collect();
    let proven = proven_wrong(&arm.expect, &verdict);
    let mut unproven = unproven(plan, history, &verdict);
    unproven.extend(unknown(&arm.expect, &verdict));
    let unmet = verdict
        .findings
        .iter()
        .filter(|finding| !finding.met)
        .map(describe);
    (verdict.conclusion, verdict.reasons) = if !proven.is_empty() {
        (Conclusion::Fail, proven)
    } else if !unproven.is_empty() {
        (Conclusion::Inconclusive, unproven)
    } else {
        let unmet: Vec<String> = unmet.collect();
        (
            if unmet.is_empty() {
                Conclusion::Pass
            } else {
                Conclusion::Fail
            },
            unmet,
        )
    };
    verdict
}

fn find(expectation: &Expectation, verdict: &TrialVerdict) -> Finding {
    let found = verdict.metric(&expectation.metric);
    let met = found.is_some_and(|found| expectation.holds(found.value()));
    Finding {
        expected: expectation.to_string(),
        found,
        met,
    }
}

fn describe(finding: &Finding) -> String {
    let found = finding
        .found
        .map_or("nothing that measures it".to_owned(), |found| {
            found.to_string()
        });
    format!("expected {}, found {found}", finding.expected)
}

/// What no longer run could put right: a count above its bound, or a fault that nobody expected.
fn proven_wrong(expect: &[Expectation], verdict: &TrialVerdict) -> Vec<String> {
    let mut wrong = Vec::new();
    for (expectation, finding) in expect.iter().zip(&verdict.findings) {
        // Counts only grow: what does not hold now and would not hold for any larger count is final.
        let beyond = |found: Metric| {
            !expectation.holds(found.value()) && !expectation.holds(found.value() + 1e15)
        };
        if finding.found.is_some_and(beyond) {
            wrong.push(describe(finding));
        }
    }
    for report in &verdict.reports {
        let expected = expect
            .iter()
            .any(|expectation| report.metrics.contains_key(&expectation.metric));
        let inherent = report
            .class
            .is_none_or(|class| matches!(class, Class::InherentHazard | Class::FaultsDoing));
        if report.verdict == Verdict::Invalid && !expected && (!inherent || expect.is_empty()) {
            let headline = report
                .witnesses
                .first()
                .map_or("", |witness| witness.headline.as_str());
            let class = report
                .class
                .map_or(String::new(), |class| format!(" ({class})"));
            wrong.push(format!(
                "check {} is invalid{class}: {headline}",
                report.check
            ));
        }
    }
    wrong
}

/// Why the trial shows less than it should.
fn unproven(plan: &TrialPlan, history: &History, verdict: &TrialVerdict) -> Vec<String> {
    let mut reasons = Vec::new();
    match (verdict.end, &history.truncated) {
        (_, Some(truncation)) => {
            reasons.push(format!(
                "the history was cut short at line {}: {}",
                truncation.line, truncation.why
            ));
        }
        (None, None) => reasons.push("the recorder was killed before the run's end".to_owned()),
        (Some(EndReason::Interrupted), _) => reasons.push("the run was interrupted".to_owned()),
        (Some(EndReason::Failed), _) => {
            reasons.push("the run could not go on; see logs/controller.log".to_owned())
        }
        (Some(EndReason::Completed), _) => {}
    }
    reasons.extend(unproven_faults(plan, history, verdict));
    let (terms, least) = (
        verdict.count("completed_terms"),
        plan.arm.workload.min_terms,
    );
    if terms < least {
        reasons.push(format!(
            "only {terms} terms were completed, the scenario needs {least} (workload.min_terms)"
        ));
    }
    reasons
}

/// Faults that no receipt shows: all of them, or those that were to strike at their time or event and never did.
/// What an arm shows it shows of all its faults together.
fn unproven_faults(plan: &TrialPlan, history: &History, verdict: &TrialVerdict) -> Vec<String> {
    let faults = &plan.arm.faults;
    if faults.is_empty() {
        return Vec::new();
    }
    if verdict.count("faults_proven") == 0 {
        let (skipped, failed) = (
            verdict.count("faults_skipped"),
            verdict.count("faults_failed"),
        );
        return vec![format!(
            "no fault is proven by its receipt ({skipped} skipped, {failed} failed)"
        )];
    }
    let mut wanted: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for fault in faults {
        if !matches!(fault.trigger, Trigger::Drawn { .. }) {
            *wanted
                .entry((&fault.kind, fault.target.to_string()))
                .or_default() += 1;
        }
    }
    let mut reasons = Vec::new();
    for ((kind, target), wanted) in wanted {
        let of_it = || {
            let events = history.faults.iter();
            events.filter(|event| event.kind == kind && event.target == target)
        };
        let proven = of_it().filter(|event| event.proven).count();
        if proven < wanted {
            let unproven = |event: &&FaultEvent| match event.phase {
                FaultPhase::Injected => false,
                FaultPhase::Healed => !event.proven,
                FaultPhase::Skipped | FaultPhase::Failed => true,
            };
            let why = of_it().rfind(unproven);
            let why = why.map_or("it never struck", |event| event.receipt.as_str());
            reasons.push(format!(
                "expected the fault {kind} of {target} {}, found {proven} proven by a receipt: {why}",
                match wanted {
                    1 => "at least once".to_owned(),
                    wanted => format!("at least {wanted} times"),
                }
            ));
        }
    }
    reasons
}

/// Expectations that rest on a check which could not decide.
fn unknown(expect: &[Expectation], verdict: &TrialVerdict) -> Vec<String> {
    let concerns = |report: &&Report| {
        expect
            .iter()
            .any(|wanted| report.metrics.contains_key(&wanted.metric))
    };
    let undecided = verdict
        .reports
        .iter()
        .filter(|report| report.verdict == Verdict::Unknown)
        .filter(concerns);
    undecided
        .map(|report| {
            let why = report
                .unknown_because
                .as_deref()
                .unwrap_or("no reason was given");
            format!("check {} cannot decide: {why}", report.check)
        })
        .collect()
}

/// Sums up the trials of a run.
#[must_use]
pub fn run(plan: &RunPlan, trials: Vec<TrialVerdict>) -> RunVerdict {
    let mut arms = Vec::new();
    for arm in &plan.scenario.arms {
        let trials: Vec<_> = trials
            .iter()
            .filter(|trial| trial.arm == arm.name)
            .cloned()
            .collect();
        let planned = plan.scenario.trials;
        let count = |conclusion| {
            trials
                .iter()
                .filter(|trial| trial.conclusion == conclusion)
                .count() as u32
        };
        let (passed, needed) = (count(Conclusion::Pass), arm.holds_in.needed(planned));
        // A trial that did not take place could still have passed.
        let open = count(Conclusion::Inconclusive) + planned.saturating_sub(trials.len() as u32);
        let conclusion = match passed {
            passed if passed >= needed => Conclusion::Pass,
            passed if passed + open >= needed => Conclusion::Inconclusive,
            _ => Conclusion::Fail,
        };
        arms.push(ArmVerdict {
            arm: arm.name.clone(),
            conclusion,
            passed,
            needed,
            trials,
        });
    }
    let any = |conclusion| arms.iter().any(|arm| arm.conclusion == conclusion);
    let conclusion = match (any(Conclusion::Fail), any(Conclusion::Inconclusive)) {
        (true, _) => Conclusion::Fail,
        (false, true) => Conclusion::Inconclusive,
        (false, false) => Conclusion::Pass,
    };
    RunVerdict {
        format: FORMAT_VERSION,
        title: plan.scenario.title.clone(),
        seed: plan.scenario.seed,
        conclusion,
        sweeps: sweep::of_run(&plan.scenario.arms, plan.scenario.trials, &arms),
        arms,
    }
}
