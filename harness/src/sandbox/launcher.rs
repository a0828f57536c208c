//! The launcher's side: starts a sandbox, asks it to end, waits for it, and is the reason it ends.
//!
//! The launcher may be killed at any moment. So it must hold nothing that outlives it: the sandbox init
//! ends everything as soon as the launcher's end of the liveness pipe closes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{geteuid, pipe2};

use super::error::{Failure, SandboxError, Step};
use super::init::{Orders, Report};
use super::signals::End;
use super::spawn::{OWN_NAMESPACES, SELF, SELF_NAME, Spawn, Spawned, c_environment, c_string};
use super::{cgroup, scratch, syscalls};

/// How long the init may take to end everything before [`Sandbox::kill`] kills the init itself.
const KILL_GRACE_MS: u16 = 3_000;

/// What to run in a fresh sandbox.
#[derive(Debug, Default)]
pub struct SandboxSpec {
    /// The controller's arguments after the executable, which is this one: `["controller", …]`.
    pub controller_argv: Vec<OsString>,
    /// Descriptors for the controller; the first becomes 3, the second 4, and so on.
    pub inherit: Vec<OwnedFd>,
    /// Paths that the run needs (results, server binaries, scenario files). Nothing is mounted over them.
    /// This executable and the working directory are included without being named.
    pub needed_paths: Vec<PathBuf>,
    /// Whether to look for a cgroup (for the freezer). The outcome is in [`Sandbox::cgroup`].
    pub cgroup: bool,
}

/// How the controller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it, or [`Sandbox::kill`] did.
    Signalled(i32),
    /// The sandbox's init was killed from outside, and the controller with it.
    SandboxKilled,
}

/// A running sandbox. Dropping it kills it and waits until nothing of it is left.
#[derive(Debug)]
pub struct Sandbox {
    init: Spawned,
    liveness: Mutex<Option<OwnedFd>>,
    reports: Mutex<Reports>,
    cgroup: Result<PathBuf, String>,
    cgroup_name: String,
}

/// What the init says, and the end once it was heard.
#[derive(Debug)]
struct Reports {
    lines: BufReader<File>,
    end: Option<ControllerEnd>,
}

impl Sandbox {
    /// Starts the sandbox with the controller in it. Standard output and error are this process's,
    /// standard input is empty. The terminal's Ctrl-C does not reach the sandbox: it has its own session.
    pub fn start(spec: SandboxSpec) -> Result<Self, SandboxError> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mut needed = spec.needed_paths;
        needed.extend(
            std::env::current_exe()
                .into_iter()
                .chain(std::env::current_dir()),
        );
        let cgroup_name = if spec.cgroup {
            cgroup::run_name(number).unwrap_or_default()
        } else {
            String::new()
        };
        let orders = Orders {
            cgroup_name: cgroup_name.clone().into(),
            scratch: scratch::choose(&needed)?,
            cover_run: can_cover_run(&needed),
            inherited: spec.inherit.len(),
            controller: spec.controller_argv,
        };
        let pipe =
            || pipe2(OFlag::O_CLOEXEC).map_err(|e| Failure::new(Step::Other, "create a pipe", e));
        let (liveness_reader, liveness_writer) = pipe()?;
        let (reports_reader, reports_writer) = pipe()?;
        let mut fds = spec.inherit;
        fds.extend([liveness_reader, reports_writer]);
        let init = start_init(&orders, &fds)?;
        drop(fds);
        let mut sandbox = Self {
            init,
            liveness: Mutex::new(Some(liveness_writer)),
            reports: Mutex::new(Reports {
                lines: BufReader::new(reports_reader.into()),
                end: None,
            }),
            cgroup: Err("the sandbox did not start".into()),
            cgroup_name,
        };
        sandbox.cgroup = sandbox.await_ready()?;
        Ok(sandbox)
    }

    /// Waits for the first report. An error drops the sandbox, which ends what there is of it.
    fn await_ready(&self) -> Result<Result<PathBuf, String>, SandboxError> {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        match reports.next() {
            Some(Report::Ready { cgroup }) => Ok(cgroup),
            Some(Report::Failed(failure)) => Err(failure.into()),
            Some(Report::Ended(end)) => Err(SandboxError::Protocol {
                doing: "start the sandbox".into(),
                problem: format!("the controller {end} before the sandbox was ready"),
            }),
            None => Err(SandboxError::HostLost {
                host: "sandbox".into(),
                doing: "start the sandbox".into(),
            }),
        }
    }

    /// The run's cgroup directory, or the reason in words why there is none.
    pub fn cgroup(&self) -> Result<&Path, &str> {
        self.cgroup.as_deref().map_err(String::as_str)
    }

    /// PID of the sandbox's init, as seen from here.
    #[must_use]
    pub fn init_pid(&self) -> i32 {
        self.init.pid.as_raw()
    }

    /// Asks the controller to heal, store and exit (it gets SIGTERM). Does nothing if it has ended.
    pub fn interrupt(&self) {
        let _ = syscalls::pidfd_send_signal(self.init.pidfd.as_fd(), Signal::SIGTERM);
    }

    /// Ends everything at once, unhealed, and returns when the init is gone. [`Self::wait`] still works.
    pub fn kill(&self) {
        drop(
            self.liveness
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        if !self.has_ended_within(PollTimeout::from(KILL_GRACE_MS)) {
            let _ = syscalls::pidfd_send_signal(self.init.pidfd.as_fd(), Signal::SIGKILL);
            self.has_ended_within(PollTimeout::NONE);
        }
    }

    /// Waits until the controller has ended and nothing of the sandbox is left.
    pub fn wait(&self) -> ControllerEnd {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = reports.end {
            return end;
        }
        let end = loop {
            match reports.next() {
                Some(Report::Ended(End::Exited(code))) => break ControllerEnd::Exited(code),
                Some(Report::Ended(End::Signalled(signo))) => {
                    break ControllerEnd::Signalled(signo);
                }
                Some(Report::Ready { .. } | Report::Failed(_)) => {}
                None => break ControllerEnd::SandboxKilled,
            }
        };
        reports.end = Some(end);
        while waitpid(self.init.pid, None) == Err(Errno::EINTR) {}
        if end == ControllerEnd::SandboxKilled && !self.cgroup_name.is_empty() {
            // The kernel ended the processes with their init, but nobody removed the directories.
            cgroup::remove_named(&self.cgroup_name);
            nemesis::mechanism::memory::sweep();
        }
        end
    }

    /// A pidfd is readable once its process has ended, reaped or not.
    fn has_ended_within(&self, timeout: PollTimeout) -> bool {
        let mut ready = [PollFd::new(self.init.pidfd.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut ready, timeout) {
                Err(Errno::EINTR) => {}
                other => return other.is_ok_and(|n| n > 0),
            }
        }
    }
}

/// Readable once the sandbox has ended: then [`Sandbox::wait`] returns at once. For poll loops.
impl AsFd for Sandbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.init.pidfd.as_fd()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}

impl Reports {
    /// The next report; `None` when the init is gone.
    fn next(&mut self) -> Option<Report> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

/// Whether /run can be covered: it exists and holds nothing that the run needs.
fn can_cover_run(needed: &[PathBuf]) -> bool {
    let run = Path::new("/run");
    run.canonicalize().is_ok_and(|real| real == run) && scratch::hidden_by(run, needed).is_none()
}

/// Starts the init: as root without a user namespace if that is allowed (a container's root may lack the
/// capability), else in a user namespace in which this user is root.
fn start_init(orders: &Orders, fds: &[OwnedFd]) -> Result<Spawned, SandboxError> {
    let null =
        File::open("/dev/null").map_err(|e| Failure::io(Step::Other, "open /dev/null", &e))?;
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let argv = [SELF_NAME.into()].into_iter().chain(orders.to_args());
    let mut spawn = Spawn {
        program: SELF.to_owned(),
        argv: argv.map(|arg| c_string(&arg)).collect::<Result<_, _>>()?,
        env: c_environment(std::env::vars_os())?,
        cwd: None,
        fds: [null.as_fd(), stdout.as_fd(), stderr.as_fd()]
            .into_iter()
            .chain(fds.iter().map(AsFd::as_fd))
            .collect(),
        namespaces: OWN_NAMESPACES,
        cgroup_procs: None,
        gate: None,
        clock: None,
    };
    if geteuid().is_root() {
        match spawn.start() {
            Err(failure) if failure.errno == libc::EPERM => {}
            other => return Ok(other?),
        }
    }
    spawn.namespaces |= CloneFlags::CLONE_NEWUSER;
    Ok(spawn.start()?)
}

impl std::fmt::Display for ControllerEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Exited(code) => End::Exited(code).fmt(f),
            Self::Signalled(signo) => End::Signalled(signo).fmt(f),
            Self::SandboxKilled => {
                f.write_str("was killed together with its sandbox, from outside")
            }
        }
    }
}
