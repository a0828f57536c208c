//! PID 1 of the sandbox: builds its mounts and cgroup, starts the controller, and ends everything.
//!
//! It ends everything when the controller ends, however that happens, and when the launcher is gone: the
//! launcher alone holds the other end of the liveness pipe. It sets no parent-death signal, because being
//! killed itself would leave the cgroup directories behind; the pipe does the same and lets it clean up.
//!
//! It stays single-threaded and knows nothing of hosts, networks or runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::cgroup::RunCgroup;
use super::error::{Failure, Step};
use super::inside::{self, Inside};
use super::signals::{End, kill_and_reap_all, next_signal, reap, signal_fd};
use super::spawn::{SELF, SELF_NAME, Spawn, c_environment, c_string};
use super::{SANDBOX_INIT, mounts, syscalls};

/// First descriptor after stdin, stdout and stderr.
pub(super) const FIRST_FD: i32 = 3;

/// What the init tells the launcher, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The controller runs.
    Ready {
        /// The run's cgroup, or why there is none.
        cgroup: Result<PathBuf, String>,
    },
    /// The sandbox could not be built.
    Failed(Failure),
    /// The controller ended and everything else was ended and removed.
    Ended(End),
}

/// What the launcher wants; travels as plain arguments so that paths need no encoding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Orders {
    /// Name for the run's cgroup directory; empty for none.
    pub(super) cgroup_name: OsString,
    /// Directory to cover with scratch space.
    pub(super) scratch: PathBuf,
    /// Whether nothing that the run needs is in /run, so that it can be covered.
    pub(super) cover_run: bool,
    /// How many descriptors from [`FIRST_FD`] on are for the controller. The two after them are the
    /// liveness pipe and the pipe for reports.
    pub(super) inherited: usize,
    /// The controller's arguments after the executable.
    pub(super) controller: Vec<OsString>,
}

impl Orders {
    /// As arguments, from the subcommand on.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![
            SANDBOX_INIT.into(),
            self.cgroup_name.clone(),
            self.scratch.clone().into(),
            if self.cover_run {
                "cover-run"
            } else {
                "keep-run"
            }
            .into(),
            self.inherited.to_string().into(),
        ];
        args.extend(self.controller.iter().cloned());
        args
    }

    /// Back from the arguments after the subcommand.
    pub(super) fn from_args(args: Vec<OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        Some(Self {
            cgroup_name: args.next()?,
            scratch: args.next()?.into(),
            cover_run: args.next()? == "cover-run",
            inherited: args.next()?.to_str()?.parse().ok()?,
            controller: args.collect(),
        })
    }
}

/// The subcommand `sandbox-init`.
pub(super) fn main(args: Vec<OsString>) -> ExitCode {
    let Some(init) = Orders::from_args(args).and_then(Init::adopt) else {
        eprintln!(
            "fencepost {SANDBOX_INIT} is a part of `fencepost run`; it cannot be started by hand"
        );
        return ExitCode::from(2);
    };
    init.run()
}

/// The init with the descriptors that it was given.
struct Init {
    orders: Orders,
    inherited: Vec<OwnedFd>,
    liveness: OwnedFd,
    reports: File,
}

impl Init {
    fn adopt(orders: Orders) -> Option<Self> {
        // Only a PID 1 may do what follows: it kills every process that it can see.
        if std::process::id() != 1 {
            return None;
        }
        let mut numbers = FIRST_FD..;
        let mut next = || syscalls::adopt(numbers.next()?).ok();
        let inherited = (0..orders.inherited)
            .map(|_| next())
            .collect::<Option<_>>()?;
        Some(Self {
            orders,
            inherited,
            liveness: next()?,
            reports: next()?.into(),
        })
    }

    fn run(mut self) -> ExitCode {
        let _ = prctl::set_name(c"fencepost-init");
        // The cgroup is first, while /proc still shows the launcher's processes.
        let name = self.orders.cgroup_name.to_str().unwrap_or_default();
        let cgroup = if name.is_empty() {
            Err("not asked for".to_owned())
        } else {
            RunCgroup::create(name)
        };
        let inside = Inside {
            scratch: self.orders.scratch.clone(),
            cgroup: cgroup
                .as_ref()
                .map(|run| run.path().to_path_buf())
                .map_err(Clone::clone),
        };
        let end = self.supervise(&inside);
        // From here on this process is alone; nothing below may fail it.
        let _ = kill_and_reap_all(|_, _| ());
        if let Ok(run) = cgroup {
            run.remove();
        }
        nemesis::mechanism::memory::sweep();
        let (report, code) = match end {
            Ok(End::Exited(code)) => (Report::Ended(End::Exited(code)), code),
            Ok(End::Signalled(signo)) => (Report::Ended(End::Signalled(signo)), 128 + signo),
            Err(failure) => (Report::Failed(failure), 1),
        };
        self.report(&report);
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }

    /// Builds the sandbox, runs the controller, and returns when it has ended or the launcher is gone.
    fn supervise(&mut self, inside: &Inside) -> Result<End, Failure> {
        let signals = signal_fd(&[
            Signal::SIGCHLD,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ])?;
        mounts::make_private()?;
        mounts::fresh_proc()?;
        mounts::cover(&self.orders.scratch, 0o1777)?;
        if self.orders.cover_run {
            mounts::cover("/run".as_ref(), 0o755)?;
        }
        let controller = self.start_controller(inside)?;
        self.inherited.clear();
        self.report(&Report::Ready {
            cgroup: inside.cgroup.clone(),
        });
        loop {
            let mut ready = [
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.liveness.as_fd(), PollFlags::empty()),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(Failure::new(Step::Other, "poll in the sandbox init", errno));
                }
            }
            // POLLHUP: the launcher, the only holder of the write end, is gone or has let go.
            if ready[1].any() == Some(true) {
                return Ok(End::Signalled(libc::SIGKILL));
            }
            if let Some(end) = handle_signals(&signals, controller) {
                return Ok(end);
            }
        }
    }

    fn start_controller(&self, inside: &Inside) -> Result<Pid, Failure> {
        let text = serde_json::to_string(inside).map_err(|e| {
            Failure::io(
                Step::Other,
                "describe the sandbox to the controller",
                &e.into(),
            )
        })?;
        let env = std::env::vars_os()
            .filter(|(name, _)| name != inside::VARIABLE)
            .chain([(
                inside::VARIABLE.into(),
                OsString::from_vec(text.into_bytes()),
            )]);
        let argv = [SELF_NAME.into()]
            .into_iter()
            .chain(self.orders.controller.iter().cloned());
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let stdio: [BorrowedFd<'_>; 3] = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let spawn = Spawn {
            program: SELF.to_owned(),
            argv: argv.map(|arg| c_string(&arg)).collect::<Result<_, _>>()?,
            env: c_environment(env)?,
            cwd: None,
            fds: stdio
                .into_iter()
                .chain(self.inherited.iter().map(AsFd::as_fd))
                .collect(),
            namespaces: CloneFlags::empty(),
            cgroup_procs: None,
            gate: None,
            clock: None,
        };
        spawn.start().map(|controller| controller.pid)
    }

    /// A report that cannot be delivered has nobody left to hear it.
    fn report(&mut self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let _ = self.reports.write_all(&line);
        }
    }
}

/// Forwards requests to end to the controller and reaps orphans; returns the controller's end.
fn handle_signals(signals: &SignalFd, controller: Pid) -> Option<End> {
    while let Some(signal) = next_signal(signals) {
        if signal != Signal::SIGCHLD {
            // Every polite signal means the same to the controller: heal, store, exit.
            let _ = kill(controller, Signal::SIGTERM);
        }
    }
    while let Ok(Some((pid, end))) = reap(false) {
        if pid == controller {
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_argument_list() {
        let orders = Orders {
            cgroup_name: "fencepost-1-2-3".into(),
            scratch: OsString::from_vec(b"/not \xff utf-8".to_vec()).into(),
            cover_run: true,
            inherited: 2,
            controller: vec!["controller".into(), "--seed".into(), "7".into()],
        };
        let mut args = orders.to_args();
        assert_eq!(args.remove(0), SANDBOX_INIT);
        assert_eq!(Orders::from_args(args), Some(orders));
        assert_eq!(Orders::from_args(vec!["x".into()]), None);
    }
}
