//! The seccomp filter that makes the kernel ask us about every call that syncs, and its installation.
//!
//! Built before a process is cloned, installed by the clone itself just before it executes its program
//! (seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER). The filter is inherited by everything that the
//! program starts and cannot be removed. Nothing in here decides what becomes of a call.
#![allow(unsafe_code)]

use std::mem;
use std::os::fd::RawFd;
use std::ptr;

/// The calls that reach the gate, with their names for receipts.
pub(super) const CALLS: [(libc::c_long, &str); 5] = [
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync_file_range, "sync_file_range"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_syncfs, "syncfs"),
];

/// Name of the architecture in the data that a filter sees (linux/audit.h). A call of another one, such
/// as a 32-bit call on x86-64, is let through.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
/// As above.
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data`.
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;

/// Load the architecture, compare, load the number, one comparison a call, allow, ask.
const LENGTH: usize = 3 + CALLS.len() + 2;

/// The filter, in memory that exists before the clone.
#[derive(Debug)]
pub struct Filter {
    program: [libc::sock_filter; LENGTH],
}

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// Builds it.
    #[must_use]
    pub fn new() -> Self {
        let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
        let equal = |value, yes, no| {
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
        };
        let answer = |value| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value);
        let mut program = [answer(libc::SECCOMP_RET_ALLOW); LENGTH];
        let calls = CALLS.len() as u8;
        program[0] = load(OFFSET_ARCH);
        // Another architecture: to the "allow" behind the comparisons.
        program[1] = equal(ARCHITECTURE, 0, calls + 1);
        program[2] = load(OFFSET_NR);
        for (index, (number, _)) in CALLS.iter().enumerate() {
            // To the "ask" at the end: over the comparisons that follow and the "allow".
            program[3 + index] = equal(*number as u32, calls - index as u8, 0);
        }
        program[LENGTH - 1] = answer(libc::SECCOMP_RET_USER_NOTIF);
        Self { program }
    }

    /// Installs the filter in the calling thread and sends its listener over a Unix socket.
    ///
    /// # Errors
    /// The errno of the call that failed.
    ///
    /// # Safety
    /// To be called by a process fresh from clone or fork that will execute a program: the filter
    /// cannot be removed, and whoever it is installed in waits forever in a sync until somebody
    /// answers. It makes async-signal-safe calls only and allocates nothing.
    pub unsafe fn install_and_send(&self, socket: RawFd) -> Result<(), i32> {
        // SAFETY: system calls on numbers, and on the program, which outlives the call and which the
        // kernel copies.
        unsafe {
            // Without it an ordinary user may not install filters. It has no effect on a program
            // that is not set-user-ID.
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(*libc::__errno_location());
            }
            let program = libc::sock_fprog {
                len: LENGTH as u16,
                filter: self.program.as_ptr().cast_mut(),
            };
            let listener = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                ptr::from_ref(&program),
            );
            if listener < 0 {
                return Err(*libc::__errno_location());
            }
            // The kernel made it close-on-exec, so the program never has it.
            send_descriptor(socket, listener as RawFd)
        }
    }
}

fn instruction(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    }
}

/// Room for a control message with one descriptor, aligned as `cmsghdr` has to be.
#[repr(C)]
struct ControlMessage {
    header: libc::cmsghdr,
    descriptor: RawFd,
    _padding: RawFd,
}

/// Sends a descriptor (SCM_RIGHTS, unix(7)) with one byte of data. Allocates nothing.
///
/// # Safety
/// Both must be open descriptors.
unsafe fn send_descriptor(socket: RawFd, descriptor: RawFd) -> Result<(), i32> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    // SAFETY: all zeroes is a valid value of these plain structures, and the lengths given to the kernel
    // are those of the buffers, which live until the call returns.
    unsafe {
        let mut control: ControlMessage = mem::zeroed();
        control.header.cmsg_level = libc::SOL_SOCKET;
        control.header.cmsg_type = libc::SCM_RIGHTS;
        control.header.cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        control.descriptor = descriptor;
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = ptr::from_mut(&mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        if libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) < 0 {
            return Err(*libc::__errno_location());
        }
    }
    Ok(())
}
