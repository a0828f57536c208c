//! Translation between what FUSE and what the kernel's ordinary calls say of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use nix::sys::stat::FileStat;
use nix::sys::time::TimeSpec;

/// A time to set; absent means as it is.
pub(super) fn time(time: Option<TimeOrNow>) -> TimeSpec {
    match time {
        None => TimeSpec::UTIME_OMIT,
        Some(TimeOrNow::Now) => TimeSpec::UTIME_NOW,
        Some(TimeOrNow::SpecificTime(time)) => {
            TimeSpec::from_duration(time.duration_since(UNIX_EPOCH).unwrap_or_default())
        }
    }
}

fn moment(seconds: i64, ns: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    UNIX_EPOCH + Duration::new(seconds, u32::try_from(ns).unwrap_or(0))
}

/// What FUSE is told of an inode, under the number that FUSE knows it by.
pub(super) fn attributes(found: &FileStat, inode: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: u64::try_from(found.st_size).unwrap_or(0),
        blocks: u64::try_from(found.st_blocks).unwrap_or(0),
        atime: moment(found.st_atime, found.st_atime_nsec),
        mtime: moment(found.st_mtime, found.st_mtime_nsec),
        ctime: moment(found.st_ctime, found.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFIFO => FileType::NamedPipe,
            _ => FileType::RegularFile,
        },
        perm: (found.st_mode & 0o7777) as u16,
        nlink: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
