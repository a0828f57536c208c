//! What the controller tells the launcher while a trial runs: JSON lines over a pipe.
//!
//! The launcher only shows it. Nothing that a verdict needs goes this way.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// A stage began, in words: `starting etcd 3.5.16 on 3 nodes`.
    Stage(String),
    /// The workload began.
    Started,
    /// Figures, twice a second.
    Tick(Tick),
    /// Something that the user should know; the run goes on.
    Warning(String),
    /// The trial cannot go on, and why (several lines).
    Failed(String),
}

/// The live figures of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Since the workload began.
    pub elapsed_ms: u64,
    /// Operations completed.
    pub operations: u64,
    /// Terms begun.
    pub terms: u64,
    /// Pairs of overlapping terms so far.
    pub overlaps: u64,
    /// Acknowledged writes so far.
    pub acknowledged: u64,
    /// Acknowledged writes that a later write has already clobbered.
    pub lost_writes: u64,
    /// Writes that the resource refused because of their token or guard.
    pub refused_writes: u64,
    /// Faults in force, for instance `pause c1`.
    pub faults: Vec<String>,
}

/// The controller's end of the pipe.
#[derive(Clone, Debug)]
pub struct ProgressSender(Option<Arc<Mutex<File>>>);

impl ProgressSender {
    /// Sends over `pipe`; without one everything is dropped.
    #[must_use]
    pub fn new(pipe: Option<File>) -> Self {
        Self(pipe.map(|pipe| Arc::new(Mutex::new(pipe))))
    }

    /// Sends one message. A launcher that is gone is not this process's concern: its init notices.
    pub fn send(&self, message: &Progress) {
        if let (Some(pipe), Ok(mut line)) = (&self.0, serde_json::to_vec(message)) {
            line.push(b'\n');
            let _ = pipe
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .write_all(&line);
        }
    }

    /// Sends [`Progress::Stage`].
    pub fn stage(&self, text: impl Into<String>) {
        self.send(&Progress::Stage(text.into()));
    }
}
