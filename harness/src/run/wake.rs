//! What wakes the run loop besides its workers: settled faults, restarted workers, a new leader, the user.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::worker::Worker;

/// A reason to wake up.
#[derive(Debug)]
pub enum Wake {
    /// An injection is in force, was skipped, or failed: writes that waited for it may go.
    FaultSettled {
        /// The injection.
        firing: u32,
    },
    /// A worker was started again and is ready.
    WorkerRestarted(Box<Worker>),
    /// The cluster has another leader.
    LeaderChanged,
}

/// The run loop's letter box. Clones share it.
#[derive(Clone, Debug)]
pub struct Wakes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: EventFd,
    pending: Mutex<Vec<Wake>>,
    interrupted: AtomicBool,
}

impl Wakes {
    /// An empty letter box.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> nix::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self(Arc::new(Inner {
            event,
            pending: Mutex::default(),
            interrupted: AtomicBool::new(false),
        })))
    }

    /// Puts a reason in and wakes the run loop.
    pub fn push(&self, wake: Wake) {
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(wake);
        self.ring();
    }

    /// The user wants the run to end.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether [`Self::interrupt`] was called.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::SeqCst)
    }

    /// Takes everything out.
    #[must_use]
    pub fn take(&self) -> Vec<Wake> {
        // Nothing to read means that nobody rang.
        let _ = self.0.event.read();
        std::mem::take(
            &mut *self
                .0
                .pending
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// What to poll for.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn ring(&self) {
        // It can only fail when the counter is full, and then the loop is awake already.
        let _ = self.0.event.write(1);
    }
}
