//! What this machine lets fencepost do, found by doing it.
//!
//! Every operation that a run needs is carried out in a real sandbox with two real hosts: nothing is
//! concluded from versions or settings. Each finding says what was done, by which system call, what the
//! kernel answered, and what to do. What this must not do: change anything that outlives the sandbox.

pub mod inside;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

use nemesis::mechanism::Availability;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{geteuid, pipe2};
use serde::{Deserialize, Serialize};

use crate::sandbox::{Sandbox, SandboxError, SandboxSpec};

/// Hidden verb that the sandbox's controller runs.
pub const INSIDE: &str = "doctor-inside";

/// One operation that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is, for instance `cgroup`.
    pub name: String,
    /// The system call, or how the kernel is reached.
    pub call: String,
    /// Whether it worked.
    pub works: bool,
    /// What was done; or what went wrong, why, and what to do.
    pub detail: String,
    /// What the kernel answered, by name, if it refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// What is lost without it: `every run`, or faults by name.
    pub lost: Vec<String>,
    /// What fencepost does instead, if it can do without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
}

/// Whether one fault can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultFinding {
    /// The fault's name.
    pub name: String,
    /// Whether one of its mechanisms works, and whatever else it needs.
    pub available: bool,
    /// Its mechanisms, best first, each with what was done or what is missing.
    pub mechanisms: Vec<Mechanism>,
}

/// One mechanism of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// Its name.
    pub name: String,
    /// Whether it worked.
    pub works: bool,
    /// What was done; or what went wrong, why, and what to do.
    pub detail: String,
    /// What the kernel answered, by name, if it refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
}

impl From<Availability> for Mechanism {
    fn from(found: Availability) -> Self {
        Self {
            name: found.mechanism.to_owned(),
            works: found.usable,
            errno: (!found.usable).then(|| errno_in(&found.detail)).flatten(),
            detail: found.detail,
        }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The kernel's release.
    pub kernel: String,
    /// Whether this is root.
    pub root: bool,
    /// The operations.
    pub operations: Vec<Finding>,
    /// The faults.
    pub faults: Vec<FaultFinding>,
}

/// What the part inside the sandbox tells, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Told {
    Operation(Finding),
    Fault(FaultFinding),
}

impl Diagnosis {
    /// Whether runs are possible at all.
    #[must_use]
    pub fn can_run(&self) -> bool {
        let needed = |found: &&Finding| found.lost.iter().any(|lost| lost == EVERY_RUN);
        self.operations
            .iter()
            .filter(needed)
            .all(|found| found.works)
    }
}

/// What a finding's `lost` says when nothing works without it.
const EVERY_RUN: &str = "every run";

/// Tries everything.
#[must_use]
pub fn diagnose() -> Diagnosis {
    let mut diagnosis = Diagnosis {
        kernel: nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        root: geteuid().is_root(),
        ..Diagnosis::default()
    };
    let outcome = try_in_sandbox(&mut diagnosis);
    let call = "clone3(CLONE_NEWUSER|NEWPID|NEWNS|NEWNET|NEWIPC|NEWUTS), mount";
    let done = if diagnosis.root {
        "started a sandbox and ended it"
    } else {
        "started a sandbox as an ordinary user and ended it"
    };
    let sandbox = Finding::of("sandbox", call, &[EVERY_RUN], outcome.map(|()| done.into()));
    diagnosis.operations.insert(0, sandbox);
    diagnosis
}

/// Starts a sandbox with [`inside`] as its controller and collects what that tells.
fn try_in_sandbox(diagnosis: &mut Diagnosis) -> Result<(), Refusal> {
    let other = |what: &str, error: &dyn std::fmt::Display| Refusal {
        detail: format!("{what}: {error}"),
        errno: None,
    };
    let (reader, writer) =
        pipe2(OFlag::O_CLOEXEC).map_err(|errno| Refusal::call("pipe2", errno))?;
    let sandbox = Sandbox::start(SandboxSpec {
        controller_argv: vec![INSIDE.into()],
        inherit: vec![writer],
        cgroup: true,
        ..SandboxSpec::default()
    })?;
    for line in BufReader::new(File::from(reader)).lines() {
        let line = line.map_err(|error| other("reading what was found", &error))?;
        match serde_json::from_str(&line) {
            Ok(Told::Operation(finding)) => diagnosis.operations.push(finding),
            Ok(Told::Fault(finding)) => diagnosis.faults.push(finding),
            Err(error) => return Err(other("understanding what was found", &error)),
        }
    }
    let end = sandbox.wait();
    match end {
        crate::sandbox::ControllerEnd::Exited(0) => Ok(()),
        end => Err(other("the part in the sandbox", &end)),
    }
}

/// Why an operation did not work.
pub(crate) struct Refusal {
    detail: String,
    errno: Option<Errno>,
}

impl Refusal {
    /// A call that the kernel refused.
    fn call(call: &str, errno: Errno) -> Self {
        Self {
            detail: format!("{call}: {errno}"),
            errno: Some(errno),
        }
    }

    /// In words, among which the kernel's answer may be.
    fn words(detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            errno: None,
        }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        let errno = match &error {
            SandboxError::System(failure) => Some(Errno::from_raw(failure.errno)),
            _ => None,
        };
        Self {
            detail: error.to_string(),
            errno,
        }
    }
}

impl Finding {
    /// A finding from what an operation came to.
    fn of(name: &str, call: &str, lost: &[&str], outcome: Result<String, Refusal>) -> Self {
        let (works, detail, errno) = match outcome {
            Ok(done) => (true, done, None),
            Err(refusal) => {
                let errno = refusal.errno.map(|errno| format!("{errno:?}"));
                let errno = errno.or_else(|| errno_in(&refusal.detail));
                (false, refusal.detail, errno)
            }
        };
        Self {
            name: name.to_owned(),
            call: call.to_owned(),
            works,
            detail,
            errno,
            lost: lost.iter().map(|&lost| lost.to_owned()).collect(),
            instead: None,
        }
    }

    /// The same, with what fencepost does instead.
    fn or_else(self, instead: &str) -> Self {
        Self {
            instead: Some(instead.to_owned()),
            ..self
        }
    }
}

/// The name of the errno in a text: nix writes `EPERM: …`, std `… (os error 1)`.
fn errno_in(text: &str) -> Option<String> {
    let number = text
        .split("(os error ")
        .nth(1)
        .and_then(|rest| rest.split(')').next()?.parse().ok());
    if let Some(number) = number {
        return Some(format!("{:?}", Errno::from_raw(number)));
    }
    let is_name = |word: &&str| {
        word.len() > 3
            && word.starts_with('E')
            && word
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .find(is_name)
        .map(str::to_owned)
}

/// The write end that [`diagnose`] hands down.
#[must_use]
pub fn inherited_pipe() -> OwnedFd {
    crate::run::controller::inherited_pipe()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_answer_is_found_in_words() {
        let denied = std::io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(
            errno_in(&format!("open /dev/fuse: {denied}")).as_deref(),
            Some("EACCES")
        );
        let nix = format!("mount: {}", Errno::EPERM);
        assert_eq!(errno_in(&nix).as_deref(), Some("EPERM"));
        assert_eq!(errno_in("FUSE is not there, Ends here"), None);
    }

    #[test]
    fn a_run_needs_what_every_run_needs_only() {
        let finding = |lost: &str, works| Finding {
            works,
            ..Finding::of("x", "call", &[lost], Ok(String::new()))
        };
        let diagnosis = |lost, works| Diagnosis {
            operations: vec![finding(lost, works)],
            ..Diagnosis::default()
        };
        assert!(diagnosis("pause", false).can_run());
        assert!(diagnosis(EVERY_RUN, true).can_run());
        assert!(!diagnosis(EVERY_RUN, false).can_run());
    }
}
