//! The truth clock: host `CLOCK_MONOTONIC`, read by a raw system call.
//!
//! A clock fault replaces what a process sees through the vDSO, and answers its system calls too, except
//! those that bear [`MARKER`] in their third argument, which the kernel does not look at.
//! Everything that a client *believes* about time must use [`std::time::Instant`] instead: that is
//! the clock a fault is meant to reach.
#![allow(unsafe_code)]

use checkers::history::Ns;

/// What tells a truth stamp from a process's own reading. The harness asserts that it is the one that
/// clock faults let pass. Workers in other languages that read the truth clock must pass it as well.
pub const MARKER: u64 = 0x7472_7565_2074_696d;

/// Truth time now, in nanoseconds.
#[must_use]
pub fn now_ns() -> Ns {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec to the pointer, which is valid for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_clock_gettime,
            libc::CLOCK_MONOTONIC,
            &raw mut time,
            MARKER,
        )
    };
    assert_eq!(result, 0, "CLOCK_MONOTONIC is always readable");
    #[allow(clippy::cast_sign_loss)]
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    ns
}

#[cfg(test)]
mod tests {
    use super::now_ns;

    #[test]
    fn agrees_with_the_clock_of_the_standard_library() {
        let (own, truth) = (std::time::Instant::now(), now_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (own, truth) = (
            own.elapsed().as_nanos() as i128,
            i128::from(now_ns() - truth),
        );
        assert!(
            truth >= 20_000_000,
            "slept 20 ms, the truth clock moved {truth} ns"
        );
        assert!(
            (own - truth).abs() < 1_000_000_000,
            "own clock {own} ns, truth clock {truth} ns"
        );
    }
}
