//! What the file system knows: its inodes, and what of them is not synced. Behind one mutex.
//!
//! All policy about what a sync makes durable is in [`State::sync`], and about what a power loss takes in
//! [`State::lose`]; FUSE is elsewhere.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstatat};

use super::names::Names;
use super::pages::Unsynced;
use super::{Keep, Loss, proc_path};
use crate::draw::Draws;

/// An inode that the kernel knows.
struct Node {
    /// O_PATH: good as long as it is open, whatever becomes of the name.
    path: Arc<OwnedFd>,
    /// How often the kernel was told of it and has not forgotten it.
    lookups: u64,
}

/// A file with unsynced content.
struct Dirty {
    /// In which order files became dirty: unlike inode numbers it is the same for the same program.
    order: u64,
    path: Arc<OwnedFd>,
    unsynced: Unsynced,
}

/// The state.
pub(super) struct State {
    root: Arc<OwnedFd>,
    nodes: HashMap<u64, Node>,
    dirty: HashMap<u64, Dirty>,
    /// How many files have become dirty so far.
    dirtied: u64,
    pub(super) names: Names,
    /// Syncs that were answered.
    pub(super) syncs: u64,
}

/// Number of the root for FUSE, whatever its inode is.
pub(super) const ROOT: u64 = 1;

impl State {
    pub(super) fn new(root: OwnedFd, graveyard: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            nodes: HashMap::new(),
            dirty: HashMap::new(),
            dirtied: 0,
            names: Names::new(graveyard),
            syncs: 0,
        }
    }

    /// The descriptor of an inode.
    pub(super) fn path(&self, inode: u64) -> Result<Arc<OwnedFd>, Errno> {
        if inode == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let node = self.nodes.get(&inode).ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(&node.path))
    }

    /// Counts that the kernel was told of an inode.
    pub(super) fn tell(&mut self, inode: u64, path: OwnedFd) {
        let path = Arc::new(path);
        let node = self.nodes.entry(inode).or_insert(Node { path, lookups: 0 });
        node.lookups += 1;
    }

    /// The kernel forgets an inode so many times.
    pub(super) fn forget(&mut self, inode: u64, count: u64) {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 {
            self.nodes.remove(&inode);
            // A file without a name and without a user is gone for good, so nothing can be lost of it.
            let gone = |dirty: &Dirty| stat(&dirty.path).is_ok_and(|found| found.st_nlink == 0);
            if self.dirty.get(&inode).is_some_and(gone) {
                self.dirty.remove(&inode);
            }
        }
    }

    /// Takes note of a change of content that is about to happen to a range of a file.
    pub(super) fn before_change(
        &mut self,
        inode: u64,
        file: &File,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        let path = self.path(inode)?;
        let dirty = match self.dirty.entry(inode) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                self.dirtied += 1;
                free.insert(Dirty {
                    order: self.dirtied,
                    path,
                    unsynced: Unsynced::new(file.metadata()?.len()),
                })
            }
        };
        dirty.unsynced.before_change(file, from, to)
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&mut self, inode: u64, bytes: u64) {
        if let Some(dirty) = self.dirty.get_mut(&inode) {
            dirty.unsynced.written += bytes;
        }
    }

    /// Makes durable what a sync of that inode makes durable: its content, and, if anything but content
    /// has changed about it (its size or its name, or if it is a directory), every change of names so far,
    /// because they are in one journal with it. The content of other files stays unsynced: a new file
    /// whose name was synced by another one's sync is empty after a power loss, as on a real ext4.
    pub(super) fn sync(&mut self, inode: u64) -> Result<(), Errno> {
        self.syncs += 1;
        let found = stat(&*self.path(inode)?)?;
        let resized = self.dirty.remove(&inode).is_some_and(|dirty| {
            u64::try_from(found.st_size).unwrap_or(0) != dirty.unsynced.durable_size()
        });
        let is_dir = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if is_dir || resized || self.names.concern(found.st_ino) {
            self.names.commit(self.names.pending())?;
        }
        Ok(())
    }

    /// Forgets what was not synced, as a machine does whose power goes.
    pub(super) fn lose(&mut self, keep: Keep) -> io::Result<Loss> {
        let mut loss = Loss {
            files: self.dirty.len(),
            bytes: self
                .dirty
                .values()
                .map(|dirty| dirty.unsynced.written)
                .sum(),
            ..Loss::default()
        };
        let mut draws = match keep {
            Keep::Nothing => None,
            Keep::Torn { draw, host } => Some(Draws::torn(draw, host)),
        };
        if let Some(draws) = &mut draws {
            // The journal may have been written up to any moment.
            let pending = self.names.pending() as u64;
            let kept = draws.between(0, pending);
            loss.names_kept = usize::try_from(kept).unwrap_or(usize::MAX);
            self.names.commit(loss.names_kept)?;
        }
        // First the names, so that a removed file is back before its content is.
        loss.names_undone = self.names.undo()?;
        let mut dirty: Vec<Dirty> = self.dirty.drain().map(|(_, dirty)| dirty).collect();
        dirty.sort_by_key(|dirty| dirty.order);
        for dirty in dirty {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(proc_path(dirty.path.as_fd()))?;
            let reverted = match &mut draws {
                None => dirty.unsynced.revert(&file)?,
                Some(draws) => dirty.unsynced.tear(&file, draws)?,
            };
            loss.sectors_reverted += reverted.sectors;
            loss.sectors_kept += reverted.kept;
        }
        Ok(loss)
    }

    /// Files with unsynced content, bytes written to them, and unsynced changes of names.
    pub(super) fn unsynced(&self) -> (usize, u64, usize) {
        let bytes = self.dirty.values().map(|dirty| dirty.unsynced.written);
        (self.dirty.len(), bytes.sum(), self.names.pending())
    }
}

/// What is known of an inode.
pub(super) fn stat(path: &OwnedFd) -> Result<FileStat, Errno> {
    fstatat(path, "", AtFlags::AT_EMPTY_PATH)
}
