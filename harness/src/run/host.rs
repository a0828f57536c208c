//! A host of the sandbox with the one process that matters on it, as the nemesis reaches it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nemesis::HostControl;
use nemesis::clock::HostClock;
use nemesis::mechanism::fsync_gate::FsyncGate;
use nemesis::mechanism::undo_fs::UndoFs;
use nix::sys::signal::Signal;

use super::world::FaultableHost;
use crate::sandbox::{Host, ProcessExit, SandboxError};

/// Starts the host's process again.
pub type Restart = Box<dyn Fn(&Host) -> io::Result<()> + Send + Sync>;

/// Asks whether the host's process does its work now.
pub type IsWell = Box<dyn Fn() -> bool + Send + Sync>;

/// A host and how its process is started again.
pub struct ManagedHost {
    host: Host,
    killed: AtomicBool,
    /// Set while an end of the process is a consequence of a fault.
    excused: AtomicBool,
    restart: Restart,
    gate: Option<Arc<FsyncGate>>,
    disk: Option<UndoFs>,
    clock: Option<HostClock>,
    well: Option<IsWell>,
}

impl ManagedHost {
    /// A host whose process `restart` can start again.
    #[must_use]
    pub fn new(host: Host, restart: Restart) -> Self {
        Self {
            host,
            killed: AtomicBool::new(false),
            excused: AtomicBool::new(false),
            restart,
            gate: None,
            disk: None,
            clock: None,
            well: None,
        }
    }

    /// The same host, with the gate that `restart` puts its process behind.
    #[must_use]
    pub fn with_gate(self, gate: Option<Arc<FsyncGate>>) -> Self {
        Self { gate, ..self }
    }

    /// The same host, with the file system that its process keeps its data on.
    #[must_use]
    pub fn with_disk(self, disk: Option<UndoFs>) -> Self {
        Self { disk, ..self }
    }

    /// The same host, with the clock that its process lives by.
    #[must_use]
    pub fn with_clock(self, clock: Option<HostClock>) -> Self {
        Self { clock, ..self }
    }

    /// The same host, with somebody who can tell whether its process does its work.
    #[must_use]
    pub fn with_health(self, well: IsWell) -> Self {
        Self {
            well: Some(well),
            ..self
        }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The process's end, if it ended and nobody killed it.
    ///
    /// # Errors
    /// When the host itself is gone.
    pub fn unexpected_exit(&self) -> Result<Option<ProcessExit>, SandboxError> {
        let exit = self.host.exits().try_next()?;
        let expected = self.killed.load(Ordering::SeqCst) || self.excused.load(Ordering::SeqCst);
        Ok(exit.filter(|_| !expected))
    }
}

impl HostControl for ManagedHost {
    fn name(&self) -> &str {
        self.host.name()
    }

    fn tree(&self) -> Vec<i32> {
        self.host.tree()
    }

    fn signal_all(&self, signo: i32) -> io::Result<()> {
        let signal = Signal::try_from(signo)?;
        self.host.signal_all(signal).map_err(io::Error::other)
    }

    fn kill_all(&self) -> io::Result<()> {
        self.killed.store(true, Ordering::SeqCst);
        self.host.kill_all().map_err(io::Error::other)
    }

    fn restart(&self) -> io::Result<()> {
        // The ends of the killed processes are known; only what comes from now on is news.
        while self
            .host
            .exits()
            .try_next()
            .map_err(io::Error::other)?
            .is_some()
        {}
        (self.restart)(&self.host)?;
        self.killed.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn power_off(&self) -> io::Result<usize> {
        self.killed.store(true, Ordering::SeqCst);
        self.host.power_off().map_err(io::Error::other)
    }

    fn power_on(&self) -> io::Result<()> {
        self.host.power_on().map_err(io::Error::other)
    }

    fn undo_fs(&self) -> Option<&UndoFs> {
        self.disk.as_ref()
    }

    fn is_well(&self) -> Option<bool> {
        self.well.as_ref().map(|well| well())
    }

    fn is_down_by_fault(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    fn excuse_exit(&self, excused: bool) {
        if !excused {
            // The ends that it was excused for are known.
            while let Ok(Some(_)) = self.host.exits().try_next() {}
        }
        self.excused.store(excused, Ordering::SeqCst);
    }

    fn fsync_gate(&self) -> Option<&FsyncGate> {
        self.gate.as_deref()
    }

    fn clock(&self) -> Option<&HostClock> {
        self.clock.as_ref()
    }

    fn cgroup(&self) -> Option<&Path> {
        self.host.cgroup()
    }
}

impl FaultableHost for ManagedHost {
    fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
}
