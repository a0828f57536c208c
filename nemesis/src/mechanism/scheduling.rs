//! How the kernel schedules a thread of ours that others wait for.
#![allow(unsafe_code)]

use std::io;

use nix::errno::Errno;

/// How the kernel is to schedule a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheduling {
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
pub(crate) fn schedule(scheduling: Scheduling) -> io::Result<()> {
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
