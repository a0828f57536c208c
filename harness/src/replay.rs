//! Stored plans as something to run: `fencepost run --replay plan.json`.
//!
//! A trial's plan holds the whole schedule as it was drawn, and that is what runs again: nothing is drawn
//! anew. A plan that this build cannot carry out is an error before anything starts. What is in here must
//! not run anything.

use std::path::{Path, PathBuf};

use checkers::check::CHECKS;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use workloads::{lock, resource, script};

use crate::backend;
use crate::scenario::Resolved;
use crate::store::{self, StoreError, names};
use crate::trial::{FORMAT_VERSION, RunPlan, TrialPlan};

/// What is to run again.
#[derive(Clone, Debug)]
pub struct Replay {
    /// What the folder of the new run is called after.
    pub name: String,
    /// The scenario that the trials belong to, with the arms that have any.
    pub scenario: Resolved,
    /// The trials in the order in which they ran.
    pub trials: Vec<TrialPlan>,
}

/// A plan that cannot run again.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is something else.
    #[error(
        "{}: expected the plan.json of a trial or of a run, found {found}\n  each folder below results/ has one, and each trial's folder in it another",
        .path.display()
    )]
    NoPlan {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// It was written by a version that writes another format.
    #[error(
        "{}: expected a plan in format {FORMAT_VERSION}, found format {found}\n  run it with the version of fencepost that wrote it: environment.json in the run's folder names it",
        .path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format that it says it has.
        found: u64,
    },
    /// It needs what this build does not have.
    #[error(
        "{}: this build cannot carry the plan out:{}\n  run it with the version of fencepost that wrote it: environment.json in the run's folder names it",
        .path.display(), listed(.problems)
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What is missing or does not fit, one sentence each.
        problems: Vec<String>,
    },
    /// The run has no trial.
    #[error(
        "{}: expected the plan of a run with at least one trial in a folder beside it (ARM/trial-1/plan.json), found none\n  a run's own plan holds no schedules; they are with its trials",
        .0.display()
    )]
    NoTrial(PathBuf),
}

fn listed(problems: &[String]) -> String {
    problems
        .iter()
        .map(|problem| format!("\n  - {problem}"))
        .collect()
}

impl Replay {
    /// Reads the plan of a trial or of a run: the file, or the folder that it is in.
    ///
    /// # Errors
    /// Why it cannot run again.
    pub fn load(path: &Path) -> Result<Self, ReplayError> {
        let path = match path.is_dir() {
            true => path.join(names::PLAN),
            false => path.to_owned(),
        };
        let value = read(&path)?;
        match (value.get("scenario"), value.get("schedule")) {
            (Some(_), _) => Self::of_run(&path, value),
            (None, Some(_)) => Self::of_trial(&path, value),
            (None, None) => Err(ReplayError::NoPlan {
                path,
                found: "JSON without a scenario or a schedule".to_owned(),
            }),
        }
    }

    fn of_trial(path: &Path, value: Value) -> Result<Self, ReplayError> {
        let mut trial = trial(path, value)?;
        // It is the only one of its run now.
        trial.trial = 1;
        let scenario = Resolved {
            title: trial.title.clone(),
            about: None,
            claims: Vec::new(),
            issue: None,
            file: path.display().to_string(),
            trials: 1,
            seed: trial.seed,
            arms: vec![trial.arm.clone()],
        };
        Ok(Self {
            name: format!("replay-{}", trial.arm.name),
            scenario,
            trials: vec![trial],
        })
    }

    fn of_run(path: &Path, value: Value) -> Result<Self, ReplayError> {
        let RunPlan { mut scenario, .. } = parse(path, value)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut trials = Vec::new();
        for number in 1..=scenario.trials {
            for arm in &scenario.arms {
                let path = store::trial_folder(folder, &arm.name, number).join(names::PLAN);
                // A run that was ended early has not got to all of them.
                if path.exists() {
                    trials.push(trial(&path, read(&path)?)?);
                }
            }
        }
        let ran = |name: &String| trials.iter().any(|trial| trial.arm.name == *name);
        scenario.arms.retain(|arm| ran(&arm.name));
        if trials.is_empty() {
            return Err(ReplayError::NoTrial(path.to_owned()));
        }
        let stem = Path::new(&scenario.file).file_stem();
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name: format!("replay-{}", stem.unwrap_or_default()),
            scenario,
            trials,
        })
    }
}

/// Reads JSON in the format of this build.
fn read(path: &Path) -> Result<Value, ReplayError> {
    let no_plan = |found: String| ReplayError::NoPlan {
        path: path.to_owned(),
        found,
    };
    let value: Value = match store::read_json(path, "the plan of a trial or of a run") {
        Ok(value) => value,
        Err(StoreError::Content { error, .. }) => {
            return Err(no_plan(format!("no JSON: {error}")));
        }
        Err(error) => return Err(error.into()),
    };
    match value.get("format").and_then(Value::as_u64) {
        None => Err(no_plan("JSON that states no format".to_owned())),
        Some(format) if format == u64::from(FORMAT_VERSION) => Ok(value),
        Some(found) => Err(ReplayError::Format {
            path: path.to_owned(),
            found,
        }),
    }
}

fn parse<T: DeserializeOwned>(path: &Path, value: Value) -> Result<T, ReplayError> {
    serde_json::from_value(value).map_err(|error| ReplayError::Unknown {
        path: path.to_owned(),
        problems: vec![error.to_string()],
    })
}

/// A trial's plan that this build can carry out.
fn trial(path: &Path, value: Value) -> Result<TrialPlan, ReplayError> {
    let plan: TrialPlan = parse(path, value)?;
    let problems = problems(&plan);
    if problems.is_empty() {
        return Ok(plan);
    }
    Err(ReplayError::Unknown {
        path: path.to_owned(),
        problems,
    })
}

/// What a plan names that this build does not have, and what in it does not fit together.
fn problems(plan: &TrialPlan) -> Vec<String> {
    let (cluster, workload) = (&plan.arm.cluster, &plan.arm.workload);
    let mut problems = Vec::new();
    let mut named = |what: &str, name: &str, is_known: bool| {
        if !is_known {
            problems.push(format!("it has no {what} \"{name}\""));
        }
    };
    let spec = backend::find(&cluster.backend);
    named("backend", &cluster.backend, spec.is_some());
    if let (Some(spec), Some(bug)) = (spec, &cluster.bug) {
        let what = format!("bug of the backend {} called", spec.name);
        named(&what, bug, spec.bugs.contains(&bug.as_str()));
    }
    named("lock", &workload.lock, lock::find(&workload.lock).is_some());
    named(
        "workload",
        &workload.kind,
        script::find(&workload.kind).is_some(),
    );
    if let Some(name) = &workload.resource {
        named("resource", name, resource::find(name).is_some());
    }
    for expectation in &plan.arm.expect {
        let metric = &expectation.metric;
        let mut metrics = CHECKS.iter().flat_map(|check| check.metrics);
        named("metric", metric, metrics.any(|known| known.name == *metric));
    }
    let faults = &plan.arm.faults;
    for (index, fault) in faults.iter().enumerate() {
        let checked = fault.check(index + 1, workload.duration_ns);
        problems.extend(checked.err().map(|error| error.to_string()));
    }
    let belongs = plan.schedule.belongs_to(faults);
    problems.extend(belongs.err().map(|why| format!("its schedule: {why}")));
    problems
}
