//! The plan of one trial: everything that the controller needs, and `check` after it. Stored as `plan.json`.

use std::path::PathBuf;

use nemesis::Schedule;
use serde::{Deserialize, Serialize};

use crate::provision::Launch;
use crate::scenario::{ArmPlan, Resolved};

/// Version of `plan.json` and `verdict.json`.
pub const FORMAT_VERSION: u32 = 1;

/// What one trial is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialPlan {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// The scenario's title.
    pub title: String,
    /// The arm, fully resolved.
    pub arm: ArmPlan,
    /// Number of the trial, from 1.
    pub trial: u32,
    /// Seed of this trial.
    pub seed: u64,
    /// The server.
    pub server: Server,
    /// A foreign worker's command line; absent for fencepost's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Vec<String>>,
    /// When which fault is injected, drawn from the seed.
    pub schedule: Schedule,
}

/// The server's binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Where it is.
    pub path: PathBuf,
    /// How it is started.
    #[serde(default)]
    pub launch: Launch,
    /// Where it came from, in words.
    pub origin: String,
}

/// What a whole run is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// The command that runs the same again.
    pub rerun: String,
    /// The scenario, fully resolved.
    pub scenario: Resolved,
}

/// The seed of a trial. All arms of a run share it, so that treatment and control see the same draws.
#[must_use]
pub fn trial_seed(seed: u64, trial: u32) -> u64 {
    seed.wrapping_add(u64::from(trial) - 1)
}
