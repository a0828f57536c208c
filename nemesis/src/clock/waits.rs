//! Timed waits and raw readings of one thread, as its process's clock would have them.
//!
//! A relative timeout becomes what it is in real time; an absolute one becomes the real time at which the
//! process's clock reaches it. The thread's arguments are replaced for the length of the call and put back
//! when it returns, because compilers rely on the kernel's leaving them alone. Timeouts that the kernel
//! would refuse are left for it to refuse.

use std::io;
use std::os::unix::fs::FileExt;

use super::arch::{self, Registers};
use super::calls::{Left, Reading, Timeout, Wait};
use super::inject::PAGE_ADDRESS;
use super::page::is_skewed;
use super::rearm::was_interrupted;
use super::supervisor::{Begun, OnReturn, Process, Supervisor, Thread};
use super::timers;
use super::trace::{self, Resume, clock_ns};

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
/// Parts of a second in a timeval.
const US_PER_S: u64 = 1_000_000;

/// A time as programs write it: seconds, and parts of a second.
type Parts = [u64; 2];

impl Supervisor<'_> {
    /// A thread begins a timed wait, or makes one again.
    pub(super) fn begin_wait(&mut self, tid: i32, mut registers: Registers) -> io::Result<Resume> {
        let before = registers;
        let monotonic = self.lines[libc::CLOCK_MONOTONIC as usize].new;
        let now_ns = monotonic.own(clock_ns(libc::CLOCK_MONOTONIC));
        let (Some(thread), Some(wait)) = (self.threads.get_mut(&tid), arch::wait(&registers))
        else {
            return Ok(Resume::Run(0));
        };
        let Some(process) = self.processes.get(&thread.process) else {
            return Ok(Resume::Run(0));
        };
        let again = std::mem::take(&mut thread.again);
        let earlier = thread
            .wait
            .filter(|begun| again && begun.registers.same_call(&registers));
        let mut begun = earlier.unwrap_or_else(|| Begun {
            at_ns: now_ns,
            length_ns: wait
                .overwrites_timeout(&registers)
                .then(|| process.length_ns(&wait, &registers))
                .flatten(),
            registers,
        });
        let real_ns = match wait.timeout {
            Timeout::Absolute(clock) if is_skewed(clock) => {
                let segment = self.lines[clock as usize].new;
                (!segment.is_true())
                    .then(|| process.read_ns(registers.argument(wait.argument), NS_PER_S))
                    .flatten()
                    .map(|deadline_ns| segment.real(deadline_ns))
            }
            Timeout::Absolute(_) => None,
            _ if earlier.is_none() && monotonic.keeps_lengths() => None,
            _ => {
                begun.length_ns = begun
                    .length_ns
                    .or_else(|| process.length_ns(&wait, &registers));
                let gone_ns = now_ns.saturating_sub(begun.at_ns);
                begun
                    .length_ns
                    .map(|length_ns| monotonic.real_length(length_ns.saturating_sub(gone_ns)))
            }
        };
        thread.wait = Some(begun);
        let rewritten =
            real_ns.is_some_and(|real_ns| process.replace(thread, &wait, &mut registers, real_ns));
        if rewritten {
            let registers = before;
            thread.on_return = Some(OnReturn { registers, wait });
        }
        self.count(|tally| {
            tally.waits += 1;
            tally.rewritten += u64::from(rewritten);
            tally.missed += u64::from(real_ns.is_some() && !rewritten);
        });
        if !rewritten {
            return Ok(Resume::Run(0));
        }
        trace::set_registers(tid, &registers)?;
        Ok(Resume::ToReturn(0))
    }

    /// A thread returns from a call whose arguments were replaced.
    pub(super) fn returning(&mut self, tid: i32) -> io::Result<()> {
        let mut registers = trace::registers(tid)?;
        let rate = self.lines[libc::CLOCK_MONOTONIC as usize].new;
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some(on_return) = thread.on_return.take()
        {
            registers.restore_arguments(&on_return.registers);
            trace::set_registers(tid, &registers)?;
            let interrupted = was_interrupted(registers.result());
            if let Some(process) = self.processes.get(&thread.process) {
                process.tell_left(thread, &on_return, interrupted, |ns| rate.own_length(ns));
            }
            if !interrupted {
                thread.wait = None;
            }
        }
        Ok(())
    }

    /// A thread reads a clock by a system call: it is answered here and the call is not made.
    pub(super) fn answer_reading(
        &mut self,
        tid: i32,
        mut registers: Registers,
    ) -> io::Result<Resume> {
        let process = self
            .threads
            .get(&tid)
            .and_then(|thread| self.processes.get(&thread.process));
        let (Some(process), Some(reading)) = (process, arch::reading(&registers)) else {
            return Ok(Resume::Run(0));
        };
        // The vDSO's own call, made because it cannot read this machine's clock itself, on behalf of the
        // stub: that scales what it returns.
        if process.vdso.contains(registers.instruction()) {
            return Ok(Resume::Run(0));
        }
        let clock = match reading {
            Reading::Timespec(clock, _) => clock,
            Reading::Timeval(_) => libc::CLOCK_REALTIME,
            Reading::Seconds(_) => libc::CLOCK_REALTIME_COARSE,
        };
        if !is_skewed(clock) {
            return Ok(Resume::Run(0));
        }
        let state = self.shared.lock();
        let own_ns = state.lines[clock as usize].own(clock_ns(clock));
        drop(state);
        self.count(|tally| tally.readings += 1);
        let (seconds, rest_ns) = (own_ns / NS_PER_S, own_ns % NS_PER_S);
        let (address, parts, result) = match reading {
            Reading::Timespec(_, address) => (address, [seconds, rest_ns], 0),
            Reading::Timeval(address) => (address, [seconds, rest_ns / NS_PER_US], 0),
            Reading::Seconds(address) => (address, [seconds, 0], seconds),
        };
        let length = if matches!(reading, Reading::Seconds(_)) {
            1
        } else {
            2
        };
        let written = address == 0 || process.write(address, &parts[..length]);
        registers.set_call(-1);
        registers.set_result(if written {
            result.cast_signed()
        } else {
            -i64::from(libc::EFAULT)
        });
        trace::set_registers(tid, &registers)?;
        Ok(Resume::Run(0))
    }

    /// A thread sets a timerfd.
    pub(super) fn set_timer(&mut self, tid: i32, mut registers: Registers) -> io::Result<Resume> {
        const ARGUMENT: usize = 2;
        let before = registers;
        let lines = &self.lines;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(Resume::Run(0));
        };
        let pid = thread.process;
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(Resume::Run(0));
        };
        process.timers = true;
        let absolute = registers.argument(1) as i32 & libc::TFD_TIMER_ABSTIME != 0;
        let clock = absolute
            .then(|| timers::clock_of(pid, registers.argument(0) as i32))
            .flatten()
            .filter(|clock| is_skewed(*clock));
        let segment = lines[clock.unwrap_or(libc::CLOCK_MONOTONIC) as usize].new;
        if segment.is_true() || (!absolute && segment.keeps_lengths()) {
            return Ok(Resume::Run(0));
        }
        let address = registers.argument(ARGUMENT);
        let (Some(interval_ns), Some(value_ns)) = (
            process.read_ns(address, NS_PER_S),
            process.read_ns(address.wrapping_add(16), NS_PER_S),
        ) else {
            return Ok(Resume::Run(0));
        };
        let interval = parts(segment.real_length(interval_ns), NS_PER_S);
        let value_ns = match value_ns {
            // That disarms it.
            0 => 0,
            ns if absolute => segment.real(ns).max(1),
            ns => segment.real_length(ns),
        };
        let value = parts(value_ns, NS_PER_S);
        let words = [interval[0], interval[1], value[0], value[1]];
        let Some(at) = process.put(thread, &words) else {
            self.count(|tally| tally.missed += 1);
            return Ok(Resume::Run(0));
        };
        registers.set_argument(ARGUMENT, at);
        trace::set_registers(tid, &registers)?;
        thread.on_return = Some(OnReturn {
            registers: before,
            wait: Wait {
                argument: ARGUMENT,
                timeout: Timeout::Relative,
                left: Left::Nowhere,
            },
        });
        Ok(Resume::ToReturn(0))
    }
}

impl Process {
    /// A length of time that is a wait's timeout, in nanoseconds, if it is one and the kernel would take it.
    pub(super) fn length_ns(&self, wait: &Wait, registers: &Registers) -> Option<u64> {
        let argument = registers.argument(wait.argument);
        match wait.timeout {
            Timeout::Milliseconds { .. } => {
                let milliseconds = u64::try_from(argument as i32).ok()?;
                Some(milliseconds * NS_PER_MS)
            }
            Timeout::Timeval => self.read_ns(argument, US_PER_S),
            Timeout::Relative => self.read_ns(argument, NS_PER_S),
            Timeout::Absolute(_) => None,
        }
    }

    /// Puts a timeout of that many real nanoseconds in place of a thread's own. False when there is no room.
    fn replace(
        &self,
        thread: &mut Thread,
        wait: &Wait,
        registers: &mut Registers,
        real_ns: u64,
    ) -> bool {
        let unit = match wait.timeout {
            Timeout::Timeval => US_PER_S,
            _ => NS_PER_S,
        };
        let Some(at) = self.put(thread, &parts(real_ns, unit)) else {
            return false;
        };
        registers.set_argument(wait.argument, at);
        if let Timeout::Milliseconds { instead, clear } = wait.timeout {
            registers.set_call(instead);
            clear
                .iter()
                .for_each(|index| registers.set_argument(*index, 0));
        }
        true
    }

    /// Puts words into a thread's slot and returns their address in the process.
    fn put(&self, thread: &mut Thread, words: &[u64]) -> Option<u64> {
        let slot = match thread.slot {
            Some(slot) => slot,
            None => *thread.slot.insert(self.page.take_slot()?),
        };
        Some(PAGE_ADDRESS + self.page.write_slot(slot, words))
    }

    /// Where a call told the time that was left, tells it in the process's own time.
    fn tell_left(
        &self,
        thread: &Thread,
        on_return: &OnReturn,
        interrupted: bool,
        own: impl Fn(u64) -> u64,
    ) {
        let registers = &on_return.registers;
        let unit = match on_return.wait.timeout {
            Timeout::Timeval => US_PER_S,
            _ => NS_PER_S,
        };
        let left = match (on_return.wait.left, thread.slot) {
            (Left::InTimeout, Some(slot)) => {
                let address = registers.argument(on_return.wait.argument);
                Some((address, self.page.read_slot(slot)))
            }
            (Left::WhenInterrupted(index), _) if interrupted => {
                let address = registers.argument(index);
                self.read(address).map(|parts| (address, parts))
            }
            _ => None,
        };
        if let Some((address, left)) = left
            && let Some(left_ns) = nanoseconds(left, unit)
        {
            // Memory that cannot be written was no good to the kernel either.
            let _ = self.write(address, &parts(own(left_ns), unit));
        }
    }

    fn read(&self, address: u64) -> Option<Parts> {
        let mut bytes = [0; 16];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Some([word(0), word(8)])
    }

    /// A time in the process's memory, in nanoseconds, if the kernel would take it.
    fn read_ns(&self, address: u64, unit: u64) -> Option<u64> {
        nanoseconds(self.read(address)?, unit)
    }

    fn write(&self, address: u64, words: &[u64]) -> bool {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.memory.write_all_at(&bytes, address).is_ok()
    }
}

/// Seconds and parts as nanoseconds; a second has `unit` parts. `None` for what the kernel refuses.
fn nanoseconds([seconds, rest]: Parts, unit: u64) -> Option<u64> {
    let valid = i64::try_from(seconds).is_ok() && rest < unit;
    valid.then(|| {
        seconds
            .saturating_mul(NS_PER_S)
            .saturating_add(rest * (NS_PER_S / unit))
            .min(i64::MAX as u64)
    })
}

/// Nanoseconds as seconds and parts, rounded up.
fn parts(ns: u64, unit: u64) -> Parts {
    let part_ns = NS_PER_S / unit;
    let rest = (ns % NS_PER_S).div_ceil(part_ns);
    if rest == unit {
        [ns / NS_PER_S + 1, 0]
    } else {
        [ns / NS_PER_S, rest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_parts_round_up_and_bad_ones_are_left_to_the_kernel() {
        const MICROSECONDS: u64 = 1_000_000;
        assert_eq!(parts(1_999_999_999, NS_PER_S), [1, 999_999_999]);
        assert_eq!(parts(1_999_999_999, MICROSECONDS), [2, 0]);
        assert_eq!(parts(1_000_000_001, MICROSECONDS), [1, 1]);
        assert_eq!(nanoseconds([1, 5], MICROSECONDS), Some(1_000_005_000));
        assert_eq!(nanoseconds([0, NS_PER_S], NS_PER_S), None);
        assert_eq!(nanoseconds([u64::MAX, 0], NS_PER_S), None);
        assert_eq!(nanoseconds([1 << 50, 0], NS_PER_S), Some(i64::MAX as u64));
    }
}
