//! Small safe faces of system calls that neither std nor nix offer safely.
//!
//! Starting processes is in `spawn.rs`; no policy belongs in here.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Takes an inherited descriptor into ownership. Fails if it is not open.
///
/// Only for numbers that the parent passed to this process by agreement, each at most once: the inits
/// call it at their very start, before they own anything else.
pub(super) fn adopt(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: fcntl on any number is harmless; it fails with EBADF if the number is not open.
    Errno::result(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: the descriptor is open (checked above) and, by this function's contract, nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes a descriptor that the kernel has just handed out in an SCM_RIGHTS message into ownership.
pub(super) fn received(fd: RawFd) -> OwnedFd {
    // SAFETY: recvmsg created this descriptor for this message; the caller takes each one exactly once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sends a signal to the process behind a pidfd, which, unlike a number, is never reused.
pub(super) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    // SAFETY: a plain system call; the null siginfo means "as kill(2) would fill it".
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal as libc::c_int,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// Index of a network interface of this process's network namespace.
pub(super) fn interface_index(name: &str) -> Result<u32, Errno> {
    let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Errno::last()),
        index => Ok(index),
    }
}

/// Takes an exclusive lock on an open file without waiting; false if somebody holds it. It is let go
/// when the last descriptor of this opening is closed.
pub(super) fn try_lock(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    // SAFETY: a plain system call on an open descriptor.
    match Errno::result(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(Errno::EWOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Reaps any one ended child and returns its raw wait status; `None` when `block` is false and none has
/// ended. (nix's waitpid loses a child that a real-time signal ended: it reaps it and returns EINVAL.)
pub(super) fn wait_any(block: bool) -> Result<Option<(Pid, i32)>, Errno> {
    let flags = if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    loop {
        // SAFETY: the status is written to a local integer.
        match Errno::result(unsafe { libc::waitpid(-1, &raw mut status, flags) }) {
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((Pid::from_raw(pid), status))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
