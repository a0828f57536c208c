//! Where we may make cgroups of version 2, and a cgroup that removes itself.
//!
//! Used by [`probe`](super::probe) and by tests. The hosts' cgroups are made by the harness, which
//! must also find those that a kill left behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The cgroup v2 directory that we run in: children of it are ours to make, if we may write there.
///
/// # Errors
/// No cgroup v2 hierarchy is mounted, or our own cgroup is not below the mount.
pub fn own_directory() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo: {error}; is /proc mounted?"))?;
    let own = fs::read_to_string("/proc/self/cgroup")
        .map_err(|error| format!("/proc/self/cgroup: {error}; is /proc mounted?"))?;
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("expected a line \"0::PATH\" in /proc/self/cgroup, found none; cgroup v2 is off")?;
    let (root, mount) = mounts.lines().find_map(cgroup2_mount).ok_or(
        "expected a mount of type cgroup2 in /proc/self/mountinfo, found none; mount cgroup v2",
    )?;
    let below = if root == "/" {
        Some(own)
    } else {
        own.strip_prefix(root)
    };
    let below = below.ok_or_else(|| {
        format!("our own cgroup {own} is not below {root}, which is mounted at {mount}")
    })?;
    Ok(Path::new(mount).join(below.trim_start_matches('/')))
}

/// Root and mount point, if a line of mountinfo is a cgroup v2 mount (proc_pid_mountinfo(5)).
fn cgroup2_mount(line: &str) -> Option<(&str, &str)> {
    let (mount, filesystem) = line.split_once(" - ")?;
    if !filesystem.starts_with("cgroup2 ") {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    Some((fields.next()?, fields.next()?))
}

/// A cgroup that is thawed, emptied and removed when it is dropped.
#[derive(Debug)]
pub struct OwnCgroup {
    /// Its directory.
    dir: PathBuf,
}

impl OwnCgroup {
    /// Makes a cgroup of that name below [`own_directory`].
    ///
    /// # Errors
    /// In words, with what to do.
    pub fn create(name: &str) -> Result<Self, String> {
        let dir = own_directory()?.join(name);
        fs::create_dir(&dir).map_err(|error| {
            format!(
                "mkdir {}: {error}; run as root or under systemd-run --user --scope -p Delegate=yes",
                dir.display()
            )
        })?;
        Ok(Self { dir })
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // Failures cannot be reported from here; rmdir shows whether it worked, and is tried again
        // because the kernel lets go of killed processes a little later.
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
        let _ = fs::write(self.dir.join("cgroup.freeze"), "0");
        for _ in 0..200 {
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroup2_mounts_are_found() {
        let line = "41 31 0:38 /a /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount(line), Some(("/a", "/sys/fs/cgroup/unified")));
        let v1 = "36 31 0:33 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer";
        assert_eq!(cgroup2_mount(v1), None);
    }
}
