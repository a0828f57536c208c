//! A clock of its own for one host's processes: its rate and its offset, for Go, JVM and C alike.
//!
//! Two halves, and both are needed. What a process *reads*: at every exec the symbols of its vDSO are made
//! to lead to a stub that scales what the kernel's own functions return (`x86_64`, `page`, `vdso`,
//! `inject`). How long it *waits*: a seccomp filter stops timed waits at a supervisor that traces the
//! process and replaces their timeouts (`filter`, `supervisor`, `waits`, `timers`); waits in flight
//! are made again when the clock changes (`rearm`). [`canary`] proves the result on a process whose code we know.
//!
//! All wall and monotonic clocks run at the same rate from the same moment; CPU times are true. Monotonic
//! time never goes backwards, whatever is changed: healing sets the rate to 1 and keeps what was gained;
//! only the wall clock steps back.
//!
//! # What does not follow the clock
//! io_uring timeouts, SO_RCVTIMEO and SO_SNDTIMEO, setitimer, alarm and timer_settime (these are detected and
//! told in the receipt), TCP's own timers, file times, /proc/uptime, what is left of a timerfd when asked,
//! 32-bit programs, and programs that read the processor's counter themselves: valkey from 9.1 on and
//! redis built with USE_PROCESSOR_CLOCK do where /proc/cpuinfo says `constant_tsc`.
//!
//! What this must not do: touch a process that was not launched for it, or leave one unsupervised. If the
//! supervisor dies, its processes die with it (PTRACE_O_EXITKILL).

#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
mod bell;
mod calls;
pub mod canary;
mod error;
mod filter;
mod inject;
pub mod launch;
mod page;
mod rearm;
mod segment;
mod shared;
mod supervisor;
mod tally;
mod timers;
mod trace;
mod vdso;
mod waits;

use std::path::PathBuf;
use std::sync::Arc;

pub use error::ClockError;
pub use filter::{TRUTH_MARKER, Tether};
pub use launch::Launch;
pub use tally::{NOT_SKEWED, Tally};

use shared::{Change, Shared};

/// Slowest and fastest rate. Beyond, timeouts of real programs become shorter than what interrupting
/// them costs, or longer than any trial.
pub const RATES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// The clock of one host. It outlives the host's processes: one that is launched later lives by the clock
/// as it is then.
#[derive(Clone, Debug)]
pub struct HostClock {
    shared: Arc<Shared>,
    /// The executable whose subcommand is the canary.
    canary: PathBuf,
}

impl HostClock {
    /// The clock of that host, true. Its canaries are this executable with the subcommand
    /// [`canary::SUBCOMMAND`].
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            shared: Arc::new(Shared::new(host)),
            canary: "/proc/self/exe".into(),
        }
    }

    /// The same clock, with canaries that are another executable with that subcommand.
    #[must_use]
    pub fn with_canary(self, canary: PathBuf) -> Self {
        Self { canary, ..self }
    }

    /// Those of these processes that do not live by this clock.
    #[must_use]
    pub fn strangers(&self, pids: &[i32]) -> Vec<i32> {
        let state = self.shared.lock();
        let strangers = pids.iter().filter(|pid| !state.processes.contains(pid));
        strangers.copied().collect()
    }

    /// Sets the rate of all clocks; they go on from where they are. Returns when that was, in truth time.
    /// Every wait in flight follows before this returns.
    ///
    /// # Errors
    /// Why the clock is of no use any more, or a rate that is not one of [`RATES`].
    pub fn set_rate(&self, rate: f64) -> Result<u64, ClockError> {
        if !RATES.contains(&rate) {
            return Err(ClockError::Unsupported(format!(
                "expected a clock rate from {} to {}, found {rate}",
                RATES.start(),
                RATES.end()
            )));
        }
        self.shared.change(Change::Rate(rate))
    }

    /// Makes the wall clock step. Returns when that was, in truth time.
    ///
    /// # Errors
    /// Why the clock is of no use any more.
    pub fn step_wall(&self, by_ns: i64) -> Result<u64, ClockError> {
        self.shared.change(Change::Step(by_ns))
    }

    /// Makes the wall clock true again; its rate stays. Returns when that was, in truth time.
    ///
    /// # Errors
    /// Why the clock is of no use any more.
    pub fn correct_wall(&self) -> Result<u64, ClockError> {
        self.shared.change(Change::Wall)
    }

    /// Lets all clocks run at rate 1. The wall clock is true again; the monotonic clocks keep what they
    /// gained, because they may never go back. Returns when that was, in truth time.
    ///
    /// # Errors
    /// Why the clock is of no use any more.
    pub fn heal(&self) -> Result<u64, ClockError> {
        self.shared.change(Change::Heal)
    }

    /// The monotonic time that the host's processes should read at that truth time.
    #[must_use]
    pub fn monotonic_at(&self, truth_ns: u64) -> u64 {
        self.shared.monotonic_at(truth_ns)
    }

    /// What was done to its processes so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.lock().tally.clone()
    }

    /// Says whether it still works.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), ClockError> {
        self.shared.check()
    }
}
