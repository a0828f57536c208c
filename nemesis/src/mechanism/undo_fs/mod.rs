//! A file system that can forget what was not synced, as a disk does when its machine loses its power.
//!
//! A FUSE file system passes everything through to a backing directory and keeps, until the next sync,
//! what is needed to undo it: pages of files before they were changed, and changes of names. It needs
//! `/dev/fuse` and no privilege. What it models, and what a sync makes durable, is the behaviour of a
//! journaling file system such as ext4 in its default mode; see `state.rs`. Times, modes and owners
//! are not undone, and a byte range that was punched out is refused.
//!
//! Whoever uses the mount hangs if nobody serves it, so what this must not do: be used by the process
//! that serves it, or outlive it. When that process dies, the kernel fails every request.

mod attributes;
mod backing;
mod names;
mod pages;
mod passthrough;
mod state;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{BackgroundSession, Config, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{getgid, getuid};

use passthrough::Passthrough;
use state::State;

/// The device that FUSE file systems are served through.
const DEVICE: &str = "/dev/fuse";

/// What of the unsynced changes has reached the disk all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the worst that can happen to whoever does not sync.
    Nothing,
    /// Some sectors of the changed pages and the name changes up to some moment, as drawn: the worst
    /// that can happen to whoever does not check what it reads.
    Torn {
        /// The fault's draw from the seed.
        draw: u64,
        /// Number of the host, so that each has its own draws.
        host: u64,
    },
}

/// What a power loss took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Files with unsynced content.
    pub files: usize,
    /// Bytes that had been written to them since their last sync.
    pub bytes: u64,
    /// Sectors of 512 bytes whose content was put back or cut off.
    pub sectors_reverted: u64,
    /// Changed sectors that stayed although they were not synced.
    pub sectors_kept: u64,
    /// Files created, renamed or removed, and the like, that were undone.
    pub names_undone: usize,
    /// The same that stayed although they were not synced.
    pub names_kept: usize,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} unsynced bytes in {}: {} of 512 bytes lost",
            self.bytes,
            crate::receipt::count(self.files, "file", "files"),
            crate::receipt::count(
                usize::try_from(self.sectors_reverted).unwrap_or(usize::MAX),
                "sector",
                "sectors"
            ),
        )?;
        if self.sectors_kept > 0 {
            write!(f, ", {} kept", self.sectors_kept)?;
        }
        write!(f, "; {} unsynced name changes lost", self.names_undone)?;
        if self.names_kept > 0 {
            write!(f, ", {} kept", self.names_kept)?;
        }
        Ok(())
    }
}

/// A mounted file system. It is unmounted when dropped.
pub struct UndoFs {
    state: Arc<Mutex<State>>,
    point: PathBuf,
    session: Option<BackgroundSession>,
}

impl UndoFs {
    /// Mounts it at `point` (an empty directory) with its files in `backing` (another one, which must not
    /// be touched by anybody else).
    ///
    /// # Errors
    /// In words, with what to do.
    pub fn mount(backing: &Path, point: &Path) -> Result<Self, String> {
        let (live, graves) = (backing.join("live"), backing.join("removed"));
        for folder in [&live, &graves] {
            fs::create_dir_all(folder)
                .map_err(|error| format!("mkdir {}: {error}", folder.display()))?;
        }
        let open = |path: &Path| -> Result<OwnedFd, String> {
            let opened = File::open(path).map(OwnedFd::from);
            opened.map_err(|error| format!("open {}: {error}", path.display()))
        };
        let state = Arc::new(Mutex::new(State::new(open(&live)?, open(&graves)?)));
        let device = OpenOptions::new().read(true).write(true).open(DEVICE);
        let device = device.map_err(|error| {
            format!(
                "open {DEVICE}: {error}; {}",
                match error.kind() {
                    io::ErrorKind::PermissionDenied =>
                        "run as root, or let this user open it: sudo chmod 666 /dev/fuse",
                    _ => "load the kernel's module: sudo modprobe fuse; in Docker: --device /dev/fuse",
                }
            )
        })?;
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},allow_other,default_permissions",
            device.as_raw_fd(),
            getuid(),
            getgid()
        );
        mount(
            Some("fencepost"),
            point,
            Some("fuse.fencepost"),
            MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
            Some(options.as_str()),
        )
        .map_err(|errno| {
            format!(
                "mount a FUSE file system at {}: {errno}; the kernel needs FUSE, and 4.18 or later without root",
                point.display()
            )
        })?;
        let served = Session::from_fd(
            Passthrough::new(Arc::clone(&state)),
            device.into(),
            SessionACL::All,
            Config::default(),
        )
        .and_then(Session::spawn);
        match served {
            Ok(session) => Ok(Self {
                state,
                point: point.to_owned(),
                session: Some(session),
            }),
            Err(error) => {
                // Nobody serves it, so nobody may find it.
                let _ = umount2(point, MntFlags::MNT_DETACH);
                Err(format!("serve the FUSE file system: {error}"))
            }
        }
    }

    /// Forgets what was not synced. Nobody may use the file system meanwhile, or have a file of it open:
    /// the power is off.
    ///
    /// # Errors
    /// The backing directory cannot be changed. The file system is of no use then.
    pub fn lose(&self, keep: Keep) -> io::Result<Loss> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lose(keep)
    }

    /// Files with unsynced content, bytes written to them since, and unsynced changes of names.
    #[must_use]
    pub fn unsynced(&self) -> (usize, u64, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unsynced()
    }

    /// Syncs that were answered so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.syncs
    }
}

impl Drop for UndoFs {
    fn drop(&mut self) {
        // Others may have the mount in their own namespaces: the thread ends when they are gone too.
        let _ = umount2(&self.point, MntFlags::MNT_DETACH);
        drop(self.session.take());
    }
}

impl fmt::Debug for UndoFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndoFs")
            .field("point", &self.point)
            .finish_non_exhaustive()
    }
}

/// The path under which an open descriptor, also one that is a mere path, can be opened again.
fn proc_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// The errno behind an error.
fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
