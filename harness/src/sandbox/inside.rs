//! What the sandbox init tells the controller about where it is, through one environment variable.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::SandboxError;

/// The variable.
pub(super) const VARIABLE: &str = "FENCEPOST_SANDBOX";

/// The controller's view of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// An empty directory in memory with a short path, gone with the sandbox. Unix sockets belong here.
    pub scratch: PathBuf,
    /// The run's cgroup v2 directory (see [`super::HostSpec::cgroup`]), or why there is none.
    pub cgroup: Result<PathBuf, String>,
}

impl Inside {
    /// Reads it. Only the controller can: outside of a sandbox it is an error.
    pub fn read() -> Result<Self, SandboxError> {
        let invalid = |found: String| {
            SandboxError::Invalid {
            what: format!("environment variable {VARIABLE}"),
            expected: "what the sandbox init sets; the controller is started by `fencepost run`, not by hand".into(),
            found,
        }
        };
        let text = std::env::var(VARIABLE).map_err(|e| invalid(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| invalid(format!("{text:?} ({e})")))
    }
}
