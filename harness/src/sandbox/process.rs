//! Processes in a host: what to start, what was started, and how it ended.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;

use super::control::{Channel, Exited, Packet, ReceiveError};
use super::error::SandboxError;
use super::signals::End;

/// A process to run in a host.
#[derive(Debug)]
pub struct ProcessSpec {
    /// The program (looked up in the environment's PATH unless it contains a slash) and its arguments.
    /// `/proc/self/exe` is this executable.
    pub argv: Vec<OsString>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; `/` if absent.
    pub cwd: Option<PathBuf>,
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

/// A process that was started in a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number in this host, never reused.
    pub id: u64,
    /// Its PID as the controller sees it.
    pub pid: i32,
    /// Its PID as seen in the host.
    pub host_pid: i32,
}

/// The end of a process that was started with [`Host::spawn`]. Its descendants are not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// [`Process::id`].
    pub id: u64,
    /// [`Process::host_pid`].
    pub host_pid: i32,
    /// How it ended.
    pub end: End,
    /// When the host's init reaped it: nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// The stream of process ends of one host. Each end goes to one reader. Its descriptor is readable when
/// there is one (or the host is lost), for use in a poll loop.
#[derive(Debug)]
pub struct Exits {
    host: String,
    channel: Channel,
}

impl Exits {
    /// The ends that the init of `host` reports over `channel`.
    pub(super) fn new(host: &str, channel: Channel) -> Self {
        Self {
            host: host.into(),
            channel,
        }
    }

    /// The next end, if one has been reported by now.
    pub fn try_next(&self) -> Result<Option<ProcessExit>, SandboxError> {
        match self.channel.receive::<Exited>(MsgFlags::MSG_DONTWAIT) {
            Ok(Packet {
                message:
                    Exited {
                        id,
                        host_pid,
                        end,
                        at_ns,
                    },
                ..
            }) => Ok(Some(ProcessExit {
                id,
                host_pid,
                end,
                at_ns,
            })),
            Err(ReceiveError::Timeout) => Ok(None),
            Err(ReceiveError::Closed) => Err(SandboxError::HostLost {
                host: self.host.clone(),
                doing: "watch its processes".into(),
            }),
            Err(ReceiveError::Broken(problem)) => Err(SandboxError::Protocol {
                doing: format!("watch the processes of host {}", self.host),
                problem,
            }),
        }
    }

    /// The next end; waits for it at most this long.
    pub fn next_within(&self, timeout: Duration) -> Result<Option<ProcessExit>, SandboxError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(exit) = self.try_next()? {
                return Ok(Some(exit));
            }
            let left_ms = deadline
                .saturating_duration_since(Instant::now())
                .as_millis();
            if left_ms == 0 {
                return Ok(None);
            }
            let mut ready = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
            // A failed or interrupted poll only means looking again.
            let _ = poll(
                &mut ready,
                PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX),
            );
        }
    }
}

impl AsFd for Exits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
