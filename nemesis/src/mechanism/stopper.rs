//! The choice between the ways to stop a process tree: the freezer where the host has a usable cgroup,
//! else SIGSTOP.
//!
//! A stopper only acts and confirms. Undoing it in every case is the duty of the fault that uses it.

use crate::mechanism::freezer::{self, Freezer};
use crate::mechanism::proof::ProcessId;
use crate::mechanism::sigstop;
use crate::{HostControl, Now};

/// What stopped, or is to stop, one host.
#[derive(Debug)]
pub enum Stopper {
    /// The host's cgroup.
    Freezer(Freezer),
    /// Signals through the host's init.
    Sigstop {
        /// Why the freezer was not used.
        because: String,
    },
}

impl Stopper {
    /// Chooses the way for a host and asks the kernel to stop it.
    ///
    /// # Errors
    /// No way worked; says what was tried.
    pub fn stop(host: &dyn HostControl) -> Result<Self, String> {
        let because = match freeze(host) {
            Ok(freezer) => return Ok(Self::Freezer(freezer)),
            Err(because) => because,
        };
        match sigstop::stop(host) {
            Ok(()) => Ok(Self::Sigstop { because }),
            Err(error) => {
                // Some of its processes may have got the signal before the error.
                let _ = sigstop::resume(host);
                Err(format!(
                    "SIGSTOP could not be sent: {error} (no freezer: {because})"
                ))
            }
        }
    }

    /// Name and circumstances, for receipts.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Freezer(_) => freezer::NAME.to_owned(),
            Self::Sigstop { because } => format!("{} (no freezer: {because})", sigstop::NAME),
        }
    }

    /// Waits until every process of the host's application has stopped, and returns when that was seen.
    ///
    /// # Errors
    /// What was still running when the deadline passed.
    pub fn wait_stopped(
        &self,
        host: &dyn HostControl,
        deadline_ns: u64,
        now: Now,
    ) -> Result<u64, String> {
        match self {
            Self::Freezer(freezer) => {
                let seen = freezer.wait(true, deadline_ns, now);
                let seen = seen.map_err(|error| format!("cgroup.events: {error}"))?;
                let stopped_ns = seen.ok_or("cgroup.events still says \"frozen 0\"")?;
                self.still_stopped(host)?;
                Ok(stopped_ns)
            }
            Self::Sigstop { .. } => sigstop::wait_stopped(host, deadline_ns, now),
        }
    }

    /// Checks that the host is stopped at this moment.
    ///
    /// # Errors
    /// What is not stopped.
    pub fn still_stopped(&self, host: &dyn HostControl) -> Result<(), String> {
        match self {
            Self::Freezer(freezer) => {
                let frozen = freezer.is_frozen();
                if !frozen.map_err(|error| format!("cgroup.events: {error}"))? {
                    return Err("cgroup.events says \"frozen 0\"".to_owned());
                }
                let members = freezer
                    .members()
                    .map_err(|error| format!("cgroup.procs: {error}"))?;
                // A process that has exited leaves its cgroup before it leaves the tree.
                let is_outside =
                    |pid: &&i32| !members.contains(pid) && ProcessId::find(**pid).is_some();
                match host.tree().iter().find(is_outside) {
                    Some(pid) => Err(format!("process {pid} is not in the host's cgroup")),
                    None => Ok(()),
                }
            }
            // The deadline 0 has passed: one look.
            Self::Sigstop { .. } => sigstop::wait_stopped(host, 0, || 1).map(drop),
        }
    }

    /// Asks the kernel to let the host go on.
    ///
    /// # Errors
    /// What the kernel or the host answered.
    pub fn resume(&self, host: &dyn HostControl) -> Result<(), String> {
        match self {
            Self::Freezer(freezer) => freezer
                .thaw()
                .map_err(|error| format!("cgroup.freeze: {error}")),
            Self::Sigstop { .. } => {
                sigstop::resume(host).map_err(|error| format!("SIGCONT: {error}"))
            }
        }
    }

    /// Waits until the host runs again, and returns when that was seen.
    ///
    /// # Errors
    /// What was still stopped when the deadline passed.
    pub fn wait_running(
        &self,
        host: &dyn HostControl,
        deadline_ns: u64,
        now: Now,
    ) -> Result<u64, String> {
        match self {
            Self::Freezer(freezer) => {
                let seen = freezer.wait(false, deadline_ns, now);
                let seen = seen.map_err(|error| format!("cgroup.events: {error}"))?;
                seen.ok_or_else(|| "cgroup.events still says \"frozen 1\"".to_owned())
            }
            Self::Sigstop { .. } => sigstop::wait_running(host, deadline_ns, now),
        }
    }
}

/// Asks the freezer of a host's cgroup to stop it, or says why it is not used.
fn freeze(host: &dyn HostControl) -> Result<Freezer, String> {
    let dir = host.cgroup().ok_or("the host has no cgroup")?;
    let used = Freezer::open(dir).and_then(|freezer| {
        freezer.freeze()?;
        Ok(freezer)
    });
    used.map_err(|error| format!("{}: {error}", dir.display()))
}
