//! The thread that answers the kernel for one process and all that it starts.
//!
//! It must never leave a call without an answer: it ends only when no filtered process is left, and if
//! it ends in any other way it kills the process first, because the kernel would answer ENOSYS to it
//! from then on, which no program expects of fsync.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::listener::{Call, Listener, Verdict};
use super::{Answer, Shared};
use crate::mechanism::proof::ProcessId;

/// A call that is held back.
struct Held {
    call: Call,
    /// When it first reached the gate.
    since_ns: u64,
    /// When it may go on; `None` when it waits for the gate to be opened.
    due_ns: Option<u64>,
}

/// The thread's state.
struct Supervisor {
    /// Kills the process unless the supervisor ended well. The first field, because it must do so before
    /// the listener is closed and the kernel answers in our place.
    guarded: Guarded,
    shared: Arc<Shared>,
    listener: Listener,
    wake: Arc<EventFd>,
    held: Vec<Held>,
}

/// Starts a supervisor for a process that was just started.
pub(super) fn start(
    shared: &Arc<Shared>,
    listener: OwnedFd,
    process: i32,
    wake: Arc<EventFd>,
) -> io::Result<()> {
    let supervisor = Supervisor {
        shared: Arc::clone(shared),
        listener: Listener::new(listener),
        wake,
        held: Vec::new(),
        guarded: Guarded {
            shared: Arc::clone(shared),
            process: ProcessId::find(process),
            ended_well: false,
        },
    };
    thread::Builder::new()
        .name(format!("gate-{}", shared.host))
        .spawn(move || supervisor.run())?;
    Ok(())
}

impl Supervisor {
    fn run(mut self) {
        match self.serve() {
            Ok(()) => self.guarded.ended_well = true,
            Err(error) => self
                .shared
                .break_down(format!("its supervisor failed: {error}")),
        }
        // Calls that were held belong to processes that are gone.
        let mut state = self.shared.lock();
        state.tally.died += self.held.len() as u64;
        state.holding -= self.held.len();
        self.held.clear();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Returns when no filtered process is left.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let mut ready = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let flags = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
            let (asked, woken) = (flags(&ready[0]), flags(&ready[1]));
            if woken.contains(PollFlags::POLLIN) {
                self.wake.read()?;
            }
            if asked.contains(PollFlags::POLLIN) {
                if let Some(call) = self.listener.receive()? {
                    self.take(call)?;
                }
            } else if asked.contains(PollFlags::POLLHUP) {
                return Ok(());
            }
            self.let_go()?;
        }
    }

    /// Until the next held call is due. Poll counts in milliseconds, and late is better than a busy loop.
    fn timeout(&self) -> PollTimeout {
        let next_ns = self.held.iter().filter_map(|held| held.due_ns).min();
        next_ns.map_or(PollTimeout::NONE, |due_ns| {
            let left_ns = due_ns.saturating_sub((self.shared.now)());
            PollTimeout::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
        })
    }

    /// Answers a call, or holds it back.
    fn take(&mut self, call: Call) -> io::Result<()> {
        let now_ns = (self.shared.now)();
        let mut state = self.shared.lock();
        // A thread is in one call at a time: a second notification means that it handled a signal and
        // the kernel restarted the same call, which waits on as if nothing had happened.
        let restarted = self
            .held
            .iter_mut()
            .find(|held| held.call.thread == call.thread && held.call.number == call.number);
        if let Some(held) = restarted {
            held.call = call;
            return Ok(());
        }
        state.tally.reach(call.number);
        let verdict = match state.answer {
            Answer::Pass => Verdict::Continue,
            Answer::Fail { errno } => {
                state.tally.failed += 1;
                Verdict::Fail(errno)
            }
            Answer::Lie => {
                state.tally.lied += 1;
                Verdict::Nothing
            }
            Answer::Hold | Answer::Slow { .. } => {
                let due_ns = match state.answer {
                    Answer::Slow { delay_ns } => Some(now_ns.saturating_add(delay_ns)),
                    _ => None,
                };
                state.holding += 1;
                self.held.push(Held {
                    call,
                    since_ns: now_ns,
                    due_ns,
                });
                return Ok(());
            }
        };
        drop(state);
        self.listener.answer(call.id, verdict).map(drop)
    }

    /// Lets those calls go on that are due, or all that are held when the gate no longer holds any.
    fn let_go(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut state = self.shared.lock();
        let open = !matches!(state.answer, Answer::Hold | Answer::Slow { .. });
        let now_ns = (self.shared.now)();
        let mut kept = Vec::with_capacity(self.held.len());
        for held in self.held.drain(..) {
            let due = held.due_ns.is_some_and(|due_ns| due_ns <= now_ns);
            if !open && !due {
                kept.push(held);
                continue;
            }
            let answered = self.listener.answer(held.call.id, Verdict::Continue)?;
            let lives = answered || thread_lives(held.call.thread);
            if !lives {
                state.tally.died += 1;
                state.holding -= 1;
            } else if answered || open {
                // Without an answer it handles a signal or is stopped; it will come back to an open gate.
                let late_ns = match held.due_ns {
                    Some(due_ns) if due => now_ns - due_ns,
                    _ => 0,
                };
                state.tally.let_go(now_ns - held.since_ns, late_ns);
                state.holding -= 1;
            } else {
                kept.push(held);
            }
        }
        self.held = kept;
        // What died in the meantime is told by the kernel with nothing: look.
        let listener = &self.listener;
        let before = self.held.len();
        self.held
            .retain(|held| listener.waits(held.call.id) || thread_lives(held.call.thread));
        let died = before - self.held.len();
        state.tally.died += died as u64;
        state.holding -= died;
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }
}

/// Whether a thread exists and is not a zombie.
fn thread_lives(thread: u32) -> bool {
    i32::try_from(thread).is_ok_and(|thread| ProcessId::find(thread).is_some())
}

/// The process that a supervisor is responsible for.
struct Guarded {
    shared: Arc<Shared>,
    process: Option<ProcessId>,
    ended_well: bool,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.ended_well {
            return;
        }
        self.shared
            .break_down("its supervisor ended before its time".to_owned());
        // It is the leader of a session of its own, so its number is also that of its group.
        if let Some(process) = self.process.filter(ProcessId::is_alive) {
            for target in [-process.pid, process.pid] {
                // Already dead is as good.
                let _ = kill(Pid::from_raw(target), Signal::SIGKILL);
            }
        }
    }
}

/// Waits until no call is held any more; false when the deadline passed first.
pub(super) fn wait_empty(shared: &Shared, patience: std::time::Duration) -> bool {
    let state = shared.lock();
    let waited = shared
        .changed
        .wait_timeout_while(state, patience, |state| state.holding > 0);
    let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
    state.holding == 0
}
