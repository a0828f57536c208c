//! What both init processes need of signals and children: signals as a descriptor, reaping, ends.
//!
//! An init is single-threaded and blocks its signals: the kernel discards unblocked default signals to a
//! PID 1 from inside its namespace, but queues blocked ones, and signalfd(2) reads those in its poll loop.

use std::fmt;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid};
use serde::{Deserialize, Serialize};

use super::error::{Failure, Step};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signo) => match Signal::try_from(signo) {
                Ok(signal) => write!(f, "was ended by {signal}"),
                Err(_) => write!(f, "was ended by signal {signo}"),
            },
        }
    }
}

/// Blocks `signals` in this (only) thread and opens a descriptor that reads them, non-blocking.
pub(super) fn signal_fd(signals: &[Signal]) -> Result<SignalFd, Failure> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block()
        .map_err(|e| Failure::new(Step::Other, "block signals", e))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(|e| Failure::new(Step::Other, "open a signalfd", e))
}

/// Takes the next signal from the descriptor, if there is one.
pub(super) fn next_signal(signals: &SignalFd) -> Option<Signal> {
    let info = signals.read_signal().ok().flatten()?;
    Signal::try_from(info.ssi_signo as i32).ok()
}

/// Reaps one ended child. `block` waits for one; otherwise it returns `None` when none has ended.
/// `Err(ECHILD)` means that there is no child at all.
pub(super) fn reap(block: bool) -> Result<Option<(Pid, End)>, Errno> {
    let Some((pid, status)) = super::syscalls::wait_any(block)? else {
        return Ok(None);
    };
    let end = if libc::WIFEXITED(status) {
        End::Exited(libc::WEXITSTATUS(status))
    } else {
        End::Signalled(libc::WTERMSIG(status))
    };
    Ok(Some((pid, end)))
}

/// Signals every process of this PID namespace except this one. The kernel walks them under one lock, so
/// no process can fork its way out. True if there was one. Refused unless this process is PID 1: outside
/// of a namespace of its own the same call would reach every process of the machine.
pub(super) fn signal_all(signal: Signal) -> Result<bool, Errno> {
    if getpid() != Pid::from_raw(1) {
        return Err(Errno::EPERM);
    }
    match kill(Pid::from_raw(-1), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Kills every other process of this PID namespace and returns when all are reaped, each with its end.
pub(super) fn kill_and_reap_all(mut reaped: impl FnMut(Pid, End)) -> Result<(), Errno> {
    loop {
        signal_all(Signal::SIGKILL)?;
        match reap(true) {
            Ok(Some((pid, end))) => reaped(pid, end),
            Ok(None) => {}
            Err(Errno::ECHILD) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
