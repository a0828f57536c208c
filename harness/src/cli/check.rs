//! `fencepost check`: conclude again from what a run stored, and compare with what it concluded then; or
//! judge a single history file (see [`super::check_file`]).

use std::path::{Path, PathBuf};

use anyhow::Result;
use checkers::foreign::Mapping;
use clap::Args;

use super::check_file::{self, FileQuestion};
use crate::evaluate;
use crate::exit::Exit;
use crate::report::story;
use crate::run::launcher::exit_of;
use crate::store::{self, StoreError, names};
use crate::trial::RunPlan;

/// Check a stored run, a trial of it, or any history file
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fencepost check results/latest
  fencepost check results/latest/unfenced/trial-1 --json
  fencepost check history.edn --model owner-mutex --map acquire=lock,release=unlock
  fencepost check etcd_007.log --model cas-register

Formats (fencepost, Jepsen EDN, Jepsen log, minimal JSON lines): checkers/HISTORIES.md
Models: mutex, owner-mutex, reentrant:N, semaphore:K, ownerless-semaphore:K, fenced,
        reentrant-fenced[:N], cas-register, register, set")]
pub struct CheckArgs {
    /// The folder of a run or of a trial, or a history file
    path: PathBuf,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
    /// Hold a history file to this model
    #[arg(long)]
    model: Option<String>,
    /// What the file calls its operations, for instance acquire=lock,release=unlock,ignore=ping
    #[arg(long, value_name = "OURS=THEIRS,…", requires = "model")]
    map: Option<Mapping>,
    /// A register's value at the beginning, as the file writes it (nil without this)
    #[arg(long, value_name = "VALUE", requires = "model")]
    initial: Option<String>,
    /// Values in the EDN file are [key value] pairs, as those of jepsen.independent
    #[arg(long, requires = "model")]
    keyed: bool,
    /// Memory for a search, in megabytes; when it is used up the verdict is unknown
    #[arg(long, value_name = "MB", default_value_t = 512, requires = "model")]
    search_memory: usize,
}

/// Does it.
///
/// # Errors
/// When the folder is no run, or its plan cannot be read.
pub fn run(args: &CheckArgs) -> Result<Exit> {
    if args.path.is_file() {
        return check_file::run(&FileQuestion {
            path: args.path.clone(),
            model: args.model.clone(),
            map: args.map.clone(),
            initial: args.initial.clone(),
            keyed: args.keyed,
            search_memory_mb: args.search_memory,
            json: args.json,
        });
    }
    let folder = args
        .path
        .canonicalize()
        .map_err(|_| StoreError::NoRun(args.path.clone()))?;
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
