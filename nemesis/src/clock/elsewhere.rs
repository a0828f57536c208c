//! A clock of its own, on architectures that have no `x86_64.rs` of theirs yet: it is never to be had, and
//! says so. The same items as in `mod.rs`, so that everything else compiles.
//!
//! What is missing is one file: the stub's machine code, the registers, and the table of calls. See the
//! head of `x86_64.rs`.

use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};

pub mod canary {
    //! There is nothing to live through.

    use std::process::ExitCode;

    use super::{ClockError, HostClock, missing};
    use crate::Now;

    /// The subcommand of an executable that is to run [`main`].
    pub const SUBCOMMAND: &str = "clock-canary";

    /// Nobody starts it here.
    #[must_use]
    pub fn main() -> ExitCode {
        ExitCode::FAILURE
    }

    /// A wait by the canary's own clock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Nap {
        pub began_ns: u64,
        pub ended_ns: u64,
        pub asked_ns: u64,
    }

    /// What the canary tells.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub enum Sample {
        Read {
            before_ns: u64,
            monotonic_ns: u64,
            after_ns: u64,
            wall_ahead_ns: i64,
        },
        Slept(Nap),
        Waited(Nap),
    }

    /// A sample, and when its line was heard.
    #[derive(Clone, Copy, Debug)]
    #[allow(missing_docs)]
    pub struct Heard {
        pub sample: Sample,
        pub heard_ns: u64,
    }

    /// A running canary; there is none.
    #[derive(Debug)]
    pub enum Canary {}

    impl Canary {
        /// Fails.
        ///
        /// # Errors
        /// Always.
        pub fn start(_: &HostClock, _: Now) -> Result<Self, ClockError> {
            Err(missing())
        }

        /// Nothing.
        #[must_use]
        pub fn between(&self, _: u64, _: u64) -> Vec<Heard> {
            match *self {}
        }
    }
}

// Its reasons are those of the architectures that have it.
#[allow(dead_code)]
#[path = "error.rs"]
mod error;
#[path = "tally.rs"]
mod tally;

pub use error::ClockError;
pub use tally::{NOT_SKEWED, Tally};

/// Third argument of the clock_gettime(2) calls that no clock fault reaches.
pub const TRUTH_MARKER: u64 = 0x7472_7565_2074_696d;

/// Slowest and fastest rate.
pub const RATES: std::ops::RangeInclusive<f64> = 0.1..=10.0;

fn missing() -> ClockError {
    ClockError::Unsupported(format!(
        "expected x86-64, found {}: its registers, system calls and stub are to be written \
         (nemesis/src/clock/x86_64.rs says what)",
        std::env::consts::ARCH
    ))
}

/// Installs nothing.
#[derive(Clone, Debug, Default)]
pub struct Tether;

impl Tether {
    /// Makes it.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Fails.
    ///
    /// # Errors
    /// ENOSYS.
    ///
    /// # Safety
    /// None is needed; the signature is that of the architectures that have it.
    #[allow(unsafe_code)]
    pub unsafe fn install(&self, _: RawFd) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }
}

/// A launch under way; there is none.
#[derive(Debug)]
pub enum Launch {}

impl Launch {
    /// Never.
    ///
    /// # Errors
    /// Never.
    pub fn confirm(self) -> Result<(), ClockError> {
        match self {}
    }
}

/// The clock of one host: true.
#[derive(Clone, Debug)]
pub struct HostClock;

#[allow(clippy::unused_self)]
impl HostClock {
    /// Makes it.
    #[must_use]
    pub fn new(_: &str) -> Self {
        Self
    }

    /// The same.
    #[must_use]
    pub fn with_canary(self, _: PathBuf) -> Self {
        self
    }

    /// All of them.
    #[must_use]
    pub fn strangers(&self, pids: &[i32]) -> Vec<i32> {
        pids.to_vec()
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn set_rate(&self, _: f64) -> Result<u64, ClockError> {
        Err(missing())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn step_wall(&self, _: i64) -> Result<u64, ClockError> {
        Err(missing())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn correct_wall(&self) -> Result<u64, ClockError> {
        Err(missing())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn heal(&self) -> Result<u64, ClockError> {
        Err(missing())
    }

    /// The same time.
    #[must_use]
    pub fn monotonic_at(&self, truth_ns: u64) -> u64 {
        truth_ns
    }

    /// Nothing.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally::default()
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn check(&self) -> Result<(), ClockError> {
        Err(missing())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn prepare(&self) -> Result<(Launch, OwnedFd), ClockError> {
        Err(missing())
    }

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn spawn(&self, _: &mut Command) -> Result<Clocked, ClockError> {
        Err(missing())
    }
}

/// A process that lives by a clock; there is none.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Clocked {
    pub pid: i32,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
}

impl Clocked {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

pub mod launch {
    //! As on the architectures that have it.

    pub use super::{Clocked, Launch};
}
