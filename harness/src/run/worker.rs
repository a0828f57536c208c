//! One worker process as the run loop sees it: lines out, lines in, and whether it still lives.
//!
//! A worker may be frozen at any moment, so nothing in here ever blocks on it after the set-up.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use workloads::worker::protocol::{PROTOCOL_VERSION, Said, Setup, parse};

/// Longest line that a worker may write, in bytes.
const MAX_LINE: usize = 16 << 20;
/// How long a worker may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// How long a worker may take to answer the set-up.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The pipes of one worker.
#[derive(Debug)]
pub struct Worker {
    /// Host name in the sandbox, for instance `c1`.
    pub host: Arc<str>,
    /// The node its clients talk to, for instance `n1`; empty when the lock needs none.
    pub node: String,
    input: File,
    output: File,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    scanned: usize,
    open: bool,
}

/// What a worker did wrong.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// A line that is not of the protocol.
    #[error(
        "worker {host} wrote a line that is not of the worker protocol: {why}\n  line: {line}\n  what a worker may write is in workloads/PROTOCOL.md"
    )]
    BadLine {
        /// The worker's host.
        host: String,
        /// What is wrong.
        why: String,
        /// The line, shortened.
        line: String,
    },
    /// The pipe ended.
    #[error("worker {host} closed its output{}; its standard error is in the run's logs/{host}.log", if *.clean { "" } else { " in the middle of a line" })]
    Closed {
        /// The worker's host.
        host: String,
        /// Whether the last line was whole.
        clean: bool,
    },
    /// Silence during the set-up.
    #[error(
        "worker {host} did not {what} within {limit:?}; its standard error is in the run's logs/{host}.log"
    )]
    Silent {
        /// The worker's host.
        host: String,
        /// What was expected.
        what: &'static str,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The worker cannot do what was asked.
    #[error("worker {host} refused its set-up: {why}")]
    Refused {
        /// The worker's host.
        host: String,
        /// Its words.
        why: String,
    },
    /// Another protocol version.
    #[error(
        "worker {host} ({worker}) speaks protocol {found}, expected {PROTOCOL_VERSION}; see workloads/PROTOCOL.md"
    )]
    Version {
        /// The worker's host.
        host: String,
        /// Its name.
        worker: String,
        /// Its version.
        found: u32,
    },
    /// A pipe failed.
    #[error("worker {host}: {error}")]
    Io {
        /// The worker's host.
        host: String,
        /// What the system said.
        error: io::Error,
    },
}

impl Worker {
    /// Takes over the pipes to a worker that was just started.
    ///
    /// # Errors
    /// When the pipes cannot be made non-blocking.
    pub fn new(host: String, node: String, input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        for pipe in [&input, &output] {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            host: host.into(),
            node,
            input: input.into(),
            output: output.into(),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            scanned: 0,
            open: true,
        })
    }

    /// Waits for the worker's hello, sends it the set-up, waits until it is ready. Gives its name.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn set_up(&mut self, setup: &Setup) -> Result<String, WorkerError> {
        let hello = match self.wait_for("say hello", HELLO_LIMIT)? {
            Said::Hello(hello) => hello,
            other => return Err(self.unexpected(&other, "hello")),
        };
        if hello.protocol != PROTOCOL_VERSION {
            let (host, worker, found) = (self.host.to_string(), hello.worker, hello.protocol);
            return Err(WorkerError::Version {
                host,
                worker,
                found,
            });
        }
        let line = serde_json::to_vec(&serde_json::json!({ "setup": setup }))
            .map_err(|error| self.io(error.into()))?;
        self.send(&line);
        match self.wait_for("answer the set-up", READY_LIMIT)? {
            Said::Ready => Ok(hello.worker),
            Said::Refused(why) => Err(WorkerError::Refused {
                host: self.host.to_string(),
                why,
            }),
            other => Err(self.unexpected(&other, "ready or refused")),
        }
    }

    /// Queues one line (without its end).
    pub fn send(&mut self, line: &[u8]) {
        self.outgoing.extend_from_slice(line);
        self.outgoing.push(b'\n');
    }

    /// False once the worker has ended, or was ended because of a bad line.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Stops listening to the worker.
    pub fn shut(&mut self) {
        self.open = false;
        self.outgoing.clear();
    }

    /// What to poll for.
    #[must_use]
    pub fn output_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// The descriptor to poll for writing, while something waits to be written.
    #[must_use]
    pub fn blocked_input_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.open && !self.outgoing.is_empty()).then(|| self.input.as_fd())
    }

    /// Writes as much of what is queued as the pipe takes.
    ///
    /// # Errors
    /// When the worker no longer reads.
    pub fn flush(&mut self) -> Result<(), WorkerError> {
        while self.open && !self.outgoing.is_empty() {
            match self.input.write(&self.outgoing) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(WorkerError::Closed {
                        host: self.host.to_string(),
                        clean: self.incoming.is_empty(),
                    });
                }
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    /// Reads what is there and gives every whole line of it to `each`.
    ///
    /// # Errors
    /// A line that is not of the protocol, or the end of the pipe. What came before was given.
    pub fn receive(&mut self, mut each: impl FnMut(Said)) -> Result<(), WorkerError> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.output.read(&mut chunk) {
                Ok(0) => {
                    return Err(WorkerError::Closed {
                        host: self.host.to_string(),
                        clean: self.incoming.is_empty(),
                    });
                }
                Ok(count) => self.incoming.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.io(error)),
            }
            self.take_lines(&mut each)?;
        }
    }

    fn take_lines(&mut self, each: &mut impl FnMut(Said)) -> Result<(), WorkerError> {
        let mut start = 0;
        while let Some(length) = self.incoming[start.max(self.scanned)..]
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let end = start.max(self.scanned) + length;
            let line = &self.incoming[start..end];
            let said = parse(line).map_err(|why| self.bad_line(why, line))?;
            each(said);
            start = end + 1;
            self.scanned = start;
        }
        self.incoming.drain(..start);
        self.scanned = self.incoming.len();
        if self.incoming.len() > MAX_LINE {
            let why = format!("longer than {} MiB without an end", MAX_LINE >> 20);
            return Err(self.bad_line(why, &self.incoming));
        }
        Ok(())
    }

    fn wait_for(&mut self, what: &'static str, limit: Duration) -> Result<Said, WorkerError> {
        let start = Instant::now();
        let mut said = Vec::new();
        loop {
            self.flush()?;
            let received = self.receive(|line| said.push(line));
            match said.len() {
                // What a worker said before it went wrong counts; what went wrong is found again.
                0 => received?,
                1 => return Ok(said.remove(0)),
                _ => return Err(self.unexpected(&said[1], what)),
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(WorkerError::Silent {
                    host: self.host.to_string(),
                    what,
                    limit,
                });
            }
            let mut fds = vec![PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
            fds.extend(
                self.blocked_input_fd()
                    .map(|fd| PollFd::new(fd, PollFlags::POLLOUT)),
            );
            let wait = PollTimeout::try_from(left.min(Duration::from_secs(1)))
                .unwrap_or(PollTimeout::ZERO);
            poll(&mut fds, wait).map_err(|error| self.io(error.into()))?;
        }
    }

    /// The worker completed an operation that is not open, or not its own.
    #[must_use]
    pub fn not_open(&self, op: u64) -> WorkerError {
        self.bad_line(
            format!("operation {op} is not open in this worker"),
            format!("…\"op\":{op}…").as_bytes(),
        )
    }

    /// The worker said something that belongs to the set-up.
    #[must_use]
    pub fn out_of_turn(&self, said: &Said) -> WorkerError {
        self.unexpected(said, "a completion or `lost`")
    }

    fn unexpected(&self, said: &Said, expected: &str) -> WorkerError {
        self.bad_line(
            format!("expected {expected}"),
            format!("{said:?}").as_bytes(),
        )
    }

    fn bad_line(&self, why: String, line: &[u8]) -> WorkerError {
        let mut text = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
        if line.len() > 200 {
            text.push('…');
        }
        WorkerError::BadLine {
            host: self.host.to_string(),
            why,
            line: text,
        }
    }

    fn io(&self, error: io::Error) -> WorkerError {
        WorkerError::Io {
            host: self.host.to_string(),
            error,
        }
    }
}
