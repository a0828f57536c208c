//! After a change of the clock: timers are armed again, and threads that wait are interrupted and make their
//! waits again, with what is left of them by the clock as it is now.
//!
//! What this must not do: end a wait, or take one wait for the rest of another.

use std::fs;
use std::io;
use std::sync::atomic::Ordering;

use super::arch;
use super::supervisor::Supervisor;
use super::timers;
use super::trace;

impl Supervisor<'_> {
    /// If the clock has changed, arms timers again and interrupts the threads that wait.
    pub(super) fn follow_changes(&mut self) {
        let generation = self.shared.generation.load(Ordering::SeqCst);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.lines = self.shared.lock().lines;
        for (pid, process) in &self.processes {
            if process.timers {
                let rearmed = timers::rearm_all(*pid, &self.lines);
                self.count(|tally| match rearmed {
                    Ok(count) => tally.rearmed += count,
                    // The process ended meanwhile, or its timers expire when they would have.
                    Err(_) => tally.missed += u64::from(is_alive(*pid)),
                });
            }
        }
        let waiting = self
            .threads
            .iter()
            .filter(|(tid, thread)| thread.wait.is_some() && may_be_waiting(**tid));
        let waiting: Vec<i32> = waiting.map(|(tid, _)| *tid).collect();
        for tid in waiting {
            self.note_length(tid);
            // One that is gone has nothing to be armed again.
            if trace::interrupt(tid).is_ok() {
                self.interrupted.insert(tid);
            }
        }
    }

    /// Tells the others when no thread waits by an older line any more.
    pub(super) fn note_knowledge(&self) {
        if self.interrupted.is_empty() {
            self.supervised
                .knows
                .store(self.generation, Ordering::SeqCst);
        }
    }

    /// Makes a thread that was interrupted in a timed wait go into that wait again.
    pub(super) fn make_wait_again(
        &mut self,
        tid: i32,
        ended_early: fn(i64) -> bool,
    ) -> io::Result<()> {
        let mut registers = trace::registers(tid)?;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let mut number = registers.call();
        if !arch::may_wait(number) || !ended_early(registers.result()) {
            return Ok(());
        }
        let mut same = thread
            .wait
            .is_some_and(|begun| begun.registers.same_call(&registers));
        if arch::is_restart(number) {
            // The kernel would go on with the timeout that it knows.
            let Some(begun) = &thread.wait else {
                return Ok(());
            };
            number = begun.registers.call();
            same = true;
        }
        registers.call_again(number);
        trace::set_registers(tid, &registers)?;
        // A wait without a timeout passes the filter: what it would be the continuation of is long over.
        thread.again = same;
        self.count(|tally| tally.rearmed += 1);
        Ok(())
    }

    /// Reads how long the wait is to last that a thread is in, while that can still be read.
    fn note_length(&mut self, tid: i32) {
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some(begun) = &mut thread.wait
            && begun.length_ns.is_none()
            && let Some(wait) = arch::wait(&begun.registers)
            && let Some(process) = self.processes.get(&thread.process)
        {
            begun.length_ns = process.length_ns(&wait, &begun.registers);
        }
    }
}

/// Whether a call's result says that a signal or a tracer ended it early: EINTR, or one of the kernel's
/// codes for calls that it will restart (include/linux/errno.h).
pub(super) fn was_interrupted(result: i64) -> bool {
    const RESTARTS: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
    result == -i64::from(libc::EINTR) || RESTARTS.contains(&result)
}

/// The kernel's code for a wait that it goes on with itself, by the timeout that it knows.
pub(super) const RESTART_BLOCK: i64 = -516;

/// Whether a thread waits in a call with a timeout, or may be about to.
fn may_be_waiting(tid: i32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{tid}/syscall")) else {
        return true;
    };
    // A number, or "running".
    let number = text.split_ascii_whitespace().next().unwrap_or_default();
    number.parse().map_or(true, arch::may_wait)
}

fn is_alive(pid: i32) -> bool {
    fs::exists(format!("/proc/{pid}/fdinfo")).unwrap_or(false)
}
