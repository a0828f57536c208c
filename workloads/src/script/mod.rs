//! Scripts: what one logical client does, step by step. One file a workload, one line each in [`WORKLOADS`].
//!
//! A script is a pure state machine: it is told how its last step ended and says what comes next. It
//! must not read a clock or do anything itself; the run loop drives it, so that the same seed makes
//! the same choices.

use std::ops::RangeInclusive;

use checkers::history::{Function, Ns, Outcome};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

pub mod guarded_set;
pub mod mutex;

/// A kind of workload.
pub struct WorkloadSpec {
    /// Name in scenario files.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Whether it works on a protected resource.
    pub needs_resource: bool,
    /// A script for one logical client.
    pub script: fn(&ScriptConfig) -> Box<dyn Script>,
}

/// Every workload there is.
pub const WORKLOADS: &[WorkloadSpec] = &[guarded_set::SPEC, mutex::SPEC];

/// The workload of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static WorkloadSpec> {
    WORKLOADS.iter().find(|spec| spec.name == name)
}

/// What all scripts of a run share.
#[derive(Clone, Debug)]
pub struct ScriptConfig {
    /// Number of named locks, `l0`, `l1` …
    pub locks: u32,
    /// How long a lock is held, in nanoseconds.
    pub hold_ns: RangeInclusive<Ns>,
    /// How long a client waits between two rounds, in nanoseconds.
    pub think_ns: RangeInclusive<Ns>,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A step under lock number `lock`.
    Step {
        /// What to do.
        f: Function,
        /// Number of the lock.
        lock: u32,
    },
    /// Nothing, for this long.
    Wait {
        /// Nanoseconds.
        ns: Ns,
    },
}

/// One logical client's program. It ends when the run loop stops asking.
pub trait Script: Send {
    /// The next action; `last` is how the last step ended, absent at first and after a wait.
    fn next(&mut self, last: Option<Outcome>, rng: &mut ChaCha8Rng) -> Action;
}

/// How long a client whose acquire failed waits before the next try, in nanoseconds.
const RETRY_NS: RangeInclusive<Ns> = 20_000_000..=100_000_000;

fn draw(range: &RangeInclusive<Ns>, rng: &mut ChaCha8Rng) -> Ns {
    if range.start() == range.end() {
        *range.start()
    } else {
        rng.random_range(range.clone())
    }
}

fn draw_lock(locks: u32, rng: &mut ChaCha8Rng) -> u32 {
    if locks == 1 {
        0
    } else {
        rng.random_range(0..locks)
    }
}
