//! What the nemesis needs from its surroundings: a host that it can act on, and a world that knows who is who.
//!
//! Both are implemented by the harness. Nothing in here does anything.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Target;
use crate::clock::HostClock;
use crate::mechanism::fsync_gate::FsyncGate;
use crate::mechanism::links::Links;
use crate::mechanism::undo_fs::UndoFs;

/// One host of the sandbox (a node or a client) and its application: the processes that faults act on.
///
/// The host's own init is not part of the application: it must stay able to act while the application
/// is stopped. All calls come from threads of the engine that live for one firing, so an
/// implementation must not fork from the calling thread with a parent-death signal (which follows the
/// thread).
pub trait HostControl: Send + Sync {
    /// The host's name, for instance `c1`.
    fn name(&self) -> &str;

    /// The processes of the application, by their numbers in our own `/proc`. Empty when it is not
    /// running.
    fn tree(&self) -> Vec<i32>;

    /// Sends a signal to every process of the application, at one moment if possible.
    ///
    /// # Errors
    /// What the kernel or the host's init answered.
    fn signal_all(&self, signo: i32) -> io::Result<()>;

    /// Kills every process of the application (SIGKILL).
    ///
    /// # Errors
    /// What the kernel or the host's init answered.
    fn kill_all(&self) -> io::Result<()>;

    /// Starts the application again, on its data and its address. Need not wait until it is ready.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] says that this host's application is never started again, which
    /// a crash then reports without calling it a failure. Any other error is one.
    fn restart(&self) -> io::Result<()>;

    /// Takes the host's power: from one moment on nothing of it gets out, every process is killed, and
    /// its connections are gone without a word to their peers. Returns how many there were.
    ///
    /// # Errors
    /// What the kernel or the host's init answered. Some of it may be done.
    fn power_off(&self) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives it its power back: its link is up again. The application is started by
    /// [`restart`](Self::restart).
    ///
    /// # Errors
    /// What the kernel or the host's init answered.
    fn power_on(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The file system that the application keeps its data on, if it is one that can forget
    /// ([`Need::UndoFs`](crate::Need::UndoFs)).
    fn undo_fs(&self) -> Option<&UndoFs> {
        None
    }

    /// Whether the application does its work, asked just now; `None` when there is nobody to ask. May take
    /// as long as an answer takes.
    fn is_well(&self) -> Option<bool> {
        None
    }

    /// True while the application is down because a fault killed it, and will start it again.
    fn is_down_by_fault(&self) -> bool {
        false
    }

    /// Whether from now on an end of the application is to be taken for a consequence of a fault, and not
    /// for an accident that spoils the trial.
    fn excuse_exit(&self, excused: bool) {
        let _ = excused;
    }

    /// The gate that every sync of the application passes, if it was started with one
    /// ([`Need::FsyncGate`](crate::Need::FsyncGate)).
    fn fsync_gate(&self) -> Option<&FsyncGate> {
        None
    }

    /// The clock that the application lives by, if it was started with one of its own
    /// ([`Need::Clock`](crate::Need::Clock)).
    fn clock(&self) -> Option<&HostClock> {
        None
    }

    /// The cgroup v2 directory that holds the application's processes and no others, if there is one.
    fn cgroup(&self) -> Option<&Path>;
}

/// The hosts of a trial, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The nodes, in their order.
    pub nodes: Vec<String>,
    /// The client hosts, in their order.
    pub clients: Vec<ClientOf>,
}

/// A client host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOf {
    /// Its name.
    pub name: String,
    /// The node that it talks to, if it is one.
    pub node: Option<String>,
}

/// Who is who at this moment, and what lies between them.
pub trait World: Send + Sync {
    /// All hosts. A world without a network has no need of it.
    fn roster(&self) -> Roster {
        Roster::default()
    }

    /// The network between the hosts.
    ///
    /// # Errors
    /// Why there is none that faults can act on.
    fn links(&self) -> Result<Arc<dyn Links>, String> {
        Err("expected a network between the hosts, found none".to_owned())
    }

    /// The hosts that a target means right now. `about` is the host that the triggering event was
    /// about, if an event triggered the fault: for `holder` and `waiter` that host is meant if it still
    /// fits. `pick` is drawn from the seed and decides wherever there is a choice.
    ///
    /// # Errors
    /// Why nobody fits, in words for the history. The firing is then skipped.
    fn resolve(
        &self,
        target: &Target,
        about: Option<&str>,
        pick: u64,
    ) -> Result<Vec<Arc<dyn HostControl>>, String>;
}
