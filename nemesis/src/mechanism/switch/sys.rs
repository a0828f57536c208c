//! Small safe faces of the system calls that the switch needs and nix does not offer.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent};

/// Waits for events with a timeout of nanoseconds (epoll_wait's are milliseconds); `None` waits for good.
pub(super) fn epoll_wait(
    epoll: &Epoll,
    events: &mut [EpollEvent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let most = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: EpollEvent is a transparent epoll_event; the buffer has `most` of them, the timeout is null
    // or lives until the call returns, and no signal mask is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            most,
            timeout,
            std::ptr::null::<libc::sigset_t>(),
            0,
        )
    };
    match Errno::result(result) {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(Errno::EINTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads one packet; `None` when there is none now.
pub(super) fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match nix::unistd::read(fd, buffer) {
        Ok(len) => Ok(Some(len)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
