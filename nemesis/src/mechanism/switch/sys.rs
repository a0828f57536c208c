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

/// How the kernel is to schedule the switch's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// As others, but in short slices, so that it runs soon after it is woken (Linux 6.12 or later).
    ShortSlices,
    /// Before all others (needs a privilege). Halves the throughput under saturation, so only for delays.
    RealTime,
}

/// `struct sched_attr` (sched_setattr(2)), first version and utilisation clamps.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

/// Length of a short slice, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Changes the scheduling of the calling thread.
pub(super) fn schedule(scheduling: Scheduling) -> io::Result<()> {
    let (policy, priority, runtime) = match scheduling {
        Scheduling::ShortSlices => (libc::SCHED_OTHER, 0, SLICE_NS),
        Scheduling::RealTime => (libc::SCHED_FIFO, 1, 0),
    };
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: policy.unsigned_abs(),
        flags: 0,
        nice: 0,
        priority,
        runtime,
        deadline: 0,
        period: 0,
        util_min: 0,
        util_max: 0,
    };
    // SAFETY: the structure says its own size and outlives the call; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}
