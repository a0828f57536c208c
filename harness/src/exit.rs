//! Exit codes of `fencepost`: a contract with CI jobs. Documented in the README and in `--help`.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every expectation was met.
    Met = 0,
    /// An expectation was not met.
    NotMet = 1,
    /// The command line or a scenario file is wrong.
    Usage = 2,
    /// The set-up failed: no server, no sandbox, no ready cluster.
    SetUp = 3,
    /// Nothing can be concluded: unproven faults, a workload that barely ran, a history cut short.
    Inconclusive = 4,
    /// The user interrupted; faults were healed, and what was recorded is stored and can be checked.
    Interrupted = 130,
}

impl Exit {
    /// Text for `--help`.
    pub const HELP: &str = "Exit codes:
  0    every expectation was met
  1    an expectation was not met
  2    the command line or a scenario file is wrong
  3    the set-up failed (no server, no sandbox, no ready cluster)
  4    inconclusive: unproven faults, too few terms, or a history cut short
  130  interrupted: healed, stored, still checkable";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
