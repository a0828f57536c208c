//! `fencepost check`: conclude again from what a run stored, and compare with what it concluded then.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::evaluate;
use crate::exit::Exit;
use crate::report::story;
use crate::run::launcher::exit_of;
use crate::store::{self, StoreError, names};
use crate::trial::RunPlan;

/// Check a stored run, or one trial of it, again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fencepost check results/latest
  fencepost check results/latest/unfenced/trial-1 --json")]
pub struct CheckArgs {
    /// The folder of a run or of a trial
    folder: PathBuf,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

/// Does it.
///
/// # Errors
/// When the folder is no run, or its plan cannot be read.
pub fn run(args: &CheckArgs) -> Result<Exit> {
    let folder = args
        .folder
        .canonicalize()
        .map_err(|_| StoreError::NoRun(args.folder.clone()))?;
    if !folder.join(names::PLAN).is_file() {
        return Err(StoreError::NoRun(folder).into());
    }
    let is_trial = folder.join(names::HISTORY).exists() || folder.join(names::LOGS).is_dir();
    if is_trial {
        check_trial(&folder, args.json)
    } else {
        check_run(&folder, args.json)
    }
}

fn check_trial(folder: &Path, json: bool) -> Result<Exit> {
    let verdict = evaluate::trial(folder)?;
    let bytes = store::to_json(&verdict)?;
    if json {
        print!("{}", String::from_utf8_lossy(&bytes));
    } else {
        println!(
            "arm \"{}\", trial {}, seed {}: {}",
            verdict.arm,
            verdict.trial,
            verdict.seed,
            verdict.conclusion.name()
        );
        verdict
            .reasons
            .iter()
            .for_each(|reason| println!("  {reason}"));
        for report in &verdict.reports {
            println!("\n{}: {}", report.check, report.verdict);
            report
                .metrics
                .iter()
                .for_each(|(name, value)| println!("  {name:<28} {value}"));
            report
                .witnesses
                .iter()
                .for_each(|witness| print!("{}", story::lines(witness)));
        }
        println!("\n{}", compare(&folder.join(names::VERDICT), &bytes));
    }
    Ok(exit_of(verdict.conclusion))
}

fn check_run(folder: &Path, json: bool) -> Result<Exit> {
    let plan: RunPlan = store::read_json(&folder.join(names::PLAN), "the plan of a run")?;
    let mut trials = Vec::new();
    for trial in 1..=plan.scenario.trials {
        for arm in &plan.scenario.arms {
            let folder = store::trial_folder(folder, &arm.name, trial);
            if folder.join(names::PLAN).is_file() {
                trials.push(evaluate::trial(&folder)?);
            }
        }
    }
    let verdict = evaluate::run(&plan, trials);
    let bytes = store::to_json(&verdict)?;
    if json {
        print!("{}", String::from_utf8_lossy(&bytes));
    } else {
        println!(
            "{}\n{}",
            story::tell(&plan, &verdict, folder),
            compare(&folder.join(names::VERDICT), &bytes)
        );
    }
    Ok(exit_of(verdict.conclusion))
}

fn compare(stored: &Path, bytes: &[u8]) -> String {
    match std::fs::read(stored) {
        Ok(old) if old == bytes => "The stored verdict.json is the same, byte for byte.".to_owned(),
        Ok(_) => format!(
            "The stored {} differs: another version of fencepost wrote it, or it was changed.",
            stored.display()
        ),
        Err(_) => {
            "There is no stored verdict.json to compare with: the run was ended before it had one."
                .to_owned()
        }
    }
}
