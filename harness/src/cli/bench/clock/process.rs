//! A process that is measured with a clock of its own and without one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};
use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;

use super::free_address;

/// A process with a clock of its own or without; it ends when this is dropped.
pub(super) enum Process {
    Plain(Child),
    Clocked(Clocked),
}

impl Process {
    /// Starts it, under a clock at that rate if one is given.
    pub(super) fn start(mut command: Command, rate: Option<f64>) -> Result<Self> {
        let Some(rate) = rate else {
            return Ok(Self::Plain(command.spawn()?));
        };
        let clock = HostClock::new("bench");
        // At 1 the clock is one that was never changed, as before a fault.
        if rate != 1.0 {
            clock.set_rate(rate)?;
        }
        Ok(Self::Clocked(clock.spawn(&mut command)?))
    }

    /// Starts a cluster of one etcd, and says where clients find it.
    pub(super) fn etcd(
        binary: &Path,
        rate: Option<f64>,
        folder: &Path,
    ) -> Result<(Self, SocketAddr)> {
        let (client, peer) = (free_address()?, free_address()?);
        let url = |address: SocketAddr| format!("http://{address}");
        let mut command = Command::new(binary);
        command
            .args(["--name", "bench", "--data-dir"])
            .arg(folder)
            .args(["--listen-client-urls", &url(client)])
            .args(["--advertise-client-urls", &url(client)])
            .args(["--listen-peer-urls", &url(peer)])
            .args(["--initial-advertise-peer-urls", &url(peer)])
            .args(["--initial-cluster", &format!("bench={}", url(peer))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Self::start(command, rate).context("cannot start etcd")?;
        Ok((process, client))
    }

    /// CPU time so far, that of the supervisors of all processes included: the others are idle meanwhile.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        match self {
            Self::Plain(child) => cpu_ns(child.id(), |_| true),
            Self::Clocked(process) => {
                let own = cpu_ns(process.pid.unsigned_abs(), |_| true)?;
                Ok(own + cpu_ns(std::process::id(), |name| name == "clock")?)
            }
        }
    }

    /// Its standard output, if that was to be piped; once.
    pub(super) fn out(&mut self) -> Option<ChildStdout> {
        match self {
            Self::Plain(child) => child.stdout.take(),
            Self::Clocked(process) => process.stdout.take(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Plain(child) = self {
            // Already dead is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// CPU time of those threads of a process that have such a name (proc_pid_schedstat: its first number).
fn cpu_ns(pid: u32, wanted: impl Fn(&str) -> bool) -> Result<u64> {
    let mut sum_ns = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file));
        // A thread may end meanwhile.
        if let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat"))
            && wanted(name.trim())
        {
            let first = stat.split_ascii_whitespace().next();
            sum_ns += first.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum_ns)
}
