//! The fsync gate: calls that sync a file wait at a gate that we open, shut, or answer ourselves.
//!
//! A seccomp filter makes the kernel ask a thread of ours about every fsync, fdatasync,
//! sync_file_range, msync and syncfs of a process and of all that it starts (seccomp_unotify(2)). That
//! is how a disk gets stuck, slow, broken or mendacious: no privilege and no file system is needed,
//! and it works with programs that make their own system calls, such as those written in Go. Writes
//! through O_SYNC and O_DSYNC do not sync by a call and pass; so does io_uring.
//!
//! An idle gate costs each call some microseconds, so only what may get a disk fault is started with
//! one. What this must not do: outlive the process it is for, or leave a call without an answer.

mod filter;
pub mod launch;
mod listener;
mod supervisor;
mod tally;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

pub use filter::Filter;
pub use tally::Tally;

use checkers::evidence::LYING_SYNCS;

use crate::Now;

/// How long held calls may take to be let go after the gate was opened.
const PATIENCE: Duration = Duration::from_secs(1);

/// What becomes of calls that reach the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They are carried out at once.
    Pass,
    /// They wait until the answer changes, and are then carried out.
    Hold,
    /// They wait so long, and are then carried out.
    Slow {
        /// How long each waits.
        delay_ns: u64,
    },
    /// They fail with this errno and nothing is done.
    Fail {
        /// The errno, for instance EIO.
        errno: i32,
    },
    /// They succeed and nothing is done.
    Lie,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Hold => f.write_str("are held back"),
            Self::Slow { delay_ns } => {
                write!(f, "take {:.2} ms longer", crate::receipt::ms(*delay_ns))
            }
            Self::Fail { errno } => write!(f, "fail with {}", nix::errno::Errno::from_raw(*errno)),
            Self::Lie => f.write_str(LYING_SYNCS),
        }
    }
}

/// The gate of one host. It outlives the host's processes: one that is started again behind it meets
/// the answer that is in force.
#[derive(Debug)]
pub struct FsyncGate {
    shared: Arc<Shared>,
}

/// What the gate and its supervisors share.
#[derive(Debug)]
struct Shared {
    host: String,
    now: Now,
    state: Mutex<State>,
    /// A held call went on.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    answer: Answer,
    tally: Tally,
    /// Calls that are held back now.
    holding: usize,
    /// Why the gate cannot be used any more.
    broken: Option<String>,
    /// One a supervisor.
    wakes: Vec<Weak<EventFd>>,
}

impl Shared {
    /// Every change under the lock is complete in itself, so a panic leaves consistent data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the gate is of no use any more; the first reason counts.
    fn break_down(&self, why: String) {
        self.lock().broken.get_or_insert(why);
    }
}

impl FsyncGate {
    /// The gate of that host, open.
    #[must_use]
    pub fn new(host: &str, now: Now) -> Self {
        Self {
            shared: Arc::new(Shared {
                host: host.to_owned(),
                now,
                state: Mutex::new(State {
                    answer: Answer::Pass,
                    tally: Tally::default(),
                    holding: 0,
                    broken: None,
                    wakes: Vec::new(),
                }),
                changed: Condvar::new(),
            }),
        }
    }

    /// Answers for a process that was started with [`Filter`] and for all that it starts. `listener` is
    /// what the filter's installation sent, `process` its number as we see it.
    ///
    /// # Errors
    /// No thread can be had. The process is killed, since nobody would answer it.
    pub fn attach(&self, listener: OwnedFd, process: i32) -> io::Result<()> {
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        let mut state = self.shared.lock();
        state.wakes.retain(|wake| wake.strong_count() > 0);
        state.wakes.push(Arc::downgrade(&wake));
        drop(state);
        supervisor::start(&self.shared, listener, process, wake)
    }

    /// Changes the answer for calls that arrive from now on, forgets what was counted, and returns when
    /// that was. Calls that are held are let go unless the new answer holds too.
    ///
    /// # Errors
    /// Why the gate is of no use any more.
    pub fn set(&self, answer: Answer) -> Result<u64, String> {
        let mut state = self.shared.lock();
        if let Some(why) = &state.broken {
            return Err(why.clone());
        }
        state.answer = answer;
        state.tally = Tally::default();
        let at_ns = (self.shared.now)();
        Self::wake_all(&state);
        Ok(at_ns)
    }

    /// Opens the gate and returns when that was, and what was counted since the answer was set. Calls
    /// that were held have gone on by then.
    ///
    /// # Errors
    /// Calls are still held, or why the gate is of no use any more.
    pub fn open(&self) -> Result<(u64, Tally), String> {
        let mut state = self.shared.lock();
        state.answer = Answer::Pass;
        let at_ns = (self.shared.now)();
        Self::wake_all(&state);
        drop(state);
        let empty = supervisor::wait_empty(&self.shared, PATIENCE);
        let mut state = self.shared.lock();
        if let Some(why) = &state.broken {
            return Err(why.clone());
        }
        if !empty {
            return Err(format!(
                "{} calls are still held back {PATIENCE:?} after the gate was opened; is the host stopped?",
                state.holding
            ));
        }
        Ok((at_ns, std::mem::take(&mut state.tally)))
    }

    /// Calls that are held back now.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.shared.lock().holding
    }

    /// What was counted since the answer was set.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.shared.lock().tally.clone()
    }

    /// Says whether the gate still works.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        self.shared.lock().broken.clone().map_or(Ok(()), Err)
    }

    fn wake_all(state: &State) {
        for wake in state.wakes.iter().filter_map(Weak::upgrade) {
            // The counter cannot overflow by ones, and there is no other way to fail.
            let _ = wake.write(1);
        }
    }
}
