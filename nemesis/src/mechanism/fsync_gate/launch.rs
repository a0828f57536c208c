//! Starts an ordinary command behind the gate. For probes and tests: hosts start their processes
//! themselves, with [`Filter`](super::Filter).
#![allow(unsafe_code)]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::{Filter, FsyncGate};

/// Starts the command, in a process group of its own, with every sync answered by `gate`.
///
/// # Errors
/// What the kernel answered, for instance EPERM or EBUSY when a filter is refused.
pub fn spawn(gate: &FsyncGate, command: &mut Command) -> io::Result<Child> {
    let (ours, theirs) = UnixStream::pair()?;
    let filter = Filter::new();
    let socket = theirs.as_raw_fd();
    // SAFETY: the closure runs between fork and exec, makes async-signal-safe calls only, and the filter
    // and the socket live in the parent's memory, of which the child has a copy.
    unsafe {
        command.pre_exec(move || {
            filter
                .install_and_send(socket)
                .map_err(io::Error::from_raw_os_error)
        });
    }
    let child = command.process_group(0).spawn()?;
    drop(theirs);
    let process = i32::try_from(child.id()).map_err(io::Error::other)?;
    gate.attach(receive_listener(ours.as_raw_fd())?, process)?;
    Ok(child)
}

/// Takes the listener that a filter's installation sent.
fn receive_listener(socket: RawFd) -> io::Result<OwnedFd> {
    let mut byte = [0; 1];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(socket, &mut parts, Some(&mut space), flags)?;
    for attached in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = attached
            && let Some(&descriptor) = descriptors.first()
        {
            // SAFETY: the kernel has just made this descriptor for us, and it is taken once.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::other(
        "the new process sent no listener; did it die before it executed its program?",
    ))
}
