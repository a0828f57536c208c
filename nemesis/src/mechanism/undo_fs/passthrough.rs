//! The FUSE side: every request is carried out on the backing directory, and noted where it changes
//! something (fuse(4); crate `fuser`).
//!
//! Attributes and names are never cached by the kernel, and a file's pages only while it is open, so that
//! nothing remembers what a power loss has undone. Times, modes and owners are not undone. One thread
//! serves all requests.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, FileExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use nix::fcntl::{AtFlags, FallocateFlags, OFlag, fallocate, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mkdirat, mknodat, utimensat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{linkat, symlinkat};

use super::attributes::{attributes, time};
use super::names::Name;
use super::proc_path;
use super::state::{ROOT, State, stat};

/// How long the kernel may believe an attribute or a name.
const NEVER: Duration = Duration::ZERO;

/// Largest write that the kernel sends in one piece.
const LARGEST_WRITE: u32 = 1 << 20;

/// The file system.
pub(super) struct Passthrough {
    state: Arc<Mutex<State>>,
    files: Mutex<(u64, HashMap<u64, Arc<File>>)>,
}

impl Passthrough {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        Self {
            state,
            files: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, inode: INodeNo) -> io::Result<Arc<OwnedFd>> {
        Ok(self.state().path(inode.0)?)
    }

    /// Tells the kernel of a name.
    fn look(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let mut state = self.state();
        let dir = state.path(parent.0)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let path = openat(&dir, name, flags, Mode::empty())?;
        let found = stat(&path)?;
        state.tell(found.st_ino, path);
        Ok(attributes(&found, found.st_ino))
    }

    /// Notes a name that was just added and tells the kernel of it.
    fn added(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let mut state = self.state();
        let dir = state.path(parent.0)?;
        state.names.added(Name::new(&dir, name))?;
        drop(state);
        self.look(parent, name)
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.0 += 1;
        let handle = files.0;
        files.1.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.1.get(&handle.0);
        Ok(Arc::clone(file.ok_or(nix::errno::Errno::EBADF)?))
    }

    /// Opens the backing file for reading and, where that is allowed, for writing: pre-images are read.
    fn reopen(&self, inode: INodeNo) -> io::Result<File> {
        let path = proc_path(self.path(inode)?.as_fd());
        let both = OpenOptions::new().read(true).write(true).open(&path);
        both.or_else(|_| File::open(&path))
    }

    fn resize(&self, inode: INodeNo, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
        let file = match handle {
            Some(handle) => self.file(handle)?,
            None => Arc::new(self.reopen(inode)?),
        };
        let length = file.metadata()?.len();
        let mut state = self.state();
        state.before_change(inode.0, &file, size.min(length), length)?;
        file.set_len(size)
    }

    fn write_at(&self, inode: INodeNo, handle: FileHandle, at: u64, data: &[u8]) -> io::Result<()> {
        let file = self.file(handle)?;
        let mut state = self.state();
        state.before_change(inode.0, &file, at, at + data.len() as u64)?;
        file.write_all_at(data, at)?;
        state.wrote(inode.0, data.len() as u64);
        Ok(())
    }

    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<FileAttr> {
        make(&*self.path(parent)?)?;
        self.added(parent, name)
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that wants smaller pieces says so by an error, and gets them.
        let _ = config.set_max_write(LARGEST_WRITE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.look(parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        self.state().forget(inode.0, count);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.path(inode).and_then(|path| Ok(stat(&path)?));
        match found {
            Ok(found) => reply.attr(&NEVER, &attributes(&found, inode.0)),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the trait's")]
    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || -> io::Result<()> {
            let path = proc_path(self.path(inode)?.as_fd());
            if let Some(mode) = mode {
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
            if uid.is_some() || gid.is_some() {
                chown(&path, uid, gid)?;
            }
            if let Some(size) = size {
                self.resize(inode, handle, size)?;
            }
            if accessed.is_some() || modified.is_some() {
                let (accessed, modified) = (time(accessed), time(modified));
                let follow = UtimensatFlags::FollowSymlink;
                utimensat(nix::fcntl::AT_FDCWD, &path, &accessed, &modified, follow)?;
            }
            Ok(())
        };
        match set() {
            Ok(()) => self.getattr(request, inode, handle, reply),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self
            .path(inode)
            .and_then(|path| Ok(readlinkat(&*path, "")?))
        {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (kind, access) = (
            SFlag::from_bits_truncate(mode),
            Mode::from_bits_truncate(mode),
        );
        let made = self.make(parent, name, |dir| {
            Ok(mknodat(dir, name, kind, access, u64::from(device))?)
        });
        entry(made, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, |dir| {
            mkdirat(dir, name, Mode::from_bits_truncate(mode))?;
            let path = proc_path(dir.as_fd()).join(name);
            fs::set_permissions(path, Permissions::from_mode(mode))
        });
        entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let removed = state
            .path(parent.0)
            .and_then(|dir| state.names.remove(Name::new(&dir, name), false));
        drop(state);
        done(removed.map_err(Into::into), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        let removed = state
            .path(parent.0)
            .and_then(|dir| state.names.remove(Name::new(&dir, name), true));
        drop(state);
        done(removed.map_err(Into::into), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, |dir| Ok(symlinkat(target, dir, name)?));
        entry(made, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let renamed = state.path(parent.0).and_then(|dir| {
            let from = Name::new(&dir, name);
            let to = Name::new(&state.path(new_parent.0)?, new_name);
            let flags = nix::fcntl::RenameFlags::from_bits_truncate(flags.bits());
            state.names.rename(from, to, flags)
        });
        drop(state);
        done(renamed.map_err(Into::into), reply);
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.make(new_parent, new_name, |dir| {
            let path = proc_path(self.path(inode)?.as_fd());
            let follow = AtFlags::AT_SYMLINK_FOLLOW;
            Ok(linkat(nix::fcntl::AT_FDCWD, &path, dir, new_name, follow)?)
        });
        entry(made, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.reopen(inode) {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let create = || -> io::Result<(File, FileAttr)> {
            let dir = self.path(parent)?;
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let file = File::from(openat(&dir, name, flags, Mode::from_bits_truncate(mode))?);
            // Our own umask is nobody's business.
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok((file, self.added(parent, name)?))
        };
        match create() {
            Ok((file, found)) => {
                let handle = self.keep(file);
                reply.created(&NEVER, &found, Generation(0), handle, FopenFlags::empty());
            }
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self
            .file(handle)
            .and_then(|file| file.read_at(&mut bytes, offset))
        {
            Ok(length) => reply.data(&bytes[..length]),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_at(inode, handle, offset, data) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.1.remove(&handle.0);
        drop(files);
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.state().sync(inode.0).map_err(Into::into), reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.state().sync(inode.0).map_err(Into::into), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let read = || -> io::Result<Vec<fs::DirEntry>> {
            let mut entries: Vec<_> =
                fs::read_dir(proc_path(self.path(inode)?.as_fd()))?.collect::<io::Result<_>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            Ok(entries)
        };
        let entries = match read() {
            Ok(entries) => entries,
            Err(error) => return reply.error(Errno::from(error)),
        };
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, found) in entries.iter().enumerate().skip(first) {
            let kind = found.file_type().ok().and_then(FileType::from_std);
            let kind = kind.unwrap_or(FileType::RegularFile);
            let next = index as u64 + 1;
            if reply.add(INodeNo(found.ino()), next, kind, found.file_name()) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let found = self.path(INodeNo(ROOT)).and_then(|root| {
            let root = File::open(proc_path(root.as_fd()))?;
            Ok(fstatvfs(&root)?)
        });
        match found {
            Ok(found) => reply.statfs(
                found.blocks(),
                found.blocks_free(),
                found.blocks_available(),
                found.files(),
                found.files_free(),
                u32::try_from(found.block_size()).unwrap_or(4096),
                u32::try_from(found.name_max()).unwrap_or(255),
                u32::try_from(found.fragment_size()).unwrap_or(4096),
            ),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = || -> io::Result<()> {
            let flags = FallocateFlags::from_bits_truncate(mode);
            // Holes would need pre-images of what they swallow; servers do without them.
            if !(FallocateFlags::FALLOC_FL_KEEP_SIZE | FallocateFlags::empty()).contains(flags)
                || flags.bits() != mode
            {
                return Err(nix::errno::Errno::EOPNOTSUPP.into());
            }
            let file = self.file(handle)?;
            let mut state = self.state();
            state.before_change(inode.0, &file, offset, offset)?;
            let signed = |number| i64::try_from(number).map_err(io::Error::other);
            fallocate(&*file, flags, signed(offset)?, signed(length)?)?;
            Ok(())
        };
        done(allocate(), reply);
    }
}

fn done(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(Errno::from(error)),
    }
}

fn entry(found: io::Result<FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&NEVER, &found, Generation(0)),
        Err(error) => reply.error(Errno::from(error)),
    }
}
