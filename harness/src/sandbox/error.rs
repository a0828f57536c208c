//! What can go wrong in the sandbox, and what the user can do about it.
//!
//! A failed system call becomes a [`Failure`], which can travel from an init process to the one that
//! asked. The advice is looked up from the step and the errno in one place, [`advice`]: nowhere else.

use std::fmt;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// Why the sandbox could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Failure),
    /// No directory can take the scratch file system.
    #[error(
        "found no directory to mount the scratch file system over (it must be short, because socket paths \
         are): {tried}. Create an empty /srv, or move the results and binaries out of these directories"
    )]
    NoScratch {
        /// The candidates, each with the reason against it.
        tried: String,
    },
    /// An init process ended or its socket broke.
    #[error(
        "the init process of host {host} is gone (while: {doing}); something outside of fencepost killed it, \
         or memory ran out (see `dmesg`)"
    )]
    HostLost {
        /// The host.
        host: String,
        /// What was asked of it.
        doing: String,
    },
    /// An init process did not answer in time.
    #[error(
        "host {host} did not answer within {waited_ms} ms (while: {doing}); a process of it may hang in the \
         kernel (look for state D in `ps`), or the machine is overloaded"
    )]
    HostSilent {
        /// The host.
        host: String,
        /// What was asked of it.
        doing: String,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The network between the hosts could not be made.
    #[error("{0}")]
    Network(String),
    /// A message between controller and init could not be understood: both are the same binary, so this is a bug.
    #[error("bug in fencepost: {doing}: {problem}")]
    Protocol {
        /// What was being done.
        doing: String,
        /// What was wrong.
        problem: String,
    },
    /// An argument that cannot work.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// Which argument.
        what: String,
        /// What would be right.
        expected: String,
        /// What was given.
        found: String,
    },
}

/// Which kind of operation failed; the advice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Creating namespaces (`clone3`).
    Namespaces,
    /// Starting a process without new namespaces (`clone3`).
    Fork,
    /// Writing `uid_map` or `gid_map`.
    IdMap,
    /// A mount.
    Mount,
    /// A netlink request or a network setting.
    Network,
    /// Executing a program.
    Exec,
    /// Entering a cgroup.
    Cgroup,
    /// Installing a seccomp filter that asks us.
    Gate,
    /// The supervisor and the filter of a clock of its own.
    Clock,
    /// Destroying connections.
    Sockets,
    /// Anything else.
    Other,
}

/// A failed system call: what was tried, on what, and its errno.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Kind of operation.
    pub step: Step,
    /// The operation in words, with its object: `mount a new /proc`.
    pub what: String,
    /// The errno.
    pub errno: i32,
}

impl Failure {
    /// A failure of `step` described by `what`.
    pub(super) fn new(step: Step, what: impl Into<String>, errno: Errno) -> Self {
        Self {
            step,
            what: what.into(),
            errno: errno as i32,
        }
    }

    /// The same from an [`std::io::Error`]; one that has no errno counts as EIO.
    pub(super) fn io(step: Step, what: impl Into<String>, error: &std::io::Error) -> Self {
        Self {
            step,
            what: what.into(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = Errno::from_raw(self.errno);
        write!(f, "could not {}: {} ({errno:?})", self.what, errno.desc())?;
        match advice(self.step, errno) {
            Some(advice) => write!(f, ". {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// What the two usual barriers look like and how they are opened.
const BARRIERS: &str = "The system forbids unprivileged namespaces. Ubuntu 23.10 or later: run with sudo, or \
    `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Debian: \
    `sudo sysctl kernel.unprivileged_userns_clone=1`. Docker: `docker run --privileged`";

/// The likely cause and the fix.
fn advice(step: Step, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        (Step::Namespaces | Step::IdMap, Errno::EPERM | Errno::EACCES) => BARRIERS,
        (Step::Namespaces, Errno::ENOSPC | Errno::EUSERS) => {
            "A limit on namespaces is reached. See `sysctl user` and raise the ones that are low or 0: \
             `sudo sysctl user.max_user_namespaces=10000 user.max_net_namespaces=10000`"
        }
        (Step::Namespaces | Step::Fork, Errno::ENOSYS) => {
            "clone3 is missing: Linux 5.11 or later is needed; in Docker its seccomp profile hides the call: \
             `docker run --privileged`"
        }
        (Step::Namespaces, Errno::EINVAL) => {
            "The kernel lacks a kind of namespace: it needs CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, \
             CONFIG_IPC_NS and CONFIG_UTS_NS"
        }
        (Step::Namespaces | Step::Fork, Errno::EAGAIN | Errno::ENOMEM) => {
            "The limit on processes or memory is reached: see `ulimit -u`, the cgroup's pids.max, and free memory"
        }
        (Step::Mount, Errno::EPERM | Errno::EACCES) => {
            "The system forbids mounts in a namespace. Ubuntu 23.10 or later: run with sudo, or \
             `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`. Docker hides parts of /proc: \
             `docker run --privileged`"
        }
        (Step::Network, Errno::EPERM | Errno::EACCES) => BARRIERS,
        (Step::Network, Errno::EOPNOTSUPP | Errno::ENODEV) => {
            "The kernel lacks bridges or veth pairs: `sudo modprobe -a bridge veth`"
        }
        (Step::Exec, Errno::ENOENT) => {
            "The program, its working directory, or the loader or interpreter that it names does not exist"
        }
        (Step::Exec, Errno::EACCES) => {
            "The file must be executable for this user, and so must every folder above it"
        }
        (Step::Exec, Errno::ENOEXEC) => "The file is not a program for this machine",
        (Step::Exec, Errno::E2BIG) => "Arguments and environment are too large together",
        (Step::Cgroup, Errno::EACCES | Errno::EPERM) => {
            "The cgroup is not delegated to this user: `systemd-run --user --scope -p Delegate=yes fencepost …`"
        }
        (Step::Sockets, Errno::EOPNOTSUPP | Errno::ENOENT | Errno::EINVAL) => {
            "The kernel cannot destroy connections, which a loss of power needs: CONFIG_INET_DIAG and \
             CONFIG_INET_DIAG_DESTROY (`sudo modprobe tcp_diag`)"
        }
        (Step::Gate, Errno::EBUSY) => {
            "Another program already answers system calls of ours (a container's own seccomp agent): disk \
             faults cannot be made in here; run outside of it"
        }
        (Step::Gate, Errno::EINVAL | Errno::ENOSYS) => {
            "The kernel cannot ask about system calls: Linux 5.5 with CONFIG_SECCOMP_FILTER is needed for disk \
             faults"
        }
        (Step::Clock, Errno::ECANCELED) => "Its supervisor did not let it go on and says why",
        (Step::Clock, _) => {
            "A clock fault needs ptrace and seccomp: in Docker, --cap-add SYS_PTRACE --security-opt seccomp=unconfined"
        }
        (Step::Gate, Errno::EACCES | Errno::EPERM) => {
            "The system forbids seccomp filters, which disk faults need. Docker: `docker run --privileged`"
        }
        (_, Errno::EMFILE | Errno::ENFILE) => "Too many open files: raise `ulimit -n`",
        _ => return None,
    })
}
