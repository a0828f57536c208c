//! A safe face of the ptrace(2) and waitpid(2) calls that the supervisor makes. No policy.
//!
//! ptrace belongs to a thread: everything in here acts on threads that the calling thread has seized.
//! libc's calls are used where nix's types have no room for real-time signals or PTRACE_LISTEN.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::ptr;

use super::arch::Registers;

/// What a traced thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It exited or was killed; the status is as waitpid(2) has it.
    Gone(i32),
    /// It reached a call that the filter stops.
    Seccomp,
    /// It returns from a call ([`Resume::ToReturn`]).
    Return,
    /// It has executed a program.
    Exec,
    /// It made a process or a thread.
    Child,
    /// It stops because it is new or was interrupted, or, with a signal, because its process is stopped
    /// by that signal.
    Stop(Option<i32>),
    /// It is about to receive a signal.
    Signal(i32),
    /// Any other event.
    Other,
}

/// How a stopped thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// It runs, and receives this signal unless it is 0.
    Run(i32),
    /// It runs until it returns from its call, and receives this signal unless it is 0.
    ToReturn(i32),
    /// It stays stopped by its signal until that is lifted.
    Listen,
    /// It makes one step.
    Step,
}

/// Makes the calling thread the tracer of a process. The process is killed when the tracer dies.
pub(super) fn seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACESECCOMP;
    request(libc::PTRACE_SEIZE, pid, 0, options as usize)
}

/// Stops a running thread soon.
pub(super) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread go on. That it is gone meanwhile is no error: its end will be reported.
pub(super) fn resume(tid: i32, how: Resume) -> io::Result<()> {
    let (what, signal) = match how {
        Resume::Run(signal) => (libc::PTRACE_CONT, signal),
        Resume::ToReturn(signal) => (libc::PTRACE_SYSCALL, signal),
        Resume::Listen => (libc::PTRACE_LISTEN, 0),
        Resume::Step => (libc::PTRACE_SINGLESTEP, 0),
    };
    match request(what, tid, 0, signal as usize) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

/// The number that comes with the last event: of the new process or thread.
pub(super) fn message(tid: i32) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut message).addr())?;
    Ok(message)
}

/// The registers of a stopped thread.
pub(super) fn registers(tid: i32) -> io::Result<Registers> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut registers: libc::user_regs_struct = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers).addr())?;
    Ok(Registers(registers))
}

/// Sets the registers of a stopped thread.
pub(super) fn set_registers(tid: i32, registers: &Registers) -> io::Result<()> {
    request(
        libc::PTRACE_SETREGS,
        tid,
        0,
        ptr::from_ref(&registers.0).addr(),
    )
}

fn request(what: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests used in this file read or write exactly the memory behind `data` that their
    // callers pass, which has the size that the kernel expects, or none.
    let done = unsafe { libc::ptrace(what, tid, address, data) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits for the next event of any thread that the calling thread traces; or of that one only.
///
/// # Errors
/// EINTR when a signal came instead; ECHILD when none is left.
pub(super) fn wait(only: Option<i32>) -> io::Result<(i32, Event)> {
    let mut status = 0;
    // SAFETY: the kernel writes one integer.
    let tid = unsafe {
        libc::waitpid(
            only.unwrap_or(-1),
            &raw mut status,
            // Not what other threads of ours have started or trace.
            libc::__WALL | libc::__WNOTHREAD,
        )
    };
    if tid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((tid, event(status)))
}

fn event(status: i32) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Gone(status);
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => Event::Seccomp,
        libc::PTRACE_EVENT_EXEC => Event::Exec,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            Event::Child
        }
        libc::PTRACE_EVENT_STOP => {
            let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
            Event::Stop(stops.contains(&signal).then_some(signal))
        }
        0 if signal == libc::SIGTRAP | 0x80 => Event::Return,
        0 => Event::Signal(signal),
        _ => Event::Other,
    }
}

/// Reads a clock of ours, in nanoseconds.
pub(super) fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
