//! Receipts: what was measured of a fault, and whether that proves it.
//!
//! A fault without a receipt did not happen. Nothing is measured in this file; it only judges what
//! the faults measured and puts it in words for the history.

use std::fmt;

use crate::mechanism::proof::CpuSource;

/// What the history keeps of a fault once it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// True when every host's receipt proves that the fault was there.
    pub proven: bool,
    /// When the fault began to be lifted on the first host.
    pub lifted_ns: u64,
    /// The hosts' receipts in words.
    pub words: String,
}

/// What was measured of one host's pause. Truth times throughout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseReceipt {
    /// The host.
    pub host: String,
    /// What stopped it, for instance `cgroup v2 freezer`.
    pub method: String,
    /// How long it was to last, if that was said.
    pub asked_ns: Option<u64>,
    /// Just before the kernel was asked to stop it.
    pub requested_ns: u64,
    /// When every thread was confirmed to have stopped.
    pub stopped_ns: u64,
    /// Just before the kernel was asked to let it go on.
    pub lifted_ns: u64,
    /// When it was confirmed to be running again.
    pub resumed_ns: u64,
    /// Processes that were stopped.
    pub processes: usize,
    /// Threads that were stopped.
    pub threads: usize,
    /// CPU time that all threads together used between the confirmation and the lifting.
    pub cpu_used_ns: u64,
    /// Where the CPU time was read.
    pub cpu_source: CpuSource,
}

impl PauseReceipt {
    /// How long it was stopped for certain.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.lifted_ns.saturating_sub(self.stopped_ns)
    }

    /// True when the measurements prove the pause: no thread used any CPU time, and it lasted at least
    /// nine tenths of what was asked for.
    #[must_use]
    pub fn proven(&self) -> bool {
        self.threads > 0 && self.cpu_used_ns == 0 && self.long_enough()
    }

    /// True when it lasted at least nine tenths of what was asked for.
    fn long_enough(&self) -> bool {
        let asked_ns = self.asked_ns.unwrap_or(0);
        u128::from(self.length_ns()) * 10 >= u128::from(asked_ns) * 9
    }
}

impl fmt::Display for PauseReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} stopped {} and {} within {:.2} ms, for {:.2} ms",
            self.host,
            self.method,
            count(self.processes, "process", "processes"),
            count(self.threads, "thread", "threads"),
            ms(self.stopped_ns.saturating_sub(self.requested_ns)),
            ms(self.length_ns()),
        )?;
        if let Some(asked_ns) = self.asked_ns {
            write!(f, " of {:.2} ms asked", ms(asked_ns))?;
        }
        if self.cpu_used_ns == 0 {
            write!(f, "; no CPU time used ({})", self.cpu_source)?;
        } else {
            let used = ms(self.cpu_used_ns);
            write!(
                f,
                "; NOT PROVEN: {used:.3} ms of CPU time used while stopped ({})",
                self.cpu_source
            )?;
        }
        if !self.long_enough() {
            f.write_str("; NOT PROVEN: shorter than nine tenths of what was asked")?;
        }
        let resumed = ms(self.resumed_ns.saturating_sub(self.lifted_ns));
        write!(f, "; running again within {resumed:.2} ms")
    }
}

/// What was measured of one host's crash. Truth times throughout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashReceipt {
    /// The host.
    pub host: String,
    /// The processes that were killed.
    pub pids: Vec<i32>,
    /// Just before they were killed.
    pub requested_ns: u64,
    /// When all of them were confirmed to be gone.
    pub gone_ns: u64,
    /// How it came back.
    pub comeback: Comeback,
}

/// How a crashed application came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comeback {
    /// It was started again.
    Restarted {
        /// Just before it was started.
        lifted_ns: u64,
        /// When the start was reported.
        restarted_ns: u64,
    },
    /// Applications of this kind are never started again.
    Never {
        /// When that was found.
        lifted_ns: u64,
        /// What the host said.
        why: String,
    },
}

impl CrashReceipt {
    /// True when the measurements prove the crash: there was something to kill, and it was gone.
    #[must_use]
    pub fn proven(&self) -> bool {
        !self.pids.is_empty() && self.gone_ns >= self.requested_ns
    }

    /// When the crash began to be lifted.
    #[must_use]
    pub fn lifted_ns(&self) -> u64 {
        match self.comeback {
            Comeback::Restarted { lifted_ns, .. } | Comeback::Never { lifted_ns, .. } => lifted_ns,
        }
    }
}

impl fmt::Display for CrashReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pids: Vec<String> = self.pids.iter().map(i32::to_string).collect();
        write!(
            f,
            "{}: killed {} ({}), all gone within {:.2} ms",
            self.host,
            count(self.pids.len(), "process", "processes"),
            pids.join(" "),
            ms(self.gone_ns.saturating_sub(self.requested_ns)),
        )?;
        match &self.comeback {
            Comeback::Restarted {
                lifted_ns,
                restarted_ns,
            } => write!(
                f,
                "; started again after {:.2} ms, in {:.2} ms",
                ms(lifted_ns.saturating_sub(self.gone_ns)),
                ms(restarted_ns.saturating_sub(*lifted_ns)),
            ),
            Comeback::Never { why, .. } => write!(f, "; not started again: {why}"),
        }
    }
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause() -> PauseReceipt {
        PauseReceipt {
            host: "c1".to_owned(),
            method: "cgroup v2 freezer".to_owned(),
            asked_ns: Some(1_000_000_000),
            requested_ns: 5_000_000,
            stopped_ns: 5_120_000,
            lifted_ns: 1_005_120_000,
            resumed_ns: 1_005_200_000,
            processes: 1,
            threads: 7,
            cpu_used_ns: 0,
            cpu_source: CpuSource::Schedstat,
        }
    }

    #[test]
    fn a_whole_pause_is_proven_and_says_so() {
        assert!(pause().proven());
        assert_eq!(
            pause().to_string(),
            "c1: cgroup v2 freezer stopped 1 process and 7 threads within 0.12 ms, for 1000.00 ms of \
             1000.00 ms asked; no CPU time used (schedstat); running again within 0.08 ms"
        );
    }

    #[test]
    fn cpu_time_a_short_pause_or_no_thread_disprove_it() {
        let used = PauseReceipt {
            cpu_used_ns: 1,
            ..pause()
        };
        let short = PauseReceipt {
            lifted_ns: 5_120_000 + 899_999_999,
            ..pause()
        };
        let nobody = PauseReceipt {
            threads: 0,
            ..pause()
        };
        assert!(!used.proven() && used.to_string().contains("NOT PROVEN"));
        assert!(!short.proven() && short.to_string().contains("NOT PROVEN"));
        assert!(!nobody.proven());
        let just = PauseReceipt {
            lifted_ns: 5_120_000 + 900_000_000,
            ..pause()
        };
        assert!(just.proven());
    }
}
