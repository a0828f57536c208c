//! The seccomp filter that stops a skewed process's timed waits at its supervisor, and its installation.
//!
//! A filter cannot follow pointers, so it lets pass what has no timeout and stops what has one. Calls that
//! are not in the table are allowed by their number alone, which the kernel remembers: they cost nothing.
//! One reading of the clock passes always: the one that bears [`TRUTH_MARKER`].
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::ptr;

use super::arch::{ARCHITECTURE, CALLS};
use super::calls::Trap;
use super::page::{CLOCKS, SKEWED};

/// Third argument of the clock_gettime(2) calls that no clock fault reaches. The kernel looks at two
/// arguments only, so a process that wants true time puts this number in the third and makes the system
/// call itself. Its 64 bits are too many to be there by accident.
pub const TRUTH_MARKER: u64 = 0x7472_7565_2074_696d;

/// Offsets in `struct seccomp_data`.
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;

/// Byte offset of the low half of an argument (little endian).
const fn low(argument: usize) -> u32 {
    16 + 8 * argument as u32
}

/// Byte offset of the high half.
const fn high(argument: usize) -> u32 {
    low(argument) + 4
}

/// What the parent tells the child once it is its tracer.
pub(super) const GO: u8 = b'g';
/// What it tells the child if it cannot be.
pub(super) const NO: u8 = b'n';

/// The filter and what installs it, in memory that exists before the fork.
#[derive(Clone, Debug)]
pub struct Tether {
    program: Vec<libc::sock_filter>,
}

impl Default for Tether {
    fn default() -> Self {
        Self::new()
    }
}

impl Tether {
    /// Builds the filter.
    #[must_use]
    pub fn new() -> Self {
        let mut program = vec![
            load(OFFSET_ARCH),
            jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
            answer(libc::SECCOMP_RET_ALLOW),
            load(OFFSET_NR),
        ];
        for (number, trap, _) in CALLS {
            let body = body(*trap);
            let over = u8::try_from(body.len()).expect("a short body");
            program.push(jump(libc::BPF_JEQ, *number as u32, 0, over));
            program.extend(body);
        }
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        Self { program }
    }

    /// Waits until a supervisor has seized the calling thread, and installs the filter in it.
    ///
    /// # Errors
    /// The errno of the call that failed; ECANCELED when there is no supervisor, whose side knows why.
    ///
    /// # Safety
    /// To be called by a process fresh from clone or fork that will execute a program: without a tracer
    /// every call that the filter stops fails with ENOSYS. It makes async-signal-safe calls only and
    /// allocates nothing.
    pub unsafe fn install(&self, socket: RawFd) -> Result<(), i32> {
        let mut byte = [b'?'];
        // SAFETY: system calls on numbers and on memory that outlives them.
        unsafe {
            // The kernel tells the other side who wrote this (SCM_CREDENTIALS, unix(7)).
            if libc::send(socket, byte.as_ptr().cast(), 1, libc::MSG_NOSIGNAL) != 1 {
                return Err(*libc::__errno_location());
            }
            match libc::recv(socket, byte.as_mut_ptr().cast(), 1, 0) {
                1 if byte[0] == GO => {}
                -1 => return Err(*libc::__errno_location()),
                _ => return Err(libc::ECANCELED),
            }
            // Without it an ordinary user may not install filters. It has no effect on a program
            // that is not set-user-ID.
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(*libc::__errno_location());
            }
            let program = libc::sock_fprog {
                len: self.program.len() as u16,
                filter: self.program.as_ptr().cast_mut(),
            };
            let done = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                ptr::from_ref(&program),
            );
            if done != 0 {
                return Err(*libc::__errno_location());
            }
        }
        Ok(())
    }
}

/// The instructions for one call. Every path through them ends in an answer.
fn body(trap: Trap) -> Vec<libc::sock_filter> {
    let stop = answer(libc::SECCOMP_RET_TRACE);
    let pass = answer(libc::SECCOMP_RET_ALLOW);
    let equal = libc::BPF_JEQ;
    match trap {
        Trap::Always => vec![stop],
        Trap::Positive(argument) => vec![
            load(low(argument)),
            jump(equal, 0, 2, 0),
            jump(libc::BPF_JGE, 0x8000_0000, 1, 0),
            stop,
            pass,
        ],
        Trap::NotNull(argument) => vec![
            load(low(argument)),
            jump(equal, 0, 0, 2),
            load(high(argument)),
            jump(equal, 0, 1, 0),
            stop,
            pass,
        ],
        Trap::Futex => vec![
            load(low(3)),
            jump(equal, 0, 0, 2),
            load(high(3)),
            jump(equal, 0, 8, 0),
            load(low(1)),
            instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0x7f),
            jump(equal, libc::FUTEX_WAIT as u32, 4, 0),
            jump(equal, libc::FUTEX_WAIT_BITSET as u32, 3, 0),
            jump(equal, libc::FUTEX_LOCK_PI as u32, 2, 0),
            jump(equal, libc::FUTEX_WAIT_REQUEUE_PI as u32, 1, 0),
            jump(equal, libc::FUTEX_LOCK_PI2 as u32, 0, 1),
            stop,
            pass,
        ],
        Trap::Clock => {
            let mut program = vec![
                load(low(2)),
                jump(equal, TRUTH_MARKER as u32, 0, 3),
                load(high(2)),
                jump(equal, (TRUTH_MARKER >> 32) as u32, 0, 1),
                pass,
                load(low(0)),
            ];
            let clocks: Vec<u32> = (0..CLOCKS as u32)
                .filter(|clock| SKEWED >> clock & 1 == 1)
                .collect();
            for (index, clock) in clocks.iter().enumerate() {
                // Over the comparisons that follow and the "pass".
                let over = (clocks.len() - index) as u8;
                program.push(jump(equal, *clock, over, 0));
            }
            program.extend([pass, stop]);
            program
        }
        Trap::SocketTimeout => {
            let mut program = vec![
                load(low(1)),
                jump(equal, libc::SOL_SOCKET as u32, 0, 5),
                load(low(2)),
            ];
            let options = [
                libc::SO_RCVTIMEO as u32,
                libc::SO_SNDTIMEO as u32,
                // The same with 64-bit seconds: asm-generic/socket.h.
                66,
                67,
            ];
            for (index, option) in options.iter().enumerate() {
                program.push(jump(equal, *option, (options.len() - index) as u8, 0));
            }
            program.extend([pass, stop]);
            program
        }
    }
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn jump(comparison: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, yes, no, value)
}

fn answer(value: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn instruction(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}
