//! Changes of names that are not on the disk yet, and how they are undone.
//!
//! Modelled on the journal of ext4 (and xfs): name changes reach the disk in their order, all up to a
//! moment or none. So this is a list; a commit forgets it, and a loss undoes it from its end. Whatever a
//! change removes is kept in a graveyard beside the tree until it is committed. Knows nothing of FUSE
//! or of file contents.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, RenameFlags, renameat, renameat2};
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// A name in a directory. The descriptor stays good when the directory is renamed or buried.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) name: OsString,
}

impl Name {
    pub(super) fn new(dir: &Arc<OwnedFd>, name: &OsStr) -> Self {
        Self {
            dir: Arc::clone(dir),
            name: name.to_owned(),
        }
    }

    /// Inode and whether it is a directory, of what bears the name now.
    fn look(&self) -> Result<(u64, bool), Errno> {
        let found = fstatat(&self.dir, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let is_dir = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok((found.st_ino, is_dir))
    }
}

/// What was removed, under its name in the graveyard.
#[derive(Debug)]
struct Grave {
    name: String,
    is_dir: bool,
}

/// One change.
#[derive(Debug)]
enum Change {
    /// A name was added: undone by removing it.
    Added { at: Name, is_dir: bool },
    /// A name was removed.
    Removed { from: Name, grave: Grave },
    /// A name was changed, and another one replaced by it perhaps.
    Renamed {
        from: Name,
        to: Name,
        replaced: Option<Grave>,
    },
    /// Two names were exchanged.
    Exchanged { one: Name, other: Name },
}

/// The changes since the last commit.
#[derive(Debug)]
pub(super) struct Names {
    graveyard: OwnedFd,
    changes: Vec<(u64, Change)>,
    buried: u64,
}

impl Names {
    /// Nothing has changed yet; `graveyard` is an empty directory of the same file system.
    pub(super) fn new(graveyard: OwnedFd) -> Self {
        Self {
            graveyard,
            changes: Vec::new(),
            buried: 0,
        }
    }

    /// How many changes are not committed.
    pub(super) fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Whether any of them is about that inode.
    pub(super) fn concern(&self, inode: u64) -> bool {
        self.changes.iter().any(|(about, _)| *about == inode)
    }

    /// Notes a name that was just added.
    pub(super) fn added(&mut self, at: Name) -> Result<(), Errno> {
        let (inode, is_dir) = at.look()?;
        self.changes.push((inode, Change::Added { at, is_dir }));
        Ok(())
    }

    /// Removes a name; `is_dir` is what the caller was asked to remove.
    pub(super) fn remove(&mut self, from: Name, is_dir: bool) -> Result<(), Errno> {
        let (inode, found_dir) = from.look()?;
        match (is_dir, found_dir) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !is_empty(&from)? => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let grave = self.bury(&from, is_dir)?;
        self.changes.push((inode, Change::Removed { from, grave }));
        Ok(())
    }

    /// Renames.
    pub(super) fn rename(&mut self, from: Name, to: Name, flags: RenameFlags) -> Result<(), Errno> {
        let (inode, from_dir) = from.look()?;
        if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            renameat2(&from.dir, &*from.name, &to.dir, &*to.name, flags)?;
            let (one, other) = (from, to);
            self.changes.push((inode, Change::Exchanged { one, other }));
            return Ok(());
        }
        let replaced = match to.look() {
            Ok(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
            // Two names of one file: rename(2) does nothing then.
            Ok((other, _)) if other == inode => return Ok(()),
            Ok((_, true)) if !from_dir => return Err(Errno::EISDIR),
            Ok((_, false)) if from_dir => return Err(Errno::ENOTDIR),
            Ok((_, true)) if !is_empty(&to)? => return Err(Errno::ENOTEMPTY),
            Ok((_, is_dir)) => Some(self.bury(&to, is_dir)?),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        if let Err(errno) = renameat(&from.dir, &*from.name, &to.dir, &*to.name) {
            if let Some(grave) = replaced {
                self.exhume(&grave, &to)?;
            }
            return Err(errno);
        }
        self.changes
            .push((inode, Change::Renamed { from, to, replaced }));
        Ok(())
    }

    /// Makes the first `count` changes final.
    pub(super) fn commit(&mut self, count: usize) -> Result<(), Errno> {
        let rest = self.changes.split_off(count.min(self.changes.len()));
        let done = std::mem::replace(&mut self.changes, rest);
        for (_, change) in done {
            if let Change::Removed { grave, .. }
            | Change::Renamed {
                replaced: Some(grave),
                ..
            } = change
            {
                let flag = if grave.is_dir {
                    UnlinkatFlags::RemoveDir
                } else {
                    UnlinkatFlags::NoRemoveDir
                };
                unlinkat(&self.graveyard, grave.name.as_str(), flag)?;
            }
        }
        Ok(())
    }

    /// Undoes every change that is left, the last one first, and returns how many there were.
    pub(super) fn undo(&mut self) -> Result<usize, Errno> {
        let mut undone = 0;
        while let Some((_, change)) = self.changes.pop() {
            self.undo_one(&change)?;
            undone += 1;
        }
        Ok(undone)
    }

    fn undo_one(&self, change: &Change) -> Result<(), Errno> {
        match change {
            Change::Added { at, is_dir } => {
                let flag = if *is_dir {
                    UnlinkatFlags::RemoveDir
                } else {
                    UnlinkatFlags::NoRemoveDir
                };
                unlinkat(&at.dir, &*at.name, flag)
            }
            Change::Removed { from, grave } => self.exhume(grave, from),
            Change::Renamed { from, to, replaced } => {
                renameat(&to.dir, &*to.name, &from.dir, &*from.name)?;
                replaced
                    .as_ref()
                    .map_or(Ok(()), |grave| self.exhume(grave, to))
            }
            Change::Exchanged { one, other } => renameat2(
                &one.dir,
                &*one.name,
                &other.dir,
                &*other.name,
                RenameFlags::RENAME_EXCHANGE,
            ),
        }
    }

    fn bury(&mut self, name: &Name, is_dir: bool) -> Result<Grave, Errno> {
        self.buried += 1;
        let grave = Grave {
            name: self.buried.to_string(),
            is_dir,
        };
        renameat(&name.dir, &*name.name, &self.graveyard, grave.name.as_str())?;
        Ok(grave)
    }

    fn exhume(&self, grave: &Grave, to: &Name) -> Result<(), Errno> {
        renameat(&self.graveyard, grave.name.as_str(), &to.dir, &*to.name)
    }
}

/// Whether a directory has no entries.
fn is_empty(name: &Name) -> Result<bool, Errno> {
    let path = super::proc_path(name.dir.as_fd()).join(&name.name);
    let mut entries = std::fs::read_dir(path).map_err(|error| super::errno_of(&error))?;
    Ok(entries.next().is_none())
}

impl AsFd for Name {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}
