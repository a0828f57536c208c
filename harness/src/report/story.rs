//! The end of a run in words that a reader can repeat: what happened in each arm, one lost write from
//! cause to effect, where everything is, how to run it again.

use std::fmt::Write;
use std::path::Path;

use checkers::check::{Report, Verdict, Witness};

use super::display::count;
use crate::backend;
use crate::evaluate::{ArmVerdict, Conclusion, RunVerdict, TrialVerdict};
use crate::store::names;
use crate::trial::RunPlan;

/// The story of a run.
#[must_use]
pub fn tell(plan: &RunPlan, verdict: &RunVerdict, folder: &Path) -> String {
    let mut story = table(verdict);
    story.push('\n');
    for arm in &verdict.arms {
        let _ = writeln!(story, "{}", sentence(arm));
    }
    if !verdict.sweeps.is_empty() {
        story.push('\n');
    }
    for sweep in &verdict.sweeps {
        let _ = writeln!(story, "Sweep over {sweep}.");
    }
    if let Some((trial, witness)) = first_witness(verdict) {
        let _ = write!(
            story,
            "\nHow it came to that (arm \"{}\", trial {}):\n{}",
            trial.arm,
            trial.trial,
            lines(witness)
        );
    }
    let reasons = reasons(verdict);
    if !reasons.is_empty() {
        let _ = write!(story, "\n{reasons}");
    }
    story.push('\n');
    let models: Vec<_> = plan
        .scenario
        .arms
        .iter()
        .map(|arm| arm.cluster.backend.as_str())
        .collect();
    if let Some(model) = models
        .iter()
        .find(|name| backend::find(name).is_some_and(|spec| spec.model))
    {
        let _ = writeln!(
            story,
            "Note:      `{model}` is a model that fencepost brings along, not a real lock service."
        );
    }
    let _ = writeln!(story, "Verdict:   {}", concluding(verdict.conclusion));
    let _ = writeln!(story, "Artefacts: {}", folder.display());
    let _ = writeln!(story, "Again:     {}", plan.rerun);
    let _ = writeln!(
        story,
        "Replay:    fencepost run --replay {}",
        folder.join(names::PLAN).display()
    );
    let _ = write!(story, "Recheck:   fencepost check {}", folder.display());
    story
}

fn concluding(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Pass => "pass: every arm showed what the scenario expects of it",
        Conclusion::Fail => "fail: an arm did not show what the scenario expects of it",
        Conclusion::Inconclusive => "inconclusive: the run proves nothing either way",
    }
}

/// One row a trial.
fn table(verdict: &RunVerdict) -> String {
    let head = [
        "arm", "trial", "seed", "verdict", "terms", "overlaps", "longest", "acked", "lost",
        "refused", "faults",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for trial in verdict.arms.iter().flat_map(|arm| &arm.trials) {
        rows.push(row(trial));
    }
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells =
            row.iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    // Words to the left, figures to the right.
                    0 | 3 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
        let _ = writeln!(
            text,
            "  {}",
            cells.collect::<Vec<_>>().join("  ").trim_end()
        );
    }
    text
}

fn row(trial: &TrialVerdict) -> [String; 11] {
    let cell = |name: &str| {
        trial
            .metric(name)
            .map_or("–".to_owned(), |metric| metric.to_string())
    };
    let longest = trial
        .metric("overlap_longest_ms")
        .map(|metric| metric.value());
    let injected = trial.count("faults_injected");
    [
        trial.arm.clone(),
        trial.trial.to_string(),
        trial.seed.to_string(),
        trial.conclusion.name().to_owned(),
        cell("terms"),
        cell("overlapping_terms"),
        longest
            .filter(|ms| *ms > 0.0)
            .map_or("–".to_owned(), |ms| format!("{:.2} s", ms / 1000.0)),
        cell("acknowledged"),
        cell("lost_writes"),
        cell("stale_writes_rejected"),
        if injected == 0 {
            "–".to_owned()
        } else {
            format!("{} of {injected}", trial.count("faults_proven"))
        },
    ]
}

/// What one arm showed.
fn sentence(arm: &ArmVerdict) -> String {
    let sum = |name: &str| {
        arm.trials
            .iter()
            .map(|trial| trial.count(name))
            .sum::<u64>()
    };
    let (acked, lost) = (sum("acknowledged"), sum("lost_writes"));
    let (overlaps, refused) = (sum("overlapping_terms"), sum("stale_writes_rejected"));
    let mut said = Vec::new();
    if sum("expired_grants") > 0 {
        let grants = sum("expired_grants");
        said.push(format!(
            "{} {} handed out on a dead lease",
            count(grants, "lock"),
            was(grants)
        ));
    }
    said.push(match (overlaps, sum("terms")) {
        (0, terms) => format!("no two of {} overlapped", count(terms, "term")),
        (overlaps, terms) => format!(
            "{} of terms overlapped among {terms}",
            count(overlaps, "pair")
        ),
    });
    if acked > 0 {
        said.push(match lost {
            0 if acked == 1 => "the only acknowledged write survived".to_owned(),
            0 => format!("all {} survived", count(acked, "acknowledged write")),
            lost => format!(
                "{lost} of {} {} lost, though each writer held the lock",
                count(acked, "acknowledged write"),
                was(lost)
            ),
        });
    }
    if refused > 0 {
        let writes = count(refused, "stale write");
        said.push(format!("{writes} {} refused", was(refused)));
    }
    format!("{}: {}.", arm.arm, said.join("; "))
}

fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

/// The first thing that went wrong, lost writes before anything else.
fn first_witness(verdict: &RunVerdict) -> Option<(&TrialVerdict, &Witness)> {
    let trials = || verdict.arms.iter().flat_map(|arm| &arm.trials);
    let of = |check: &'static str| {
        trials().find_map(|trial| {
            let invalid =
                |report: &&Report| report.verdict == Verdict::Invalid && report.check == check;
            Some((
                trial,
                trial.reports.iter().find(invalid)?.witnesses.first()?,
            ))
        })
    };
    ["lost-writes", "terms", "fencing"].into_iter().find_map(of)
}

/// A witness, one line an event.
#[must_use]
pub fn lines(witness: &Witness) -> String {
    let mut text = format!("  {}", witness.headline);
    if let Some(class) = witness.class {
        let _ = write!(text, " ({class})");
    }
    text.push('\n');
    for line in &witness.lines {
        let _ = writeln!(text, "  {:>9.3} s  {}", line.at_ms / 1000.0, line.text);
    }
    text
}

/// Why arms did not pass.
fn reasons(verdict: &RunVerdict) -> String {
    let mut text = String::new();
    for trial in verdict.arms.iter().flat_map(|arm| &arm.trials) {
        for reason in &trial.reasons {
            let (arm, number, conclusion) = (&trial.arm, trial.trial, trial.conclusion.name());
            let _ = writeln!(text, "{arm}, trial {number}: {conclusion}: {reason}");
        }
    }
    text
}
