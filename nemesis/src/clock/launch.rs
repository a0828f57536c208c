//! Launching a process that lives by a host's clock: the handshake between it and its supervisor.
//!
//! The new process says who it is over a socket and waits; the supervisor's thread seizes it and lets it go
//! on; it installs its filter and executes its program, whose exec is the supervisor's first event.
#![allow(unsafe_code)]

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::{AccessFlags, access};

use super::error::ClockError;
use super::filter::{GO, NO, Tether};
use super::supervisor::Launched;
use super::{HostClock, supervisor, trace};

/// How long a launch may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A launch under way.
#[derive(Debug)]
pub struct Launch {
    outcome: Receiver<Result<(), ClockError>>,
}

impl Launch {
    /// Waits until the process has executed its program and has its clock. When it could not have one it
    /// has been killed.
    ///
    /// # Errors
    /// Why it has none.
    pub fn confirm(self) -> Result<(), ClockError> {
        let answer = match self.outcome.recv_timeout(PATIENCE) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Timeout) => format!("nothing within {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => "it ended".to_owned(),
        };
        Err(ClockError::NotStarted { answer })
    }
}

impl HostClock {
    /// Starts a supervisor for a process that is about to be made, and returns the socket over which that
    /// must call [`Tether::install`] before it executes its program. Its parent must be another process
    /// than this one: see [`Self::spawn`].
    ///
    /// # Errors
    /// This machine cannot do it, or something of ours could not be had.
    pub fn prepare(&self) -> Result<(Launch, OwnedFd), ClockError> {
        let (launch, _, socket) = self.prepare_with_end(true)?;
        Ok((launch, socket))
    }

    fn prepare_with_end(
        &self,
        counted: bool,
    ) -> Result<(Launch, Receiver<i32>, OwnedFd), ClockError> {
        supported()?;
        self.check()?;
        let pair = UnixStream::pair();
        let (ours, theirs) = pair.map_err(|error| ClockError::system("make a socket", &error))?;
        setsockopt(&ours, sockopt::PassCred, &true)
            .map_err(|errno| ClockError::system("prepare a socket", &errno.into()))?;
        // Neither side waits for ever, whatever becomes of the other.
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(PATIENCE))
                .map_err(|error| ClockError::system("prepare a socket", &error))?;
        }
        let ((sender, outcome), (end, ended)) = (channel(), channel());
        let launched = Launched {
            outcome: Some(sender),
            end,
            counted,
        };
        supervisor::start(&self.shared, move || seize(&ours), launched)
            .map_err(|error| ClockError::system("start a supervisor's thread", &error))?;
        Ok((Launch { outcome }, ended, theirs.into()))
    }

    /// Starts an ordinary command that lives by this clock, in a process group of its own. For probes,
    /// canaries and tests: hosts start their processes themselves.
    ///
    /// # Errors
    /// Why it could not be started, or has no clock.
    pub fn spawn(&self, command: &mut Command) -> Result<Clocked, ClockError> {
        self.spawn_counted(command, true)
    }

    /// As [`Self::spawn`]; only what is counted is a process of the host.
    pub(super) fn spawn_counted(
        &self,
        command: &mut Command,
        counted: bool,
    ) -> Result<Clocked, ClockError> {
        require(command)?;
        let (launch, ended, socket) = self.prepare_with_end(counted)?;
        let tether = Tether::new();
        let theirs = socket.as_raw_fd();
        // SAFETY: the closure runs between fork and exec, makes async-signal-safe calls only, and the
        // filter and the socket live in the parent's memory, of which the child has a copy. It ends the
        // child itself, since an error would make the standard library wait for a process that only its
        // tracer may wait for.
        unsafe {
            command.pre_exec(move || {
                if let Err(errno) = tether.install(theirs) {
                    libc::_exit(errno);
                }
                Ok(())
            });
        }
        let spawned = command.process_group(0).spawn();
        drop(socket);
        let outcome = launch.confirm();
        let mut child = spawned.map_err(|error| ClockError::NotStarted {
            answer: error.to_string(),
        })?;
        if let Err(error) = outcome {
            if matches!(error, ClockError::Seize { .. }) {
                // Nobody traces it, so it is ours to wait for; it ends by itself.
                let _ = child.wait();
            }
            return Err(error);
        }
        Ok(Clocked {
            pid: child.id().cast_signed(),
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            ended,
            status: None,
        })
    }
}

/// A process of ours that lives by a clock. Its supervisor waits for it, and nobody else may. It is killed
/// when this is dropped.
#[derive(Debug)]
pub struct Clocked {
    /// Its number.
    pub pid: i32,
    /// Its standard input, if that was to be piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that was to be piped.
    pub stdout: Option<ChildStdout>,
    ended: Receiver<i32>,
    status: Option<i32>,
}

impl Clocked {
    /// Waits until it ends.
    ///
    /// # Errors
    /// Its supervisor is gone without having told.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = match self.status {
            Some(status) => status,
            None => self
                .ended
                .recv()
                .map_err(|_| io::Error::other("its supervisor is gone"))?,
        };
        self.status = Some(status);
        Ok(ExitStatus::from_raw(status))
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        if self.status.is_none() && self.ended.try_recv().is_err() {
            // Not told to have ended, so its number is still its own. Already dead is as good.
            let pid = nix::unistd::Pid::from_raw(self.pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            let _ = self.ended.recv();
        }
    }
}

/// Makes sure that a command's program is there: when executing it fails, the standard library waits for a
/// process that only its tracer may wait for.
fn require(command: &Command) -> Result<(), ClockError> {
    let program = Path::new(command.get_program());
    let usable = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        usable(program)
    } else {
        std::env::split_paths(&path).any(|folder| usable(&folder.join(program)))
    };
    found.then_some(()).ok_or_else(|| ClockError::NotStarted {
        answer: format!("{} is no program", program.display()),
    })
}

/// On the supervisor's thread: learns which process it is, seizes it, and lets it go on.
fn seize(socket: &UnixStream) -> Result<i32, ClockError> {
    let not_started = |answer: String| ClockError::NotStarted { answer };
    let pid = loop {
        match receive_pid(socket) {
            Ok(pid) => break pid,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(not_started(error.to_string())),
        }
    };
    let mut socket = socket;
    if let Err(error) = trace::seize(pid) {
        // Why is read while it is there; then it ends. If it is gone already, so be it.
        let why = ClockError::seize(pid, &error);
        let _ = socket.write_all(&[NO]);
        return Err(why);
    }
    socket
        .write_all(&[GO])
        .map_err(|error| not_started(error.to_string()))?;
    Ok(pid)
}

/// The process that wrote to the socket, as this PID namespace sees it.
fn receive_pid(socket: &UnixStream) -> io::Result<i32> {
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(UnixCredentials);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    if received.bytes == 0 {
        return Err(io::Error::other("it ended"));
    }
    for attached in received.cmsgs()? {
        if let ControlMessageOwned::ScmCredentials(credentials) = attached
            && credentials.pid() > 0
        {
            return Ok(credentials.pid());
        }
    }
    Err(io::Error::other("it did not say who it is"))
}

/// Whether this kernel has what is needed beyond ptrace and seccomp.
fn supported() -> Result<(), ClockError> {
    // SAFETY: a descriptor that is none, and no memory.
    let answer = unsafe { libc::syscall(libc::SYS_epoll_pwait2, -1, 0, 1, 0, 0, 0) };
    let errno = io::Error::last_os_error().raw_os_error();
    if answer == -1 && errno == Some(libc::ENOSYS) {
        return Err(ClockError::Unsupported(
            "expected epoll_pwait2(2), found a kernel without it; Linux 5.11 is needed".to_owned(),
        ));
    }
    Ok(())
}
