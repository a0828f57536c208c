//! Puts the stub and its parameter page into a process that has just executed a program.
//!
//! The process is stopped before its first instruction. It is made to carry out a few system calls
//! through the vDSO's own system call instruction, with every register restored afterwards. What this must
//! not do: touch a process that already runs a program.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use super::arch::{self, CODE_BYTES, Registers};
use super::error::ClockError;
use super::page::{PAGE_BYTES, Page};
use super::trace::{self, Event, Resume};
use super::vdso::Vdso;

/// Where the stub lies in every skewed process, with its page right behind it: far below where the kernel
/// puts anything, and beyond what Go, the JVM and allocators ask for.
pub(super) const STUB_ADDRESS: u64 = 0x2000_0000_0000;
/// Where the page lies.
pub(super) const PAGE_ADDRESS: u64 = STUB_ADDRESS + CODE_BYTES as u64;

/// Seal for memory files that are never executed; older kernels (before Linux 6.3) do not know it.
const MFD_NOEXEC_SEAL: u64 = 8;

/// What was put into a process.
#[derive(Debug)]
pub(super) struct Patched {
    /// Its memory.
    pub(super) memory: File,
    /// Its page.
    pub(super) page: Page,
    /// Its vDSO.
    pub(super) vdso: Vdso,
}

/// Addresses of the stub's entries in a process.
pub(super) fn entries() -> [u64; 3] {
    arch::entries().map(|offset| STUB_ADDRESS + offset)
}

/// Patches a process at its exec event. Its clocks are true until its page is published.
pub(super) fn patch(pid: i32) -> Result<Patched, ClockError> {
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .map_err(|error| ClockError::patch(pid, "open its memory", &error))?;
    let vdso = Vdso::find(pid, &memory)?;
    let mut calls = Calls::begin(pid, vdso.call)?;
    let page = map(pid, &mut calls, &vdso);
    calls.end()?;
    let page = page?;
    memory
        .write_all_at(arch::stub(), STUB_ADDRESS)
        .map_err(|error| ClockError::patch(pid, "write the stub", &error))?;
    page.set_originals(vdso.originals);
    vdso.lead_to(&memory, entries())
        .map_err(|error| ClockError::patch(pid, "change its vDSO", &error))?;
    if !vdso.leads_to(&memory, entries()) {
        let error = io::Error::other("it reads as before");
        return Err(ClockError::patch(pid, "change its vDSO", &error));
    }
    Ok(Patched { memory, page, vdso })
}

/// Makes the process map both, and maps the page here as well.
fn map(pid: i32, calls: &mut Calls, vdso: &Vdso) -> Result<Page, ClockError> {
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let shared = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let data = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let none = u64::MAX;
    let cloexec = u64::from(libc::MFD_CLOEXEC);
    let create = |calls: &mut Calls, flags| calls.call(libc::SYS_memfd_create, &[vdso.text, flags]);
    let file = match create(calls, cloexec | MFD_NOEXEC_SEAL)? {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create(calls, cloexec)?,
        other => other,
    };
    let file = file.map_err(|error| ClockError::patch(pid, "memfd_create in it", &error))?;
    let steps: [(&str, i64, &[u64]); 3] = [
        (
            "ftruncate in it",
            libc::SYS_ftruncate,
            &[file, PAGE_BYTES as u64],
        ),
        (
            "mmap of the stub in it",
            libc::SYS_mmap,
            &[STUB_ADDRESS, CODE_BYTES as u64, code, private, none, 0],
        ),
        (
            "mmap of the page in it",
            libc::SYS_mmap,
            &[PAGE_ADDRESS, PAGE_BYTES as u64, data, shared, file, 0],
        ),
    ];
    for (doing, number, arguments) in steps {
        let result = calls.call(number, arguments)?;
        let at = result.map_err(|error| ClockError::patch(pid, doing, &error))?;
        // Kernels without MAP_FIXED_NOREPLACE take the address as a mere wish.
        if number == libc::SYS_mmap && at != arguments[0] {
            let error = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(ClockError::patch(pid, doing, &error));
        }
    }
    let page = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/fd/{file}"))
        .and_then(|file| Page::map(&file))
        .map_err(|error| ClockError::patch(pid, "map its page", &error));
    calls
        .call(libc::SYS_close, &[file])?
        .map_err(|error| ClockError::patch(pid, "close in it", &error))?;
    page
}

/// System calls that a stopped process makes for us.
struct Calls {
    pid: i32,
    /// Address of a system call instruction.
    instruction: u64,
    before: Registers,
    /// Signals that came meanwhile.
    signals: Vec<i32>,
}

impl Calls {
    fn begin(pid: i32, instruction: u64) -> Result<Self, ClockError> {
        let mut calls = Self {
            pid,
            instruction,
            before: registers(pid)?,
            signals: Vec::new(),
        };
        // At its exec event the process is still in execve, whose way out overwrites the result register.
        // One step ends that, before any instruction of the program.
        calls.step()?;
        calls.before = registers(pid)?;
        Ok(calls)
    }

    /// One call, and what it returned.
    fn call(&mut self, number: i64, arguments: &[u64]) -> Result<io::Result<u64>, ClockError> {
        let mut prepared = self.before;
        prepared.prepare_call(self.instruction, number, arguments);
        set_registers(self.pid, &prepared)?;
        self.step()?;
        let after = registers(self.pid)?;
        let expected = self.instruction + arch::SYSCALL_INSTRUCTION.len() as u64;
        if after.instruction() != expected {
            return Err(ClockError::Patch {
                pid: self.pid,
                doing: format!("make system call {number} in it"),
                answer: format!(
                    "expected it at {expected:#x} afterwards, found it at {:#x}",
                    after.instruction()
                ),
            });
        }
        let result = after.result();
        Ok(if (-4095..0).contains(&result) {
            Err(io::Error::from_raw_os_error(-result as i32))
        } else {
            Ok(result.cast_unsigned())
        })
    }

    fn step(&mut self) -> Result<(), ClockError> {
        let failed = |error: &io::Error| ClockError::patch(self.pid, "step it", error);
        trace::resume(self.pid, Resume::Step).map_err(|error| failed(&error))?;
        loop {
            match trace::wait(Some(self.pid)) {
                Ok((_, Event::Signal(libc::SIGTRAP))) => return Ok(()),
                Ok((pid, Event::Gone(status))) => return Err(ClockError::Died { pid, status }),
                Ok((_, event)) => {
                    if let Event::Signal(signal) | Event::Stop(Some(signal)) = event {
                        self.signals.push(signal);
                    }
                    // It stopped for that instead of after its step.
                    trace::resume(self.pid, Resume::Step).map_err(|error| failed(&error))?;
                }
                // The bell: it is still on its way, and must not be sent on another step.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    /// Gives it its registers back, and the signals that came meanwhile.
    fn end(self) -> Result<(), ClockError> {
        set_registers(self.pid, &self.before)?;
        for signal in self.signals {
            let again = nix::sys::signal::Signal::try_from(signal)
                .map(|signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), signal));
            // A real-time signal or a process that is gone: there is nobody to give it to.
            let _ = again;
        }
        Ok(())
    }
}

fn registers(pid: i32) -> Result<Registers, ClockError> {
    trace::registers(pid).map_err(|error| ClockError::patch(pid, "read its registers", &error))
}

fn set_registers(pid: i32, registers: &Registers) -> Result<(), ClockError> {
    trace::set_registers(pid, registers)
        .map_err(|error| ClockError::patch(pid, "set its registers", &error))
}
