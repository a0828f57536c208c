//! A server that runs, stops, dies and comes back as a test has it. It stops only the process that it started
//! itself, at the latest when it is dropped.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What one kind of server has of its own.
pub(crate) trait Kind: Sized {
    /// How long a start may take on a busy machine.
    const READY_WITHIN: Duration;

    /// What starts it on its address and its data.
    fn command(server: &Server<Self>) -> Command;

    /// True once it serves.
    async fn is_ready(server: &Server<Self>) -> bool;
}

/// A server, running or killed. Its data is deleted with it.
pub(crate) struct Server<K: Kind> {
    pub(crate) endpoint: SocketAddr,
    /// What it says of itself; empty where no test asks.
    pub(crate) version: String,
    pub(crate) kind: K,
    program: PathBuf,
    data: tempfile::TempDir,
    child: Option<Child>,
}

impl<K: Kind> Server<K> {
    /// One that does not run yet.
    pub(crate) fn new(program: &Path, kind: K) -> Self {
        Self {
            endpoint: free_address(),
            version: String::new(),
            kind,
            program: program.to_owned(),
            data: tempfile::tempdir().expect("a temporary folder"),
            child: None,
        }
    }

    /// Starts its process, without waiting for it to serve.
    pub(crate) fn spawn(&mut self) {
        let child = K::command(self)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.program()));
        self.child = Some(child);
    }

    /// Waits until it serves.
    pub(crate) async fn ready(&mut self) {
        let start = Instant::now();
        while !K::is_ready(self).await {
            let ended = self.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                panic!("{} ended at its start: {status}", self.program());
            }
            let late = start.elapsed() >= K::READY_WITHIN;
            assert!(
                !late,
                "{} does not serve after {:?}",
                self.program(),
                K::READY_WITHIN
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the server, as the crash of its process does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the killed server again on its data and addresses.
    pub(crate) async fn restart(&mut self) {
        self.spawn();
        self.ready().await;
    }

    /// Stops the server in its tracks; it is stopped when this returns.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("our own child");
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// What is run, as a test was given it.
    pub(crate) fn path(&self) -> &Path {
        &self.program
    }

    /// The same in words.
    pub(crate) fn program(&self) -> String {
        self.program.display().to_string()
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// A part of its version as a number, counted from 0.
    pub(crate) fn version_part(&self, index: usize) -> u32 {
        let part = self.version.split('.').nth(index);
        part.and_then(|part| part.parse().ok())
            .unwrap_or_else(|| panic!("expected a version number, found {:?}", self.version))
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("our own child");
    }

    fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("running").id();
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }
}

impl<K: Kind> Drop for Server<K> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An address that stays free while its server is down for a restart: below the range from which the kernel
/// takes ports by itself, and given out once.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = std::process::id() * 100 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(20_000 + offset % 12_000).expect("below 32,000");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
