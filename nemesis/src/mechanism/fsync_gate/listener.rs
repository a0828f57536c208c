//! The kernel's side of the gate: calls that wait, and answers to them (seccomp_unotify(2)).
//!
//! A safe face of three ioctls on a listener; no policy.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The kernel's cookie. It becomes invalid when the thread dies or handles a signal.
    pub(super) id: u64,
    /// The calling thread, as we see it.
    pub(super) thread: u32,
    /// Number of the system call.
    pub(super) number: libc::c_long,
}

/// What the kernel is told about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Carry it out.
    Continue,
    /// Return 0 without doing anything.
    Nothing,
    /// Return this errno without doing anything.
    Fail(i32),
}

/// Set by SECCOMP_IOCTL_NOTIF_SET_FLAGS (Linux 6.6): the answer wakes the caller on our CPU.
const SYNC_WAKE_UP: u64 = 1;

/// The descriptor that the filter's installation returned.
#[derive(Debug)]
pub(super) struct Listener(OwnedFd);

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: a plain ioctl with a number. Older kernels refuse it, which costs some microseconds.
        let _ = unsafe {
            libc::ioctl(
                descriptor.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
        Self(descriptor)
    }

    /// The next call; `None` when the caller has gone between the poll and now.
    pub(super) fn receive(&self) -> io::Result<Option<Call>> {
        // SAFETY: all zeroes is a valid value of this plain structure, and what the kernel asks for.
        let mut notification: libc::seccomp_notif = unsafe { mem::zeroed() };
        // SAFETY: the kernel fills in a structure of the size that the ioctl's number states.
        let done = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                ptr::from_mut(&mut notification),
            )
        };
        if done == 0 {
            return Ok(Some(Call {
                id: notification.id,
                thread: notification.pid,
                number: libc::c_long::from(notification.data.nr),
            }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => Ok(None),
            _ => Err(error),
        }
    }

    /// Answers a call; false when it no longer waits, because its thread died or handles a signal.
    pub(super) fn answer(&self, id: u64, verdict: Verdict) -> io::Result<bool> {
        let (error, flags) = match verdict {
            Verdict::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Verdict::Nothing => (0, 0),
            Verdict::Fail(errno) => (-errno, 0),
        };
        let response = libc::seccomp_notif_resp {
            id,
            val: 0,
            error,
            flags,
        };
        // SAFETY: the kernel reads a structure of the size that the ioctl's number states.
        let done = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                ptr::from_ref(&response),
            )
        };
        if done == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(false),
            _ => Err(error),
        }
    }

    /// True while the call waits for its answer.
    pub(super) fn waits(&self, id: u64) -> bool {
        // SAFETY: the kernel reads one 64-bit number.
        unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                ptr::from_ref(&id),
            ) == 0
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
