//! Tries each mechanism on this machine, by doing to a child of ours what would be done to a host.
//!
//! Nothing is concluded from versions or settings: what works is what worked. The child is `sleep`,
//! which ends by itself should we be killed in the middle.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::HostControl;
use crate::clock::{HostClock, NOT_SKEWED};
use crate::mechanism::cgroup::OwnCgroup;
use crate::mechanism::fsync_gate::{Answer, FsyncGate, launch};
use crate::mechanism::memory::{self, Squeeze};
use crate::mechanism::proof::ProcessId;
use crate::mechanism::stopper::Stopper;
use crate::mechanism::undo_fs::{Keep, UndoFs};
use crate::mechanism::{Availability, freezer, sigstop};

/// How long a mechanism may take.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Freezes and thaws a child in a cgroup of its own.
#[must_use]
pub fn freezer() -> Availability {
    let tried = || {
        let cgroup = own_cgroup()?;
        let sleeper = Sleeper::start(Some(cgroup))?;
        sleeper.stop_and_go(true)
    };
    report(
        freezer::NAME,
        "froze and thawed a process",
        tried(),
        "; pauses use SIGSTOP instead",
    )
}

/// Stops and continues a child by signals.
#[must_use]
pub fn sigstop() -> Availability {
    let tried = || Sleeper::start(None)?.stop_and_go(false);
    report(
        sigstop::NAME,
        "stopped and continued a process",
        tried(),
        "",
    )
}

/// Kills a child and sees it gone.
#[must_use]
pub fn sigkill() -> Availability {
    let tried = || {
        let sleeper = Sleeper::start(None)?;
        let process = ProcessId::find(sleeper.pid.as_raw()).ok_or("the child died on its own")?;
        sleeper.kill_all().map_err(|error| error.to_string())?;
        sigstop::look_until(wall_ns() + PATIENCE_NS, wall_ns, || {
            if process.is_alive() {
                Err("still alive 1 s after SIGKILL".to_owned())
            } else {
                Ok(())
            }
        })
        .map(drop)
    };
    report("SIGKILL", "killed a process", tried(), "")
}

/// Bounds the memory of a child by cgroup v2, and lets it go.
#[must_use]
pub fn memory_high() -> Availability {
    let tried = || {
        let cgroup = own_cgroup()?;
        let sleeper = Sleeper::start(Some(cgroup))?;
        squeeze(&sleeper, Squeeze::by_high)
    };
    report(memory::HIGH, "bounded the memory of a process", tried(), "")
}

/// Moves a child to a cgroup v1 whose memory is bounded, and back.
#[must_use]
pub fn memory_limit() -> Availability {
    let tried = || squeeze(&Sleeper::start(None)?, Squeeze::by_limit);
    report(
        memory::LIMIT,
        "bounded the memory of a process in a cgroup of its own, and moved it back",
        tried(),
        "",
    )
}

/// Bounds the memory of a child in one way.
fn squeeze(
    sleeper: &Sleeper,
    begin: fn(&dyn HostControl, f64) -> Result<Squeeze, String>,
) -> Result<(), String> {
    let mut squeeze = begin(sleeper, 0.5)?;
    squeeze.still()?;
    squeeze.hits()?;
    squeeze.lift()
}

/// A cgroup v2 for one child.
fn own_cgroup() -> Result<OwnCgroup, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    OwnCgroup::create(&format!("fencepost-probe-{}-{number}", std::process::id()))
}

/// Lets a child sync a file behind a gate that fails every sync, and sees it fail.
#[must_use]
pub fn fsync_gate() -> Availability {
    let tried = || {
        let gate = FsyncGate::new("probe", wall_ns);
        let mut command = Command::new("sync");
        command
            .arg("/proc/self/exe")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        gate.set(Answer::Fail { errno: libc::EIO })?;
        let child = launch::spawn(&gate, &mut command);
        let mut child = child.map_err(|error| {
            format!(
                "seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER): {error}; \
                 Linux 5.5 with CONFIG_SECCOMP_FILTER is needed; in Docker: --privileged"
            )
        })?;
        let status = child.wait().map_err(|error| error.to_string())?;
        let (_, tally) = gate.open()?;
        if tally.failed == 0 || status.success() {
            return Err(format!(
                "expected a sync that fails, found that `sync` {status} and {tally}"
            ));
        }
        Ok(())
    };
    report(
        "fsync gate (seccomp user notification)",
        "made a sync of a child fail",
        tried(),
        "",
    )
}

/// Mounts the file system that forgets, and lets it forget a file. Without root that works in a sandbox only,
/// where we may mount.
#[must_use]
pub fn undo_fs() -> Availability {
    let tried = || {
        let folder = std::env::temp_dir().join(format!("fencepost-probe-{}", std::process::id()));
        let (backing, point) = (folder.join("backing"), folder.join("mnt"));
        let folders = || -> std::io::Result<()> {
            std::fs::create_dir_all(&backing)?;
            std::fs::create_dir_all(&point)
        };
        folders().map_err(|error| format!("mkdir {}: {error}", folder.display()))?;
        let tried = forget_a_file(&backing, &point);
        // Ours alone, and empty but for what was just made.
        let _ = std::fs::remove_dir_all(&folder);
        tried
    };
    report(
        "file system that forgets (FUSE)",
        "lost a file that was not synced and kept one that was",
        tried(),
        "",
    )
}

/// Lets a child write two files in the mount and sync one of them.
fn forget_a_file(backing: &Path, point: &Path) -> Result<(), String> {
    let disk = UndoFs::mount(backing, point)?;
    let wrote = Command::new("sh")
        .args(["-c", "echo 1 >kept && sync kept && echo 2 >lost"])
        .current_dir(point)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let wrote = wrote.map_err(|error| format!("sh could not be started: {error}"))?;
    let loss = disk
        .lose(Keep::Nothing)
        .map_err(|error| error.to_string())?;
    let there = |name| backing.join("live").join(name).exists();
    if wrote.success() && there("kept") && !there("lost") {
        return Ok(());
    }
    Err(format!(
        "expected to keep one file of two, found that the writer {wrote} and {loss}"
    ))
}

/// Lets a child read the wall clock, sleep, and read again at twice the speed and an hour ahead.
#[must_use]
pub fn own_clock() -> Availability {
    const HOUR_S: i64 = 3600;
    let tried = || {
        let clock = HostClock::new("probe");
        clock.set_rate(2.0).map_err(|error| error.to_string())?;
        clock
            .step_wall(HOUR_S * 1_000_000_000)
            .map_err(|error| error.to_string())?;
        let mut command = Command::new("sh");
        command
            .args(["-c", "date +%s; sleep 0.2"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let began = Instant::now();
        let mut child = clock
            .spawn(&mut command)
            .map_err(|error| error.to_string())?;
        let mut text = String::new();
        if let Some(out) = &mut child.stdout {
            out.read_to_string(&mut text)
                .map_err(|error| error.to_string())?;
        }
        child.wait().map_err(|error| error.to_string())?;
        let took = began.elapsed();
        let ahead_s = text.trim().parse::<i64>().unwrap_or(0) - wall_ns() as i64 / 1_000_000_000;
        // The sleep itself may not be longer than asked, whatever else the machine does meanwhile.
        if (ahead_s - HOUR_S).abs() > 2 || took < Duration::from_millis(100) {
            return Err(format!(
                "expected a child an hour ahead that sleeps for 0.1 s, found it {ahead_s} s ahead and \
                 asleep for {took:?}"
            ));
        }
        if clock.tally().rewritten == 0 {
            return Err(format!(
                "expected a sleep to be rewritten, found {}",
                clock.tally()
            ));
        }
        Ok(())
    };
    report(
        "own clock (ptrace, seccomp, vDSO)",
        &format!("a child read and slept by a clock of its own; not reached: {NOT_SKEWED}"),
        tried(),
        "",
    )
}

fn report(
    mechanism: &'static str,
    worked: &str,
    tried: Result<(), String>,
    consequence: &str,
) -> Availability {
    Availability {
        mechanism,
        usable: tried.is_ok(),
        detail: match tried {
            Ok(()) => worked.to_owned(),
            Err(why) => format!("{why}{consequence}"),
        },
    }
}

/// A clock for deadlines only; nothing that is measured here is kept.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// A child that sleeps, as a host. It is killed when dropped, before its cgroup is removed.
struct Sleeper {
    child: Child,
    pid: Pid,
    cgroup: Option<OwnCgroup>,
}

impl Sleeper {
    fn start(cgroup: Option<OwnCgroup>) -> Result<Self, String> {
        let child = Command::new("sleep")
            .arg("10")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("sleep could not be started: {error}"))?;
        let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        let sleeper = Self {
            child,
            pid: Pid::from_raw(pid),
            cgroup,
        };
        if let Some(cgroup) = &sleeper.cgroup {
            cgroup.add(pid).map_err(|error| {
                format!("moving a process to {}: {error}", cgroup.path().display())
            })?;
        }
        Ok(sleeper)
    }

    /// Stops the child, confirms it, and lets it go on.
    fn stop_and_go(&self, by_freezer: bool) -> Result<(), String> {
        let stopper = Stopper::stop(self)?;
        if let (true, Stopper::Sigstop { because }) = (by_freezer, &stopper) {
            return Err(because.clone());
        }
        stopper.wait_stopped(self, wall_ns() + PATIENCE_NS, wall_ns)?;
        stopper.resume(self)?;
        stopper.wait_running(self, wall_ns() + PATIENCE_NS, wall_ns)?;
        Ok(())
    }
}

impl HostControl for Sleeper {
    fn name(&self) -> &str {
        "probe"
    }

    fn tree(&self) -> Vec<i32> {
        vec![self.pid.as_raw()]
    }

    fn signal_all(&self, signo: i32) -> io::Result<()> {
        let signal = Signal::try_from(signo)?;
        Ok(kill(self.pid, signal)?)
    }

    fn kill_all(&self) -> io::Result<()> {
        self.signal_all(libc::SIGKILL)
    }

    fn restart(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(OwnCgroup::path)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // Already dead is as good; there is nobody to tell anything else.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_work_everywhere_and_the_freezer_says_why_it_does_not() {
        for found in [sigstop(), sigkill()] {
            assert!(found.usable, "{found:?}");
        }
        let found = freezer();
        println!("{found:?}");
        assert!(found.usable || found.detail.contains("SIGSTOP instead"));
    }
}
