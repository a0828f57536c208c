//! Bounds what a host's processes may newly take of memory: `memory.high` of cgroup v2, which throttles
//! (Documentation/admin-guide/cgroup-v2.rst), or `memory.limit_in_bytes` of cgroup v1 without OOM kill, where
//! whoever needs more waits (Documentation/admin-guide/cgroup-v1/memory.rst).
//!
//! Neither version moves what is charged already, so the bound is on what is charged from now on; to make it
//! bite, the processes' pages of files are paged out first. In version 2 the bound is set on the host's own
//! cgroup. In version 1 the processes move to a cgroup of its own and back: it is locked while its maker
//! lives, so that [`sweep`] can tell those that a kill left behind. Nobody is ever killed here.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use crate::HostControl;
use crate::mechanism::pageout;
use crate::mechanism::proof::ProcessId;

/// Name of the mechanism of cgroup v2.
pub const HIGH: &str = "cgroup v2 memory.high";
/// Name of the mechanism of cgroup v1.
pub const LIMIT: &str = "cgroup v1 memory.limit_in_bytes";

/// Start of the names of the cgroups that are made here.
const PREFIX: &str = "fencepost-memory-";
/// The kernel charges in batches of some hundred kilobytes a CPU; nothing runs with less than this.
const LEAST: u64 = 1 << 20;
const LIMIT_FILE: &str = "memory.limit_in_bytes";
const PROCS: &str = "cgroup.procs";
/// Attempts to empty and to remove a cgroup, 5 ms apart: the kernel lets go of killed processes a little later.
const ATTEMPTS: u32 = 400;

/// A bound in force. It is lifted when this is dropped.
#[derive(Debug)]
pub struct Squeeze {
    way: Way,
    /// The processes' memory when it was asked for, in bytes.
    pub used: u64,
    /// What they may newly take, in bytes.
    pub room: u64,
    /// What was paged out of mapped files, in bytes, or why they could not be.
    pub paged_out: Result<u64, String>,
    /// What the counter of hits said when it began.
    hits_before: u64,
    lifted: bool,
}

/// How it is bounded.
#[derive(Debug)]
enum Way {
    /// By the host's own cgroup, and its `memory.high` of before.
    High { dir: PathBuf, before: String },
    /// By a cgroup made for it.
    Limit(Moved),
}

impl Squeeze {
    /// Bounds what a host may newly take to a share of what it uses, by the first way that works.
    ///
    /// # Errors
    /// No way worked; says what was tried.
    pub fn begin(host: &dyn HostControl, share: f64) -> Result<Self, String> {
        Self::by_high(host, share).or_else(|high| {
            Self::by_limit(host, share).map_err(|limit| format!("{HIGH}: {high}; {LIMIT}: {limit}"))
        })
    }

    /// The same by cgroup v2 only.
    ///
    /// # Errors
    /// What was tried, what the kernel answered, and what to do.
    pub fn by_high(host: &dyn HostControl, share: f64) -> Result<Self, String> {
        let dir = host.cgroup().ok_or("the host has no cgroup v2")?;
        let high = dir.join("memory.high");
        if !high.exists() {
            enable(dir)?;
        }
        let before = read(&high)?.trim().to_owned();
        let used = used_by(&host.tree());
        let paged_out = page_out(&host.tree());
        let room = room(used, share);
        let mut squeeze = Self {
            way: Way::High {
                dir: dir.to_owned(),
                before,
            },
            used,
            room,
            paged_out,
            hits_before: 0,
            lifted: false,
        };
        squeeze.hits_before = squeeze.hits()?;
        let charged = number(&dir.join("memory.current"))?;
        write(&high, &(charged + room).to_string())?;
        Ok(squeeze)
    }

    /// The same by cgroup v1 only.
    ///
    /// # Errors
    /// What was tried, what the kernel answered, and what to do.
    pub fn by_limit(host: &dyn HostControl, share: f64) -> Result<Self, String> {
        let mut moved = Moved::create(host.name())?;
        let used = used_by(&host.tree());
        let room = room(used, share);
        // First that nobody is killed, then the limit.
        write(&moved.dir.join("memory.oom_control"), "1")?;
        write(&moved.dir.join(LIMIT_FILE), &room.to_string())?;
        moved.enter(host)?;
        Ok(Self {
            paged_out: page_out(&host.tree()),
            way: Way::Limit(moved),
            used,
            room,
            hits_before: 0,
            lifted: false,
        })
    }

    /// The mechanism's name.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self.way {
            Way::High { .. } => HIGH,
            Way::Limit(_) => LIMIT,
        }
    }

    /// How often the bound was hit since it began.
    ///
    /// # Errors
    /// The kernel's counter could not be read.
    pub fn hits(&self) -> Result<u64, String> {
        let counted = match &self.way {
            Way::High { dir, .. } => {
                let events = read(&dir.join("memory.events"))?;
                let high = events.lines().find_map(|line| line.strip_prefix("high "));
                high.and_then(|number| number.parse().ok()).ok_or_else(|| {
                    format!("expected \"high N\" in memory.events, found {events:?}")
                })?
            }
            Way::Limit(moved) => number(&moved.dir.join("memory.failcnt"))?,
        };
        Ok(counted.saturating_sub(self.hits_before))
    }

    /// Checks that every process that was bounded still is.
    ///
    /// # Errors
    /// What is not.
    pub fn still(&self) -> Result<(), String> {
        let Way::Limit(moved) = &self.way else {
            return Ok(());
        };
        let members = moved.members()?;
        let escaped = |pid: &&i32| !members.contains(pid) && ProcessId::find(**pid).is_some();
        match moved.origins.keys().find(escaped) {
            Some(pid) => Err(format!("process {pid} is not in {}", moved.dir.display())),
            None => Ok(()),
        }
    }

    /// Lifts the bound and brings the processes back to where they were.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn lift(&mut self) -> Result<(), String> {
        let done = match &mut self.way {
            Way::High { dir, before } => write(&dir.join("memory.high"), before),
            Way::Limit(moved) => moved.bring_back(),
        };
        self.lifted = done.is_ok();
        done
    }
}

impl Drop for Squeeze {
    fn drop(&mut self) {
        if !self.lifted {
            // There is nobody left to tell; a cgroup of ours tries once more when it is dropped.
            let _ = self.lift();
        }
    }
}

/// A cgroup v1 of our own, and where the processes in it came from.
#[derive(Debug)]
struct Moved {
    dir: PathBuf,
    /// Tells [`sweep`] that we live.
    _lock: Flock<File>,
    /// By process.
    origins: HashMap<i32, PathBuf>,
    /// Where those go that were born since.
    home: PathBuf,
    gone: bool,
}

impl Moved {
    /// Makes one where the system lets us, or says why it does not.
    fn create(host: &str) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for parent in candidates()? {
            match Self::create_in(&parent, host) {
                Ok(made) => return Ok(made),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!(
            "{}; run as root, with the memory controller's hierarchy writable",
            reasons.join("; ")
        ))
    }

    fn create_in(parent: &Path, host: &str) -> Result<Self, String> {
        let pid = std::process::id();
        let mut last = String::new();
        // Numbers of processes may mean another in another run's namespace.
        for number in 0..100 {
            let dir = parent.join(format!("{PREFIX}{pid}-{number}-{host}"));
            match fs::create_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(format!("mkdir {}: {error}", dir.display())),
                Ok(()) => {}
            }
            match lock(&dir) {
                // Another run's sweep may have taken it for a leftover before it was locked.
                Ok(lock) if dir.join(PROCS).exists() => {
                    return Ok(Self {
                        dir,
                        _lock: lock,
                        origins: HashMap::new(),
                        home: parent.to_owned(),
                        gone: false,
                    });
                }
                found => last = found.err().unwrap_or_default(),
            }
            let _ = fs::remove_dir(&dir);
        }
        Err(format!(
            "a hundred cgroups {PREFIX}{pid}-… in {} are another's {last}; remove them",
            parent.display()
        ))
    }

    /// Moves the host's processes into it, those born meanwhile too.
    fn enter(&mut self, host: &dyn HostControl) -> Result<(), String> {
        for _ in 0..ATTEMPTS {
            let members = self.members()?;
            let tree = host.tree();
            let outside: Vec<i32> = tree
                .into_iter()
                .filter(|pid| !members.contains(pid))
                .collect();
            if outside.is_empty() && !members.is_empty() {
                return Ok(());
            }
            for pid in outside {
                if let Ok(origin) = directory_of(&format!("/proc/{pid}/cgroup")) {
                    self.home.clone_from(&origin);
                    self.origins.insert(pid, origin);
                }
                put(&self.dir, pid)?;
            }
        }
        Err(format!(
            "its processes did not all move to {}",
            self.dir.display()
        ))
    }

    fn members(&self) -> Result<Vec<i32>, String> {
        let procs = read(&self.dir.join(PROCS))?;
        Ok(procs.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Lifts the limit, moves everybody back, and removes the directory.
    fn bring_back(&mut self) -> Result<(), String> {
        write(&self.dir.join(LIMIT_FILE), "-1")?;
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            for pid in self.members()? {
                let origin = self.origins.get(&pid).unwrap_or(&self.home);
                last = put(origin, pid);
            }
            match fs::remove_dir(&self.dir) {
                Ok(()) => {
                    self.gone = true;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(format!("rmdir {}: {error}", self.dir.display())),
            }
        }
        last.and(Err(format!("rmdir {}: it stays busy", self.dir.display())))
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        if !self.gone {
            let _ = self.bring_back();
        }
    }
}

/// Removes the cgroups v1 of this kind whose maker is gone. A directory that still holds processes stays.
pub fn sweep() {
    for parent in candidates().unwrap_or_default() {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                sweep_one(&entry.path());
            }
        }
    }
}

/// Locks a directory, if nobody else does.
fn lock(dir: &Path) -> Result<Flock<File>, String> {
    let file = File::open(dir).map_err(|error| format!("open {}: {error}", dir.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, errno)| format!("flock {}: {errno}", dir.display()))
}

fn sweep_one(dir: &Path) {
    let Ok(_lock) = lock(dir) else { return };
    for _ in 0..ATTEMPTS {
        let empty = fs::read_to_string(dir.join(PROCS)).is_ok_and(|procs| procs.is_empty());
        if fs::remove_dir(dir).is_ok() || !empty {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Moves a process. One that has ended meanwhile is no failure.
fn put(dir: &Path, pid: i32) -> Result<(), String> {
    let procs = dir.join(PROCS);
    match fs::write(&procs, pid.to_string()) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(format!("write {pid} to {}: {error}", procs.display()))
        }
        _ => Ok(()),
    }
}

/// Where a cgroup v1 may be made: below our own, or below the hierarchy's root.
fn candidates() -> Result<Vec<PathBuf>, String> {
    let own = directory_of("/proc/self/cgroup")?;
    let (_, mount) = hierarchy()?;
    Ok(if own == mount {
        vec![own]
    } else {
        vec![own, mount]
    })
}

/// The directory that a `cgroup` file of /proc names for the memory controller of version 1.
fn directory_of(file: &str) -> Result<PathBuf, String> {
    let (root, mount) = hierarchy()?;
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers
            .split(',')
            .any(|one| one == "memory")
            .then(|| fields.next())?
    });
    let path =
        path.ok_or_else(|| format!("expected the memory controller in {file}, found none"))?;
    let below = Path::new(path).strip_prefix(&root);
    let below = below.map_err(|_| format!("the cgroup {path} is not below {}", root.display()))?;
    Ok(mount.join(below))
}

/// Root and mount point of the memory controller's hierarchy of version 1.
fn hierarchy() -> Result<(PathBuf, PathBuf), String> {
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo: {error}; is /proc mounted?"))?;
    text.lines().find_map(memory_mount).ok_or_else(|| {
        "expected a mount of type cgroup with the memory controller in /proc/self/mountinfo, found none".to_owned()
    })
}

/// The same from one line (proc_pid_mountinfo(5)).
fn memory_mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let options = filesystem.strip_prefix("cgroup ")?.split_once(' ')?.1;
    if !options.split(',').any(|option| option == "memory") {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    Some((fields.next()?.into(), fields.next()?.into()))
}

/// Has the memory controller of version 2 work in a host's cgroup: in the run's above it, and in our own above that.
fn enable(dir: &Path) -> Result<(), String> {
    let above = dir.ancestors().skip(1).take(2);
    let above: Vec<&Path> = above
        .filter(|parent| parent.join("cgroup.controllers").exists())
        .collect();
    for parent in above.into_iter().rev() {
        let available = read(&parent.join("cgroup.controllers"))?;
        if !available.split_whitespace().any(|one| one == "memory") {
            return Err(format!(
                "expected the memory controller in {}, found \"{}\": it is with cgroup v1, or was not delegated; \
                 try `systemd-run --user --scope -p Delegate=yes fencepost …`",
                parent.join("cgroup.controllers").display(),
                available.trim()
            ));
        }
        write(&parent.join("cgroup.subtree_control"), "+memory")?;
    }
    Ok(())
}

/// Pages out what the processes map of files; says how much of it went, or why nothing.
fn page_out(pids: &[i32]) -> Result<u64, String> {
    let resident = || -> u64 {
        let of = |pid: &i32| kilobytes(*pid, "status", "RssFile:").unwrap_or(0);
        pids.iter().map(of).sum::<u64>() * 1024
    };
    let before = resident();
    let done: Vec<_> = pids.iter().map(|pid| pageout::files_of(*pid)).collect();
    let gone = before.saturating_sub(resident());
    match done.into_iter().find_map(Result::err) {
        Some(error) if gone == 0 => Err(error.to_string()),
        _ => Ok(gone),
    }
}

/// What may newly be taken, in whole pages.
fn room(used: u64, share: f64) -> u64 {
    ((used as f64 * share) as u64).max(LEAST) & !4095
}

/// The processes' memory in bytes, what they share counted once (proc_pid_smaps(5)).
fn used_by(pids: &[i32]) -> u64 {
    let of = |pid: &i32| {
        let shared_once = kilobytes(*pid, "smaps_rollup", "Pss:");
        shared_once
            .or_else(|| kilobytes(*pid, "status", "VmRSS:"))
            .unwrap_or(0)
    };
    pids.iter().map(of).sum::<u64>() * 1024
}

/// The number after a name in a file of a process's /proc directory.
fn kilobytes(pid: i32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))
}

fn number(path: &Path) -> Result<u64, String> {
    let text = read(path)?;
    let number = text.trim().parse();
    number.map_err(|_| format!("expected a number in {}, found {text:?}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("write {text} to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_memory_controllers_mount_is_found() {
        let memory = "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
        let found = Some(("/".into(), "/sys/fs/cgroup/memory".into()));
        assert_eq!(memory_mount(memory), found);
        let cpu = "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(memory_mount(cpu), None);
        let unified = "33 31 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_recursiveprot";
        assert_eq!(memory_mount(unified), None);
    }

    #[test]
    fn the_room_is_a_share_in_whole_pages_and_never_nothing() {
        assert_eq!(room(100 << 20, 0.25), 25 << 20);
        assert_eq!(room(0, 0.5), LEAST);
        assert_eq!(room(33_333_333, 0.3) % 4096, 0);
    }
}
