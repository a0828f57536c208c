//! The words in which an architecture says which system calls read time or wait, and how.
//!
//! Types only, the same on every architecture; the tables are in `x86_64`.

use super::arch::Registers;

/// What a call's timeout is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    /// A number of milliseconds; the call is replaced by one that takes a timespec, so that a scaled
    /// millisecond is not rounded to a whole one.
    Milliseconds {
        /// The call to make instead.
        instead: i64,
        /// Arguments beyond the timeout that the other call has and this one has not: made zero.
        clear: &'static [usize],
    },
    /// A timeval, relative.
    Timeval,
    /// A timespec, relative.
    Relative,
    /// A timespec on that clock, absolute.
    Absolute(libc::clockid_t),
}

/// Where a call leaves the time that was left when it returned early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nowhere.
    Nowhere,
    /// In place of the timeout.
    InTimeout,
    /// Where the argument with this index points, if it does, and only when it was interrupted.
    WhenInterrupted(usize),
}

/// A call that waits with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// Index of the argument that is, or points to, the timeout.
    pub(super) argument: usize,
    /// Its form.
    pub(super) timeout: Timeout,
    /// Time left.
    pub(super) left: Left,
}

impl Wait {
    /// Whether the kernel may write to where the timeout is when the call ends early.
    pub(super) fn overwrites_timeout(&self, registers: &Registers) -> bool {
        match self.left {
            Left::Nowhere => false,
            Left::InTimeout => true,
            Left::WhenInterrupted(index) => registers.argument(index) != 0,
        }
    }
}

/// When a system call reaches the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trap {
    /// When this argument, a signed 32-bit number, is above zero.
    Positive(usize),
    /// When this argument is not null.
    NotNull(usize),
    /// When it is a futex operation that waits, with a timeout.
    Futex,
    /// When the clock in argument 0 is a skewed one, unless argument 2 is the truth marker.
    Clock,
    /// When arguments 1 and 2 set a socket's timeouts.
    SocketTimeout,
    /// Always.
    Always,
}

/// Why a trapped call is trapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It waits with a timeout.
    Wait,
    /// It reads a clock without the vDSO.
    Read,
    /// It sets a timerfd.
    Timer,
    /// It measures time in a way that is not skewed: to be told to the user.
    Gap,
}

/// A clock that a call reads without the vDSO, and where and in which form it puts the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// A timespec at that address.
    Timespec(libc::clockid_t, u64),
    /// A timeval at that address.
    Timeval(u64),
    /// Seconds, returned, and at that address unless it is null.
    Seconds(u64),
}
