//! timerfds that are armed while the clock changes: armed again, so that they expire when they should.
//!
//! The kernel knows what is left of each (timerfd_create(2), /proc/PID/fdinfo), so nothing is remembered: the
//! real time that is left becomes own time by the old line, and real time again by the new one.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::page::{CLOCKS, is_skewed};
use super::segment::Line;
use super::trace::clock_ns;

const NS_PER_S: u64 = 1_000_000_000;

/// What the kernel says of a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Armed {
    clock: libc::clockid_t,
    /// Expirations that were not read yet.
    ticks: u64,
    flags: i32,
    /// Real time until it expires; 0 if it is not armed.
    left_ns: u64,
    interval_ns: u64,
}

/// Arms every timer of a process again. Returns how many there were.
pub(super) fn rearm_all(pid: i32, lines: &[Line; CLOCKS]) -> io::Result<u64> {
    let mut armed = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_timer = fs::read_link(entry.path())
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes() == b"anon_inode:[timerfd]");
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let (true, Some(fd)) = (is_timer, number) else {
            continue;
        };
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
        if let Some(timer) = parse(&info).filter(|timer| timer.left_ns > 0) {
            set(&duplicate(pid, fd)?, &timer, lines)?;
            armed += 1;
        }
    }
    Ok(armed)
}

/// The clock of a timer of a process.
pub(super) fn clock_of(pid: i32, fd: i32) -> Option<libc::clockid_t> {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    parse(&info).map(|timer| timer.clock)
}

fn parse(info: &str) -> Option<Armed> {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim())
    };
    let pair = |name| {
        let inner = field(name)?.trim_matches(|c| c == '(' || c == ')');
        let (seconds, ns) = inner.split_once(", ")?;
        Some(seconds.parse::<u64>().ok()? * NS_PER_S + ns.parse::<u64>().ok()?)
    };
    Some(Armed {
        clock: field("clockid")?.parse().ok()?,
        ticks: field("ticks")?.parse().ok()?,
        flags: i32::from_str_radix(field("settime flags")?, 8).ok()?,
        left_ns: pair("it_value")?,
        interval_ns: pair("it_interval")?,
    })
}

/// Sets a timer anew.
fn set(timer: &OwnedFd, armed: &Armed, lines: &[Line; CLOCKS]) -> io::Result<()> {
    let absolute = armed.flags & libc::TFD_TIMER_ABSTIME != 0 && is_skewed(armed.clock);
    // A length of time does not change when the wall clock steps.
    let clock = if absolute {
        armed.clock
    } else {
        libc::CLOCK_MONOTONIC
    };
    let Line { old, new, .. } = lines[clock as usize];
    let now_ns = clock_ns(clock);
    let expires_ns = new.real(old.own(now_ns + armed.left_ns));
    let value_ns = match (armed.ticks, absolute) {
        // Setting it forgets what was not read: the next expiration stands for those.
        (1.., true) => now_ns,
        (1.., false) => 1,
        (0, true) => expires_ns.max(1),
        (0, false) => expires_ns.saturating_sub(now_ns).max(1),
    };
    let interval_ns = new.real_length(old.own_length(armed.interval_ns));
    let spec = libc::itimerspec {
        it_interval: timespec(interval_ns),
        it_value: timespec(value_ns),
    };
    let flags = if absolute { armed.flags } else { 0 };
    // SAFETY: the kernel reads one itimerspec.
    let done = unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), flags, &raw const spec, ptr::null_mut())
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn timespec(ns: u64) -> libc::timespec {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut spec: libc::timespec = unsafe { mem::zeroed() };
    spec.tv_sec = (ns / NS_PER_S) as i64;
    spec.tv_nsec = (ns % NS_PER_S) as i64;
    spec
}

/// A descriptor of ours for what a process's descriptor stands for (pidfd_getfd(2)).
fn duplicate(pid: i32, fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; each call returns a new descriptor that is taken once, or -1.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if process < 0 {
            return Err(io::Error::last_os_error());
        }
        let process = OwnedFd::from_raw_fd(process as i32);
        let copy = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(copy as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_timer_is_understood() {
        let info = "pos:\t0\nflags:\t02004002\nmnt_id:\t15\nino:\t1057\nclockid: 1\nticks: 3\n\
                    settime flags: 01\nit_value: (0, 499998123)\nit_interval: (1, 5)\n";
        let expected = Armed {
            clock: 1,
            ticks: 3,
            flags: libc::TFD_TIMER_ABSTIME,
            left_ns: 499_998_123,
            interval_ns: 1_000_000_005,
        };
        assert_eq!(parse(info), Some(expected));
        assert_eq!(parse("pos: 0"), None);
    }
}
