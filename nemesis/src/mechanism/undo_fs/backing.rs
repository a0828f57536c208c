//! What the file system does to its backing directory: each change is noted, so that a power loss can undo it.
//!
//! Replies to the kernel are not for here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{FileAttr, FileHandle, INodeNo};
use nix::fcntl::{FallocateFlags, OFlag, RenameFlags, fallocate, openat};
use nix::sys::stat::Mode;

use super::attributes::attributes;
use super::names::Name;
use super::proc_path;
use super::state::{State, stat};

/// The backing directory and the files of it that are open.
pub(super) struct Backing {
    state: Arc<Mutex<State>>,
    files: Mutex<(u64, HashMap<u64, Arc<File>>)>,
}

impl Backing {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        Self {
            state,
            files: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, inode: INodeNo) -> io::Result<Arc<OwnedFd>> {
        Ok(self.state().path(inode.0)?)
    }

    /// Tells the kernel of a name.
    pub(super) fn look(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let mut state = self.state();
        let dir = state.path(parent.0)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let path = openat(&dir, name, flags, Mode::empty())?;
        let found = stat(&path)?;
        state.tell(found.st_ino, path);
        Ok(attributes(&found, found.st_ino))
    }

    /// Notes a name that was just added and tells the kernel of it.
    pub(super) fn added(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let mut state = self.state();
        let dir = state.path(parent.0)?;
        state.names.added(Name::new(&dir, name))?;
        drop(state);
        self.look(parent, name)
    }

    pub(super) fn keep(&self, file: File) -> FileHandle {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.0 += 1;
        let handle = files.0;
        files.1.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    pub(super) fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.1.get(&handle.0);
        Ok(Arc::clone(file.ok_or(nix::errno::Errno::EBADF)?))
    }

    /// Opens the backing file for reading and, where that is allowed, for writing: pre-images are read.
    pub(super) fn reopen(&self, inode: INodeNo) -> io::Result<File> {
        let path = proc_path(self.path(inode)?.as_fd());
        let both = OpenOptions::new().read(true).write(true).open(&path);
        both.or_else(|_| File::open(&path))
    }

    pub(super) fn resize(
        &self,
        inode: INodeNo,
        handle: Option<FileHandle>,
        size: u64,
    ) -> io::Result<()> {
        let file = match handle {
            Some(handle) => self.file(handle)?,
            None => Arc::new(self.reopen(inode)?),
        };
        let length = file.metadata()?.len();
        let mut state = self.state();
        state.before_change(inode.0, &file, size.min(length), length)?;
        file.set_len(size)
    }

    pub(super) fn write_at(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        at: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let file = self.file(handle)?;
        let mut state = self.state();
        state.before_change(inode.0, &file, at, at + data.len() as u64)?;
        file.write_all_at(data, at)?;
        state.wrote(inode.0, data.len() as u64);
        Ok(())
    }

    pub(super) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<FileAttr> {
        make(&*self.path(parent)?)?;
        self.added(parent, name)
    }

    /// Forgets an open file.
    pub(super) fn close(&self, handle: FileHandle) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.1.remove(&handle.0);
    }

    /// Takes a name away, of a directory or of something else.
    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr, is_dir: bool) -> io::Result<()> {
        let mut state = self.state();
        let dir = state.path(parent.0)?;
        Ok(state.names.remove(Name::new(&dir, name), is_dir)?)
    }

    /// Gives something another name.
    pub(super) fn rename(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (new_parent, new_name): (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        let mut state = self.state();
        let from = Name::new(&state.path(parent.0)?, name);
        let to = Name::new(&state.path(new_parent.0)?, new_name);
        Ok(state.names.rename(from, to, flags)?)
    }

    /// Makes sure that there is room for so many bytes from an offset on.
    pub(super) fn allocate(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        (offset, length): (u64, u64),
        flags: FallocateFlags,
    ) -> io::Result<()> {
        let file = self.file(handle)?;
        let mut state = self.state();
        state.before_change(inode.0, &file, offset, offset)?;
        let signed = |number| i64::try_from(number).map_err(io::Error::other);
        fallocate(&*file, flags, signed(offset)?, signed(length)?)?;
        Ok(())
    }
}
