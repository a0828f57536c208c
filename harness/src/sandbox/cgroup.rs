//! The run's cgroup: one directory a run, one below it a host, so that a host can be frozen as a whole.
//!
//! cgroup directories are the one thing here that the kernel keeps when all processes are gone. The
//! sandbox init makes the run's directory and removes it; if the init itself is killed, the launcher does;
//! if both are, the next run does ([`reap_leftovers`]). The directory's name says whose it is, and a lock
//! on it says that its init lives, which also holds where its PIDs mean nothing (another container).
//!
//! The cgroups that the fault `memory` makes in a hierarchy of version 1 are locked in the same way, and
//! removed at the same three places ([`nemesis::mechanism::memory::sweep`]).
//!
//! Version 2 only here: processes frozen by the version 1 freezer survive SIGKILL. A cgroup never contains an
//! init of ours, which must run while its host is frozen.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::{Failure, Step};
use super::syscalls;

/// Start of every run directory's name.
const PREFIX: &str = "fencepost-";

/// How long a directory may stay busy after its last process was reaped, before it is left to the next run.
const REMOVE_WITHIN: Duration = Duration::from_secs(2);

/// Name of the run's directory: launcher's PID, its start time (PIDs are reused), number of the sandbox.
pub(super) fn run_name(sandbox_number: u32) -> Option<String> {
    let pid = std::process::id();
    Some(format!(
        "{PREFIX}{pid}-{}-{sandbox_number}",
        start_time(pid)?
    ))
}

/// A run's directory, made by this process.
pub(super) struct RunCgroup {
    path: PathBuf,
    /// Keeps the directory locked while this process lives.
    _lock: File,
}

impl RunCgroup {
    /// Makes the directory where the system lets us, or says why it does not.
    pub(super) fn create(name: &str) -> Result<Self, String> {
        nemesis::mechanism::memory::sweep();
        let mut reasons = Vec::new();
        for parent in candidates()? {
            reap_leftovers(&parent);
            match Self::create_in(&parent, name) {
                Ok(run) => return Ok(run),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!(
            "no cgroup v2 directory is ours to use ({}); without root, `systemd-run --user --scope \
             -p Delegate=yes fencepost …` gives one",
            reasons.join("; ")
        ))
    }

    fn create_in(parent: &Path, name: &str) -> Result<Self, String> {
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|e| format!("mkdir {}: {e}", path.display()))?;
        let made = Self::check(&path);
        if made.is_err() {
            let _ = fs::remove_dir(&path);
        }
        made.map(|lock| Self { path, _lock: lock })
    }

    /// Whether hosts can be frozen in a directory just made.
    fn check(path: &Path) -> Result<File, String> {
        let lock = File::open(path).map_err(|e| format!("open {}: {e}", path.display()))?;
        if !syscalls::try_lock(lock.as_fd()).map_err(|e| format!("lock {}: {e}", path.display()))?
            || !path.exists()
        {
            return Err(format!(
                "{} was taken by another run's clean-up",
                path.display()
            ));
        }
        if !path.join("cgroup.freeze").exists() {
            return Err(format!(
                "{} has no cgroup.freeze: Linux 5.2 or later is needed",
                path.display()
            ));
        }
        let kind = fs::read_to_string(path.join("cgroup.type")).unwrap_or_default();
        if kind.trim() != "domain" {
            return Err(format!(
                "{} is of type {:?}, not domain",
                path.display(),
                kind.trim()
            ));
        }
        // Processes move out of our own cgroup, which needs write access there too.
        let own = own_directory()?.join("cgroup.procs");
        File::options()
            .write(true)
            .open(&own)
            .map_err(|e| format!("open {} for writing: {e}", own.display()))?;
        Ok(lock)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with all that is below it. Every process in it must have been reaped.
    pub(super) fn remove(self) {
        remove(&self.path);
    }
}

/// Makes a host's directory below the run's, and opens its `cgroup.procs` for those who enter it.
pub(super) fn create_host(run: &Path, host: &str) -> Result<(PathBuf, OwnedFd), Failure> {
    let path = run.join(host);
    match fs::create_dir(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::io(
                Step::Cgroup,
                format!("make the cgroup {}", path.display()),
                &e,
            ));
        }
        _ => {}
    }
    let procs = path.join("cgroup.procs");
    let file = File::options().write(true).open(&procs).map_err(|e| {
        Failure::io(
            Step::Cgroup,
            format!("open {} for writing", procs.display()),
            &e,
        )
    })?;
    Ok((path, file.into()))
}

/// Removes a run's directory, retrying while the kernel still counts processes that were just reaped.
pub(super) fn remove(run: &Path) {
    let deadline = Instant::now() + REMOVE_WITHIN;
    while !remove_once(run) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Removes whatever directory of this name exists, wherever it would have been made.
pub(super) fn remove_named(name: &str) {
    for parent in candidates().unwrap_or_default() {
        remove(&parent.join(name));
    }
}

/// One attempt, children first; true if the directory is gone.
fn remove_once(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_once(&entry.path());
        }
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes the directories of runs whose launcher and init are both gone. It kills nothing: a directory
/// that still holds processes stays.
fn reap_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, started)) = name.to_str().and_then(parse_run_name) else {
            continue;
        };
        if start_time(pid) == Some(started) {
            continue;
        }
        let unlocked =
            File::open(entry.path()).is_ok_and(|d| syscalls::try_lock(d.as_fd()) == Ok(true));
        if unlocked {
            remove_once(&entry.path());
        }
    }
}

/// PID and start time from a run directory's name.
fn parse_run_name(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let parsed = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next()?.parse::<u32>().ok()?;
    Some(parsed)
}

/// Start time of a process in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in brackets and may contain anything, so count from its end.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(22 - 3)?
        .parse()
        .ok()
}

/// Directories in which the run's may be made: our own cgroup, then the hierarchy's root (for hybrid
/// systems, where everything is in the root).
fn candidates() -> Result<Vec<PathBuf>, String> {
    let own = own_directory()?;
    let (root, _) = hierarchy()?;
    Ok(if own == root {
        vec![own]
    } else {
        vec![own, root]
    })
}

/// The directory of the cgroup that this process is in.
fn own_directory() -> Result<PathBuf, String> {
    let (mount_point, mount_root) = hierarchy()?;
    let text = fs::read_to_string("/proc/self/cgroup")
        .map_err(|e| format!("read /proc/self/cgroup: {e}"))?;
    own_path(&text, &mount_root)
        .map(|relative| mount_point.join(relative))
        .ok_or_else(|| {
            format!(
                "our cgroup is outside of the hierarchy mounted on {}",
                mount_point.display()
            )
        })
}

/// Our path below the mount point, from the text of /proc/self/cgroup.
fn own_path(proc_self_cgroup: &str, mount_root: &str) -> Option<PathBuf> {
    let path = proc_self_cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    let relative = Path::new(path).strip_prefix(mount_root).ok()?;
    let inside = !relative
        .components()
        .any(|c| c == std::path::Component::ParentDir);
    inside.then(|| relative.to_path_buf())
}

/// Where a cgroup v2 hierarchy is mounted, and which of its cgroups is the mount's root.
fn hierarchy() -> Result<(PathBuf, String), String> {
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| format!("read /proc/self/mountinfo: {e}"))?;
    find_hierarchy(&text).ok_or_else(|| "no cgroup v2 hierarchy is mounted".into())
}

/// The same from the text of mountinfo (proc(5)): `id parent dev root mount-point options … - type …`.
fn find_hierarchy(mountinfo: &str) -> Option<(PathBuf, String)> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let spaces = |text: &str| text.replace("\\040", " ");
        kind.starts_with("cgroup2 ")
            .then(|| (PathBuf::from(spaces(point)), spaces(root)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_on_unified_and_hybrid_systems() {
        let unified =
            "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            find_hierarchy(unified),
            Some(("/sys/fs/cgroup".into(), "/".into()))
        );
        let hybrid = "34 31 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        assert_eq!(
            find_hierarchy(hybrid),
            Some(("/sys/fs/cgroup/unified".into(), "/".into()))
        );
        assert_eq!(
            find_hierarchy("34 31 0:31 / /sys rw - cgroup cgroup rw,freezer"),
            None
        );
    }

    #[test]
    fn our_own_cgroup_is_found_below_the_mount_only() {
        assert_eq!(
            own_path("6:freezer:/\n0::/a/b.scope\n", "/"),
            Some("a/b.scope".into())
        );
        assert_eq!(own_path("0::/docker/x/y\n", "/docker/x"), Some("y".into()));
        assert_eq!(own_path("0::/../other\n", "/"), None);
        assert_eq!(own_path("6:freezer:/\n", "/"), None);
    }

    #[test]
    fn run_names_carry_their_owner() {
        let name = run_name(7).unwrap();
        let pid = std::process::id();
        assert_eq!(parse_run_name(&name), Some((pid, start_time(pid).unwrap())));
        for foreign in [
            "fencepost-",
            "fencepost-1",
            "fencepost-1-2",
            "fencepost-x-2-3",
            "system.slice",
        ] {
            assert_eq!(parse_run_name(foreign), None, "{foreign}");
        }
    }
}
