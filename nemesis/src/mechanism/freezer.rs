//! The cgroup v2 freezer: stops a whole process tree without any signal.
//!
//! `cgroup.freeze` asks, `cgroup.events` tells when every process has stopped
//! (Documentation/admin-guide/cgroup-v2.rst). Never the freezer of cgroup v1: processes frozen by it
//! survive SIGKILL. This file waits by ppoll(2) and never spins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::Now;

/// Name of this mechanism in receipts.
pub const NAME: &str = "cgroup v2 freezer";

/// The kernel sends at most one notification in 10 ms for `cgroup.events`, so we look on our own too: soon at
/// first, since most processes stop at once, then less often, each time after twice as long.
const LOOK_AGAIN_FIRST: Duration = Duration::from_micros(50);
const LOOK_AGAIN_LAST: Duration = Duration::from_millis(1);

/// The freezer of one cgroup.
#[derive(Debug)]
pub struct Freezer {
    /// The cgroup's directory.
    dir: PathBuf,
    /// Its `cgroup.freeze`, open for writing.
    switch: File,
    /// Its `cgroup.events`.
    events: File,
}

impl Freezer {
    /// Opens the freezer of a cgroup v2 directory.
    ///
    /// # Errors
    /// The directory is not one of cgroup v2, or we may not write there.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            dir: dir.to_owned(),
            switch: OpenOptions::new()
                .write(true)
                .open(dir.join("cgroup.freeze"))?,
            events: File::open(dir.join("cgroup.events"))?,
        })
    }

    /// Asks the kernel to freeze the cgroup.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn freeze(&self) -> io::Result<()> {
        (&self.switch).write_all(b"1")
    }

    /// Asks the kernel to let the cgroup go on.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn thaw(&self) -> io::Result<()> {
        (&self.switch).write_all(b"0")
    }

    /// True when every process in the cgroup is frozen right now.
    ///
    /// # Errors
    /// `cgroup.events` could not be read, or does not say.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let mut buffer = [0; 256];
        let length = self.events.read_at(&mut buffer, 0)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let frozen = text.lines().find_map(|line| line.strip_prefix("frozen "));
        match frozen {
            Some("1") => Ok(true),
            Some("0") => Ok(false),
            _ => Err(io::Error::other(format!(
                "expected \"frozen 0\" or \"frozen 1\" in {}, found {text:?}; a kernel of 5.2 or later is needed",
                self.dir.join("cgroup.events").display()
            ))),
        }
    }

    /// Waits until the cgroup is frozen (or is not), and returns when that was seen; `None` when the
    /// deadline passed first.
    ///
    /// # Errors
    /// `cgroup.events` could not be read.
    pub fn wait(&self, frozen: bool, deadline_ns: u64, now: Now) -> io::Result<Option<u64>> {
        let mut look_again = LOOK_AGAIN_FIRST;
        loop {
            if self.is_frozen()? == frozen {
                return Ok(Some(now()));
            }
            if now() >= deadline_ns {
                return Ok(None);
            }
            let mut fds = [PollFd::new(self.events.as_fd(), PollFlags::POLLPRI)];
            match ppoll(&mut fds, Some(TimeSpec::from(look_again)), None) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            look_again = LOOK_AGAIN_LAST.min(look_again * 2);
        }
    }

    /// The processes in the cgroup and in those below it.
    ///
    /// # Errors
    /// A `cgroup.procs` could not be read.
    pub fn members(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        let mut dirs = vec![self.dir.clone()];
        while let Some(dir) = dirs.pop() {
            let procs = fs::read_to_string(dir.join("cgroup.procs"))?;
            pids.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
            for entry in fs::read_dir(&dir)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    dirs.push(entry.path());
                }
            }
        }
        Ok(pids)
    }
}
