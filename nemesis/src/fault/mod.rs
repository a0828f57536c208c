//! Faults: what happens to whom, and the proof that it did. The registry is [`FAULTS`].
//!
//! A fault is one file: inject, heal, receipt, and whether this machine can do it. It is given the
//! hosts; who they are and when it strikes is decided elsewhere ([`schedule`](crate::schedule),
//! [`engine`](crate::engine)). A new fault is one file here and one line in the registry.

use std::fmt::Write;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::mechanism::Availability;
use crate::receipt::Receipt;
use crate::{HostControl, Need, Now, ParamSpec, Params, Target, World};

pub mod clock_jump;
pub mod clock_offset;
pub mod clock_rate;
pub mod cpu;
pub mod crash;
pub mod disk;
pub mod link;
pub mod memory;
pub mod partition;
pub mod pause;
pub mod power_loss;
pub mod rolling_restart;

mod on_hosts;
mod shape;
mod skew;
mod standing;

/// Every fault, in the order in which lists show them.
pub const FAULTS: &[FaultSpec] = &[
    pause::SPEC,
    crash::SPEC,
    rolling_restart::SPEC,
    cpu::SPEC,
    memory::SPEC,
    disk::SPEC,
    partition::SPEC,
    link::SPEC,
    power_loss::SPEC,
    clock_rate::SPEC,
    clock_jump::SPEC,
    clock_offset::SPEC,
];

/// Finds a fault by its registry name.
#[must_use]
pub fn find(name: &str) -> Option<&'static FaultSpec> {
    FAULTS.iter().find(|spec| spec.name == name)
}

/// What a fault acts on. A host has at most one fault a layer at a time: two would undo each other and
/// spoil each other's receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The processes of the application.
    Processes,
    /// What passes between hosts.
    Network,
    /// What is written to the disk.
    Disk,
    /// What its clocks say.
    Clock,
}

/// An entry of the registry.
#[derive(Debug)]
pub struct FaultSpec {
    /// As scenario files write it.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Forms of the targets that it can strike, out of [`ALL_FORMS`](crate::target::ALL_FORMS).
    pub targets: &'static [&'static str],
    /// True when a plan must say how long it lasts; else it may last until the end of the trial.
    pub needs_lasts: bool,
    /// The parameters that it has beyond whom, when and for how long.
    pub params: &'static [ParamSpec],
    /// Says what was expected of parameters that are right each for itself but contradict each other
    /// or the target, or ask for nothing. [`no_check`] where there is nothing to say.
    pub check: fn(&Target, &Params) -> Result<(), String>,
    /// What it acts on.
    pub layer: Layer,
    /// What its targets must have been started with.
    pub needs: &'static [Need],
    /// Makes the fault.
    pub build: fn() -> Box<dyn Fault>,
    /// Tries its mechanisms on this machine; one that works is enough.
    pub probe: fn() -> Vec<Availability>,
}

impl FaultSpec {
    /// True when the fault can strike that target.
    #[must_use]
    pub fn accepts(&self, target: &Target) -> bool {
        self.targets.contains(&target.form())
    }

    /// Tries every mechanism of this fault on this machine, which takes some milliseconds each. The
    /// fault can be used when one of them can; they are listed in the order of preference.
    #[must_use]
    pub fn available(&self) -> Vec<Availability> {
        (self.probe)()
    }
}

/// The [`check`](FaultSpec::check) of a fault whose parameters cannot contradict each other.
///
/// # Errors
/// Never.
pub fn no_check(_: &Target, _: &Params) -> Result<(), String> {
    Ok(())
}

/// What a fault is asked to do.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// How long it is to last; `None` means until the end of the trial.
    pub asked_ns: Option<u64>,
    /// Reads truth time.
    pub now: Now,
    /// Its parameters, checked.
    pub params: &'a Params,
    /// Drawn from the seed: decides wherever the parameters leave a choice.
    pub pick: u64,
    /// Who else there is.
    pub world: &'a dyn World,
}

/// A kind of fault.
pub trait Fault: Send + Sync {
    /// Injects the fault on all hosts and returns once it is confirmed to be in force on each.
    ///
    /// # Errors
    /// It could not be injected or confirmed. What was done is undone before this returns.
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError>;
}

/// A fault in force. Dropping it heals it, whatever happened before.
pub trait InForce: Send {
    /// When it was asked for.
    fn requested_ns(&self) -> u64;

    /// When it was confirmed to be in force on every host.
    fn since_ns(&self) -> u64;

    /// What was measured so far, in words.
    fn words(&self) -> String;

    /// Checks cheaply that it is still in force. Called several times a second.
    ///
    /// # Errors
    /// What ended it before its time.
    fn check(&self) -> Result<(), FaultError> {
        Ok(())
    }

    /// True when it has nothing more to do, and is to be healed although its time is not over.
    fn is_over(&self) -> bool {
        false
    }

    /// Heals it on every host, also on those after one that gave an error. Called at most once.
    ///
    /// # Errors
    /// What went wrong, while it was in force or in healing it.
    fn heal(&mut self) -> Result<Receipt, FaultError>;
}

/// Why a fault failed.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// There was nothing to act on.
    #[error(
        "{host}: expected a running application, found no process; had it exited or crashed? see the host's log"
    )]
    NothingRuns {
        /// The host.
        host: String,
    },
    /// The kernel or the host's init refused.
    #[error("{host}: {what}")]
    Refused {
        /// The host.
        host: String,
        /// What was tried and answered.
        what: String,
    },
    /// It was not confirmed in time.
    #[error("{host}: {what} was not confirmed within {within_ms} ms: {found}; it was undone")]
    NotConfirmed {
        /// The host.
        host: String,
        /// What was waited for.
        what: String,
        /// How long.
        within_ms: u64,
        /// What was found instead.
        found: String,
    },
    /// The target died of something else.
    #[error(
        "{host}: {} of {of} died while it was stopped (process {}), so nothing is proven; did another fault or the out-of-memory killer strike it?",
        pids.len(), numbers(pids)
    )]
    Died {
        /// The host.
        host: String,
        /// The processes that died.
        pids: Vec<i32>,
        /// How many there were.
        of: usize,
    },
    /// It ended before it was healed.
    #[error(
        "{host}: it ended before it was lifted: {found}; who else acts on that host's processes?"
    )]
    Ended {
        /// The host.
        host: String,
        /// What was found.
        found: String,
    },
    /// It could not be healed.
    #[error("{host}: healing failed: {found}; the host cannot be used any more, see its log")]
    NotHealed {
        /// The host.
        host: String,
        /// What was found.
        found: String,
    },
    /// The application could not be started again.
    #[error(
        "{host}: the application was killed but could not be started again: {source}; see the host's log"
    )]
    NotRestarted {
        /// The host.
        host: String,
        /// What the host answered.
        source: io::Error,
    },
    /// Several hosts failed.
    #[error("{}", joined(.0))]
    Several(Vec<FaultError>),
}

impl FaultError {
    /// One error out of all hosts' errors; `None` when there are none.
    pub(crate) fn of_all(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Several(errors)),
        }
    }
}

/// Numbers with spaces between them.
fn numbers(pids: &[i32]) -> String {
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    pids.join(" ")
}

/// Errors one after the other.
fn joined(errors: &[FaultError]) -> String {
    let mut text = String::new();
    for (index, error) in errors.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        write!(text, "{separator}{error}").expect("writing to a string");
    }
    text
}

/// Runs something of last resort. A panic in it is contained, because it may run during another one.
pub(crate) fn contained(last_resort: impl FnOnce()) {
    // There is nobody left to tell: whoever dropped the fault has already reported why.
    let _ = catch_unwind(AssertUnwindSafe(last_resort));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::ALL_FORMS;

    #[test]
    fn the_registry_is_consistent() {
        for spec in FAULTS {
            let named = FAULTS.iter().filter(|other| other.name == spec.name);
            assert_eq!(named.count(), 1, "{}", spec.name);
            assert!(find(spec.name).is_some(), "{}", spec.name);
            assert!(!spec.summary.is_empty());
            for form in spec.targets {
                assert!(ALL_FORMS.contains(form), "{}: {form}", spec.name);
            }
        }
        assert!(find("meteor").is_none());
    }

    #[test]
    fn every_fault_can_be_used_here_and_each_mechanism_says_what_it_did() {
        for spec in FAULTS {
            let found = spec.available();
            println!("{}: {found:?}", spec.name);
            // An ordinary user may mount in a sandbox only.
            let only_there = spec.needs.contains(&Need::UndoFs);
            // And have a cgroup with the memory controller where it is delegated only.
            let delegated = spec.name == "memory";
            let usable = found.iter().any(|one| one.usable);
            assert!(usable || only_there || delegated, "{found:?}");
            assert!(found.iter().all(|one| !one.detail.is_empty()));
        }
    }
}
