//! Takes a process's pages of files out of memory, so that it must read them again.
//!
//! madvise(2) MADV_PAGEOUT through process_madvise(2), Linux 5.10. Nothing is lost: what was written is
//! written back first, and pages that other processes map too are left alone by the kernel. The heap is not
//! touched.

#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Pages out what a process maps of files.
///
/// # Errors
/// The call that the kernel refused, and its answer.
pub fn files_of(pid: i32) -> io::Result<()> {
    let named = |call: &'static str| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{call}: {error}"))
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let process = open(pid).map_err(named("pidfd_open"))?;
    for (start, length) in maps.lines().filter_map(file_mapping) {
        match advise(&process, start, length) {
            Ok(()) => {}
            // This mapping cannot be paged out (locked, of a device), or is gone since.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM)) => {}
            Err(error) => return Err(named("process_madvise(MADV_PAGEOUT)")(error)),
        }
    }
    Ok(())
}

/// Start and length, if a line of maps (proc_pid_maps(5)) is the mapping of a file.
fn file_mapping(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let path = fields.nth(4)?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    path.starts_with('/')
        .then(|| Some((start, end.checked_sub(start)?)))?
}

/// A descriptor of a process.
fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two numbers and no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Advises the kernel on one range of another process's memory.
fn advise(process: &OwnedFd, start: usize, length: usize) -> io::Result<()> {
    let range = libc::iovec {
        iov_base: start as *mut libc::c_void,
        iov_len: length,
    };
    // SAFETY: the kernel reads one iovec, which outlives the call; the address in it is one of the other
    // process, where MADV_PAGEOUT changes no content.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1_usize,
            libc::MADV_PAGEOUT,
            0_u32,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_files_are_found() {
        let file = "7f00a000-7f00c000 r-xp 00001000 fe:00 1234   /usr/lib/libc.so.6";
        assert_eq!(file_mapping(file), Some((0x7f00_a000, 0x2000)));
        assert_eq!(
            file_mapping("7f00a000-7f00c000 rw-p 00000000 00:00 0"),
            None
        );
        let heap = "7f00a000-7f00c000 rw-p 00000000 00:00 0    [heap]";
        assert_eq!(file_mapping(heap), None);
    }
}
