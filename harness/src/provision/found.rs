//! The answers of a [`Provisioner`](super::Provisioner): a binary that was found, and where each
//! known version stands. Data only; both go into JSON that others read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Launch;

/// How a binary came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The user named it with `--binary`.
    Given,
    /// It was in fencepost's cache.
    Cache,
    /// It was on the system's `PATH`, with the wanted version.
    Path,
    /// It was fetched just now, and is in the cache from here on.
    Fetched,
    /// It is fencepost itself (the backend `builtin`).
    Own,
}

/// A binary that was found and that reported its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The backend's name in the catalogue.
    pub backend: String,
    /// The version that the binary reports.
    pub version: String,
    /// The absolute path of the server binary; of a Java server its main jar.
    pub path: PathBuf,
    /// How it is started.
    #[serde(default)]
    pub launch: Launch,
    /// How it was found.
    pub source: Source,
    /// Where exactly it came from, in words, for people and for a run's environment record.
    pub detail: String,
}

/// Where a known version stands on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In the cache, ready to run.
    Cached,
    /// On the system's `PATH`, ready to run.
    OnPath,
    /// Not here; it would be fetched.
    Fetchable,
    /// A part of fencepost.
    Own,
}

/// One line of `fencepost backends`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The backend's name.
    pub backend: String,
    /// The version.
    pub version: String,
    /// Where it stands on this machine.
    pub state: State,
    /// Where it is from, or would come from.
    pub origin: String,
    /// The binary, when it is here.
    pub path: Option<PathBuf>,
    /// The size of that binary.
    pub size_bytes: Option<u64>,
}
