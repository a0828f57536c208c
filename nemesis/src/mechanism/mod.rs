//! Mechanisms: how the kernel is made to do what a fault says.
//!
//! A mechanism acts on the processes or links it is given and measures; it does not know why, on whom,
//! or when.
//! [`stopper`] chooses between the two ways to stop a process tree; [`proof`] reads what the kernel
//! knows about threads; [`probe`] tries each mechanism on this machine.

pub mod cgroup;
pub mod freezer;
pub mod fsync_gate;
pub mod links;
pub mod memory;
pub mod nft;
pub mod pageout;
pub mod probe;
pub mod proof;
pub(crate) mod scheduling;
pub mod sigstop;
pub mod stopper;
pub mod switch;
pub mod undo_fs;

/// Whether a mechanism works on this machine, found by using it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Its name, for instance `cgroup v2 freezer`.
    pub mechanism: &'static str,
    /// True when it was used with success.
    pub usable: bool,
    /// What was tried, or what went wrong and what to do.
    pub detail: String,
}
