//! The mounts of the sandbox and of a host. All are private: none is ever seen outside.

use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::error::{Failure, Step};

/// Cuts this mount namespace off from the one that it was copied from.
pub(super) fn make_private() -> Result<(), Failure> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(|e| Failure::new(Step::Mount, "make the sandbox's mounts private", e))
}

/// Mounts a /proc that shows this process's PID namespace.
pub(super) fn fresh_proc() -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .map_err(|e| Failure::new(Step::Mount, "mount a new /proc", e))
}

/// Covers a directory with an empty file system in memory, which goes away with the namespace.
pub(super) fn cover(directory: &Path, mode: u32) -> Result<(), Failure> {
    let options = format!("mode={mode:o}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("fencepost"),
        directory,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )
    .map_err(|e| {
        Failure::new(
            Step::Mount,
            format!("mount a tmpfs over {}", directory.display()),
            e,
        )
    })
}
