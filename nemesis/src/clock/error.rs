//! Why a process cannot have a clock of its own.

use std::fs;
use std::io;

/// Why a process cannot have a clock of its own, or has lost it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// The process could not be traced.
    #[error("process {pid} cannot be traced (PTRACE_SEIZE: {answer}); {hint}")]
    Seize {
        /// The process.
        pid: i32,
        /// What the kernel answered.
        answer: String,
        /// What is in the way, and what to do.
        hint: String,
    },
    /// The filter was refused, or the process died before it had one.
    #[error(
        "the new process was not heard from before it executed its program: {answer}; if seccomp was refused, \
         Linux with CONFIG_SECCOMP_FILTER is needed, in Docker: --security-opt seccomp=unconfined"
    )]
    NotStarted {
        /// What was received instead.
        answer: String,
    },
    /// The vDSO is not as expected.
    #[error(
        "the vDSO of process {pid}: expected {expected}, found {found}; this kernel needs a change in \
         nemesis/src/clock/vdso.rs"
    )]
    Vdso {
        /// The process.
        pid: i32,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// It died before it had its clock.
    #[error("process {pid} died before it had its clock")]
    Died {
        /// The process.
        pid: i32,
        /// Its status, as waitpid(2) has it.
        status: i32,
    },
    /// A step of the patch failed.
    #[error("process {pid}: {doing}: {answer}")]
    Patch {
        /// The process.
        pid: i32,
        /// What was done.
        doing: String,
        /// What the kernel answered.
        answer: String,
    },
    /// This machine cannot do it at all.
    #[error("{0}")]
    Unsupported(String),
    /// Its supervisor is gone.
    #[error("the clock of {host} is of no use any more: {why}")]
    Broken {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Something of ours could not be had.
    #[error("{doing}: {answer}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What the kernel answered.
        answer: String,
    },
}

impl ClockError {
    /// A process that could not be traced.
    pub(super) fn seize(pid: i32, error: &io::Error) -> Self {
        Self::Seize {
            pid,
            answer: error.to_string(),
            hint: trace_hint(pid),
        }
    }

    /// A step of the patch that failed.
    pub(super) fn patch(pid: i32, doing: impl Into<String>, error: &io::Error) -> Self {
        Self::Patch {
            pid,
            doing: doing.into(),
            answer: error.to_string(),
        }
    }

    /// Something of ours that could not be had.
    pub(super) fn system(doing: &'static str, error: &io::Error) -> Self {
        Self::System {
            doing,
            answer: error.to_string(),
        }
    }
}

/// Why tracing is usually refused, and what to do.
fn trace_hint(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .and_then(|number| number.trim().parse::<i32>().ok())
        .unwrap_or(0);
    if tracer != 0 {
        return format!(
            "process {tracer} traces it already; do not run fencepost under a debugger or strace -f"
        );
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match yama.trim() {
        "2" | "3" => format!(
            "kernel.yama.ptrace_scope is {}, expected 0 or 1; as root: sysctl kernel.yama.ptrace_scope=1",
            yama.trim()
        ),
        // Whoever traces it from outside of this PID namespace has no number here.
        _ => "in a container, allow it: --cap-add SYS_PTRACE; nothing that runs under strace -f or a \
            debugger can have a clock of its own"
            .to_owned(),
    }
}
