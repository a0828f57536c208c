//! The FUSE side: every request is carried out on the backing directory, and noted where it changes
//! something (fuse(4); crate `fuser`).
//!
//! Attributes and names are never cached by the kernel, and a file's pages only while it is open, so that
//! nothing remembers what a power loss has undone. Times, modes and owners are not undone. One thread
//! serves all requests.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, FileExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use nix::fcntl::{AtFlags, FallocateFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mkdirat, mknodat, utimensat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{linkat, symlinkat};

use super::attributes::{attributes, time};
use super::backing::Backing;
use super::proc_path;
use super::state::{ROOT, State, stat};

/// How long the kernel may believe an attribute or a name.
const NEVER: Duration = Duration::ZERO;

/// Largest write that the kernel sends in one piece.
const LARGEST_WRITE: u32 = 1 << 20;

/// The file system.
pub(super) struct Passthrough(Backing);

impl Passthrough {
    pub(super) fn new(state: Arc<Mutex<State>>) -> Self {
        Self(Backing::new(state))
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that wants smaller pieces says so by an error, and gets them.
        let _ = config.set_max_write(LARGEST_WRITE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.0.look(parent, name), reply);
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        self.0.state().forget(inode.0, count);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.0.path(inode).and_then(|path| Ok(stat(&path)?));
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
            let path = proc_path(self.0.path(inode)?.as_fd());
            if let Some(mode) = mode {
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
            if uid.is_some() || gid.is_some() {
                chown(&path, uid, gid)?;
            }
            if let Some(size) = size {
                self.0.resize(inode, handle, size)?;
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
            .0
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
        let made = self.0.make(parent, name, |dir| {
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
        let made = self.0.make(parent, name, |dir| {
            mkdirat(dir, name, Mode::from_bits_truncate(mode))?;
            let path = proc_path(dir.as_fd()).join(name);
            fs::set_permissions(path, Permissions::from_mode(mode))
        });
        entry(made, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.remove(parent, name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.0.remove(parent, name, true), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self
            .0
            .make(parent, name, |dir| Ok(symlinkat(target, dir, name)?));
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
        let flags = nix::fcntl::RenameFlags::from_bits_truncate(flags.bits());
        let renamed = self.0.rename((parent, name), (new_parent, new_name), flags);
        done(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.0.make(new_parent, new_name, |dir| {
            let path = proc_path(self.0.path(inode)?.as_fd());
            let follow = AtFlags::AT_SYMLINK_FOLLOW;
            Ok(linkat(nix::fcntl::AT_FDCWD, &path, dir, new_name, follow)?)
        });
        entry(made, reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.reopen(inode) {
            Ok(file) => reply.opened(self.0.keep(file), FopenFlags::empty()),
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
            let dir = self.0.path(parent)?;
            let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let file = File::from(openat(&dir, name, flags, Mode::from_bits_truncate(mode))?);
            // Our own umask is nobody's business.
            file.set_permissions(Permissions::from_mode(mode))?;
            Ok((file, self.0.added(parent, name)?))
        };
        match create() {
            Ok((file, found)) => {
                let handle = self.0.keep(file);
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
            .0
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
        match self.0.write_at(inode, handle, offset, data) {
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
        self.0.close(handle);
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.0.state().sync(inode.0).map_err(Into::into), reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.0.state().sync(inode.0).map_err(Into::into), reply);
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
                fs::read_dir(proc_path(self.0.path(inode)?.as_fd()))?.collect::<io::Result<_>>()?;
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
        let found = self.0.path(INodeNo(ROOT)).and_then(|root| {
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
            self.0.allocate(inode, handle, (offset, length), flags)
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
