//! Programs to skew, and truth time.

use std::process::Command;

/// Truth time. The tests themselves are not skewed.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// Our own test program, to be started with that subcommand.
pub(crate) fn subject(subcommand: &str) -> &'static mut Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clock-subject"));
    command.arg(subcommand);
    Box::leak(Box::new(command))
}
