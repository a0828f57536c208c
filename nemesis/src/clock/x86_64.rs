//! All that is particular to x86-64: the stub's machine code, registers, and numbers of system calls.
//!
//! Another architecture is another file with the same items. For aarch64 that would be: a stub that keeps
//! x28 (Go's `g`) and begins with BTI pads, `__kernel_clock_gettime` in place of `__vdso_clock_gettime`,
//! PTRACE_GETREGSET in place of GETREGS, NT_ARM_SYSTEM_CALL to change a call's number, and a table
//! without the calls that only older architectures have (epoll_wait, poll, select, time).
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::slice;

use super::calls::{Left, Reading, Timeout, Trap, Wait, Why};
use super::page::{LINES_OFFSET, ORIGINALS_OFFSET, SEQUENCE_OFFSET, SKEWED};

/// Name of the architecture in the data that a seccomp filter sees (linux/audit.h). Calls of another one,
/// such as 32-bit calls, pass.
pub(super) const ARCHITECTURE: u32 = 0xC000_003E;

/// The system call instruction.
pub(super) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];

/// Bytes of the code mapping in front of the parameter page. The stub addresses the page relative to itself.
pub(super) const CODE_BYTES: usize = 4096;

// The stub, copied as bytes into each skewed process. It uses integer registers only, little stack, no
// relocation, and writes its result last. In System V order: edi is the clock, rsi the timespec.
global_asm!(
    ".pushsection .rodata.fencepost_clock_stub,\"a\",@progbits",
    ".balign 64",
    ".globl fencepost_clock_stub",
    ".hidden fencepost_clock_stub",
    "fencepost_clock_stub:",
    ".set .Lfencepost_page, fencepost_clock_stub + {code}",

    // int clock_gettime(clockid_t clock, struct timespec *time)
    ".globl fencepost_clock_stub_gettime",
    ".hidden fencepost_clock_stub_gettime",
    "fencepost_clock_stub_gettime:",
    "endbr64",
    "cmp edi, 11",
    "ja 8f",
    "mov eax, {skewed}",
    "bt eax, edi",
    "jnc 8f",
    "push rbx",                      // sequence number
    "push r12",                      // where the result goes
    "push r13",                      // the clock
    "sub rsp, 16",                   // what the original returns; the stack is aligned for its call
    "mov r12, rsi",
    "mov r13d, edi",
    "2:",
    "mov ebx, dword ptr [rip + .Lfencepost_page + {sequence}]",
    "test bl, 1",
    "jnz 6f",
    "mov edi, r13d",
    "mov rsi, rsp",
    "call qword ptr [rip + .Lfencepost_page + {originals}]",
    "test eax, eax",
    "jnz 7f",
    "imul rax, qword ptr [rsp], 1000000000",
    "add rax, qword ptr [rsp + 8]",  // real time
    "mov ecx, r13d",
    "shl ecx, 6",
    "lea rdx, [rip + .Lfencepost_page + {lines}]",
    "add rdx, rcx",                  // the clock's line
    "lea rcx, [rdx + 8]",            // its older segment
    "lea rsi, [rdx + 32]",           // its newer one
    "cmp rax, qword ptr [rdx]",
    "cmovae rcx, rsi",
    "sub rax, qword ptr [rcx]",
    "imul qword ptr [rcx + 16]",     // rdx:rax = real time since the base × rate
    "shrd rax, rdx, 32",
    "add rax, qword ptr [rcx + 8]",  // own time
    "lfence",                        // the time was read before the sequence number is looked at again
    "cmp ebx, dword ptr [rip + .Lfencepost_page + {sequence}]",
    "jne 2b",
    // Seconds: rax / 10^9 = ((rax >> 9) × 19342813113834067) >> 75 (Granlund & Montgomery, PLDI 1994).
    "mov rcx, rax",
    "shr rax, 9",
    "mov rdx, 19342813113834067",
    "mul rdx",
    "shr rdx, 11",
    "imul rax, rdx, 1000000000",
    "sub rcx, rax",
    "mov qword ptr [r12], rdx",
    "mov qword ptr [r12 + 8], rcx",
    "xor eax, eax",
    "7:",
    "add rsp, 16",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    "6:",                            // a change is being written: let its writer run
    "pause",
    "mov eax, 24",                   // sched_yield
    "syscall",
    "jmp 2b",
    "8:",                            // a clock that is not skewed
    "jmp qword ptr [rip + .Lfencepost_page + {originals}]",

    // int gettimeofday(struct timeval *time, struct timezone *zone)
    ".globl fencepost_clock_stub_timeofday",
    ".hidden fencepost_clock_stub_timeofday",
    "fencepost_clock_stub_timeofday:",
    "endbr64",
    "push rbx",
    "push r12",
    "sub rsp, 24",
    "mov rbx, rdi",
    "test rsi, rsi",
    "jz 2f",
    "mov rdi, rsp",                  // only the original knows the zone
    "call qword ptr [rip + .Lfencepost_page + {originals} + 8]",
    "2:",
    "test rbx, rbx",
    "jz 3f",
    "xor edi, edi",
    "mov rsi, rsp",
    "call fencepost_clock_stub_gettime",
    "test eax, eax",
    "jnz 4f",
    "mov rax, qword ptr [rsp]",
    "mov qword ptr [rbx], rax",
    "mov eax, dword ptr [rsp + 8]",
    "imul rax, rax, 274877907",      // / 1000, exact below 2^32
    "shr rax, 38",
    "mov qword ptr [rbx + 8], rax",
    "3:",
    "xor eax, eax",
    "4:",
    "add rsp, 24",
    "pop r12",
    "pop rbx",
    "ret",

    // time_t time(time_t *time)
    ".globl fencepost_clock_stub_time",
    ".hidden fencepost_clock_stub_time",
    "fencepost_clock_stub_time:",
    "endbr64",
    "push rbx",
    "sub rsp, 16",
    "mov rbx, rdi",
    "mov edi, 5",                    // CLOCK_REALTIME_COARSE, as the original
    "mov rsi, rsp",
    "call fencepost_clock_stub_gettime",
    "mov rax, qword ptr [rsp]",
    "test rbx, rbx",
    "jz 2f",
    "mov qword ptr [rbx], rax",
    "2:",
    "add rsp, 16",
    "pop rbx",
    "ret",
    ".globl fencepost_clock_stub_end",
    ".hidden fencepost_clock_stub_end",
    "fencepost_clock_stub_end:",
    ".popsection",
    code = const CODE_BYTES,
    skewed = const SKEWED,
    sequence = const SEQUENCE_OFFSET,
    originals = const ORIGINALS_OFFSET,
    lines = const LINES_OFFSET,
);

unsafe extern "C" {
    safe static fencepost_clock_stub: u8;
    safe static fencepost_clock_stub_gettime: u8;
    safe static fencepost_clock_stub_timeofday: u8;
    safe static fencepost_clock_stub_time: u8;
    safe static fencepost_clock_stub_end: u8;
}

/// The stub's machine code.
pub(super) fn stub() -> &'static [u8] {
    let begin = &raw const fencepost_clock_stub;
    let length = (&raw const fencepost_clock_stub_end).addr() - begin.addr();
    // SAFETY: the assembler laid these bytes out between the two symbols, and nothing writes to them.
    unsafe { slice::from_raw_parts(begin, length) }
}

/// Where the stub's entries are, counted from its beginning: clock_gettime, gettimeofday, time.
pub(super) fn entries() -> [u64; 3] {
    let begin = (&raw const fencepost_clock_stub).addr();
    [
        &raw const fencepost_clock_stub_gettime,
        &raw const fencepost_clock_stub_timeofday,
        &raw const fencepost_clock_stub_time,
    ]
    .map(|entry| (entry.addr() - begin) as u64)
}

/// The names under which the vDSO exports each of the three.
pub(super) const SYMBOLS: [[&str; 2]; 3] = [
    ["__vdso_clock_gettime", "clock_gettime"],
    ["__vdso_gettimeofday", "gettimeofday"],
    ["__vdso_time", "time"],
];

/// The registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers(pub(super) libc::user_regs_struct);

impl Registers {
    /// Number of the system call that the thread is in; negative when it is in none.
    pub(super) fn call(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    /// Makes the thread carry out another call, or none with -1. Only at a call's entry.
    pub(super) fn set_call(&mut self, number: i64) {
        self.0.orig_rax = number.cast_unsigned();
    }

    /// What the call returns.
    pub(super) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Sets what the call returns.
    pub(super) fn set_result(&mut self, result: i64) {
        self.0.rax = result.cast_unsigned();
    }

    /// The argument with that index, from 0 to 5.
    pub(super) fn argument(&self, index: usize) -> u64 {
        let r = &self.0;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9][index]
    }

    /// Sets the argument with that index.
    pub(super) fn set_argument(&mut self, index: usize, value: u64) {
        let r = &mut self.0;
        *[
            &mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.r10, &mut r.r8, &mut r.r9,
        ][index] = value;
    }

    /// Takes the arguments and the number of the call from other registers.
    pub(super) fn restore_arguments(&mut self, from: &Self) {
        for index in 0..6 {
            self.set_argument(index, from.argument(index));
        }
        self.0.orig_rax = from.0.orig_rax;
    }

    /// Where the thread is.
    pub(super) fn instruction(&self) -> u64 {
        self.0.rip
    }

    /// Makes the thread, which has just returned from a call, make that call again.
    pub(super) fn call_again(&mut self, number: i64) {
        self.0.rax = number.cast_unsigned();
        self.0.rip -= SYSCALL_INSTRUCTION.len() as u64;
        // Otherwise the kernel would apply its own restart to it too.
        self.0.orig_rax = u64::MAX;
    }

    /// Prepares a call by the instruction at that address. It is not taken for one of the thread's own.
    pub(super) fn prepare_call(&mut self, instruction: u64, number: i64, arguments: &[u64]) {
        self.0.rip = instruction;
        self.0.rax = number.cast_unsigned();
        self.0.orig_rax = u64::MAX;
        for (index, argument) in arguments.iter().enumerate() {
            self.set_argument(index, *argument);
        }
    }

    /// Whether this is the same call, made from the same place with the same arguments.
    pub(super) fn same_call(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.rip == b.rip
            && a.rsp == b.rsp
            && a.orig_rax == b.orig_rax
            && (0..6).all(|index| self.argument(index) == other.argument(index))
    }
}

/// The calls that reach the supervisor.
pub(super) const CALLS: &[(libc::c_long, Trap, Why)] = &[
    (libc::SYS_futex, Trap::Futex, Why::Wait),
    (libc::SYS_epoll_wait, Trap::Positive(3), Why::Wait),
    (libc::SYS_epoll_pwait, Trap::Positive(3), Why::Wait),
    (libc::SYS_epoll_pwait2, Trap::NotNull(3), Why::Wait),
    (libc::SYS_poll, Trap::Positive(2), Why::Wait),
    (libc::SYS_ppoll, Trap::NotNull(2), Why::Wait),
    (libc::SYS_select, Trap::NotNull(4), Why::Wait),
    (libc::SYS_pselect6, Trap::NotNull(4), Why::Wait),
    (libc::SYS_nanosleep, Trap::NotNull(0), Why::Wait),
    (libc::SYS_clock_nanosleep, Trap::NotNull(2), Why::Wait),
    (libc::SYS_rt_sigtimedwait, Trap::NotNull(2), Why::Wait),
    (libc::SYS_semtimedop, Trap::NotNull(3), Why::Wait),
    (libc::SYS_recvmmsg, Trap::NotNull(4), Why::Wait),
    (libc::SYS_io_getevents, Trap::NotNull(4), Why::Wait),
    (libc::SYS_mq_timedsend, Trap::NotNull(4), Why::Wait),
    (libc::SYS_mq_timedreceive, Trap::NotNull(4), Why::Wait),
    (libc::SYS_futex_waitv, Trap::NotNull(3), Why::Wait),
    (SYS_FUTEX_WAIT, Trap::NotNull(4), Why::Wait),
    (libc::SYS_timerfd_settime, Trap::NotNull(2), Why::Timer),
    (libc::SYS_clock_gettime, Trap::Clock, Why::Read),
    (libc::SYS_gettimeofday, Trap::Always, Why::Read),
    (libc::SYS_time, Trap::Always, Why::Read),
    (libc::SYS_io_uring_setup, Trap::Always, Why::Gap),
    (libc::SYS_setitimer, Trap::NotNull(1), Why::Gap),
    (libc::SYS_timer_settime, Trap::NotNull(2), Why::Gap),
    (libc::SYS_alarm, Trap::Positive(0), Why::Gap),
    (libc::SYS_setsockopt, Trap::SocketTimeout, Why::Gap),
];

/// futex_wait(2), Linux 6.7; not in every C library's headers yet.
const SYS_FUTEX_WAIT: libc::c_long = 455;
/// restart_syscall(2): the kernel's own continuation of an interrupted wait.
const RESTART: i64 = libc::SYS_restart_syscall;

/// The name of a gap for receipts.
pub(super) fn gap_name(number: i64) -> &'static str {
    match number {
        libc::SYS_io_uring_setup => "io_uring",
        libc::SYS_setitimer => "setitimer",
        libc::SYS_timer_settime => "timer_settime",
        libc::SYS_alarm => "alarm",
        _ => "SO_RCVTIMEO/SO_SNDTIMEO",
    }
}

/// Why the filter stops a call.
pub(super) fn why(number: i64) -> Option<Why> {
    let entry = CALLS.iter().find(|(call, _, _)| *call == number);
    entry.map(|(_, _, why)| *why)
}

/// Whether a thread may wait in this call for a time that a change of its clock changes too.
pub(super) fn may_wait(number: i64) -> bool {
    number == RESTART || why(number) == Some(Why::Wait)
}

/// Whether this is the kernel's own continuation of an earlier call.
pub(super) fn is_restart(number: i64) -> bool {
    number == RESTART
}

/// The wait that a call is, if it is one.
pub(super) fn wait(registers: &Registers) -> Option<Wait> {
    let of = |argument, timeout, left| {
        Some(Wait {
            argument,
            timeout,
            left,
        })
    };
    let flags = registers.argument(1) as i32;
    match registers.call() {
        libc::SYS_futex => of(3, futex_timeout(flags), Left::Nowhere),
        libc::SYS_futex_waitv => {
            let clock = registers.argument(4) as libc::clockid_t;
            of(3, Timeout::Absolute(clock), Left::Nowhere)
        }
        SYS_FUTEX_WAIT => {
            let clock = registers.argument(5) as libc::clockid_t;
            of(4, Timeout::Absolute(clock), Left::Nowhere)
        }
        number @ (libc::SYS_epoll_wait | libc::SYS_epoll_pwait) => of(
            3,
            Timeout::Milliseconds {
                instead: libc::SYS_epoll_pwait2,
                clear: if number == libc::SYS_epoll_wait {
                    &[4, 5]
                } else {
                    &[]
                },
            },
            Left::Nowhere,
        ),
        libc::SYS_poll => of(
            2,
            Timeout::Milliseconds {
                instead: libc::SYS_ppoll,
                clear: &[3, 4],
            },
            Left::Nowhere,
        ),
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => of(3, Timeout::Relative, Left::Nowhere),
        libc::SYS_rt_sigtimedwait => of(2, Timeout::Relative, Left::Nowhere),
        libc::SYS_io_getevents => of(4, Timeout::Relative, Left::Nowhere),
        libc::SYS_ppoll => of(2, Timeout::Relative, Left::InTimeout),
        libc::SYS_pselect6 | libc::SYS_recvmmsg => of(4, Timeout::Relative, Left::InTimeout),
        libc::SYS_select => of(4, Timeout::Timeval, Left::InTimeout),
        libc::SYS_mq_timedsend | libc::SYS_mq_timedreceive => {
            of(4, Timeout::Absolute(libc::CLOCK_REALTIME), Left::Nowhere)
        }
        libc::SYS_nanosleep => of(0, Timeout::Relative, Left::WhenInterrupted(1)),
        libc::SYS_clock_nanosleep if flags & libc::TIMER_ABSTIME != 0 => {
            let clock = registers.argument(0) as libc::clockid_t;
            of(2, Timeout::Absolute(clock), Left::Nowhere)
        }
        libc::SYS_clock_nanosleep => of(2, Timeout::Relative, Left::WhenInterrupted(3)),
        _ => None,
    }
}

/// What the timeout of a futex operation is (futex(2)): relative only for the plain wait.
fn futex_timeout(operation: i32) -> Timeout {
    let command = operation & libc::FUTEX_CMD_MASK;
    if command == libc::FUTEX_WAIT {
        return Timeout::Relative;
    }
    let wall = operation & libc::FUTEX_CLOCK_REALTIME != 0 || command == libc::FUTEX_LOCK_PI;
    Timeout::Absolute(if wall {
        libc::CLOCK_REALTIME
    } else {
        libc::CLOCK_MONOTONIC
    })
}

/// The reading that a call is, if it is one.
pub(super) fn reading(registers: &Registers) -> Option<Reading> {
    match registers.call() {
        libc::SYS_clock_gettime => Some(Reading::Timespec(
            registers.argument(0) as libc::clockid_t,
            registers.argument(1),
        )),
        libc::SYS_gettimeofday => Some(Reading::Timeval(registers.argument(0))),
        libc::SYS_time => Some(Reading::Seconds(registers.argument(0))),
        _ => None,
    }
}
