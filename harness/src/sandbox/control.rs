//! Messages between the controller and a host's init: JSON over a Unix seqpacket pair.
//!
//! A packet is a message, so there is no framing. Descriptors travel along (SCM_RIGHTS), and so does one
//! PID (SCM_CREDENTIALS), which the kernel translates from the sender's PID namespace to the receiver's:
//! this is how the controller learns under which number it sees a process that an init started.

use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixCredentials, recv, recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};
use nix::unistd::{getgid, getuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Failure;
use super::signals::End;
use super::syscalls;

/// What the controller asks of an init.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// First of all: mounts, host name and network. The host's `cgroup.procs` comes along if it has a cgroup.
    Configure {
        /// For sethostname(2).
        hostname: String,
        /// Of `eth0`.
        address: Ipv4Addr,
        /// Hosts that it will talk to.
        neighbours: Vec<Ipv4Addr>,
    },
    /// Start a process. Its stdin, stdout and stderr come along, and then the sockets that are said to.
    Spawn {
        /// The controller's number for it.
        id: u64,
        /// Program and arguments.
        argv: Vec<OsString>,
        /// The whole environment.
        env: Vec<(OsString, OsString)>,
        /// Working directory; `/` if absent.
        cwd: Option<PathBuf>,
        /// A socket comes along over which it sends the listener of its fsync gate.
        gate: bool,
        /// A socket comes along over which it waits for the supervisor of its clock.
        clock: bool,
    },
    /// Signal every process of the host except its init.
    SignalAll {
        /// The signal's number.
        signo: i32,
    },
    /// Kill every process of the host except its init, and answer when all are reaped.
    KillAll,
    /// Take the link down, kill every process, and destroy all connections, in this order.
    PowerOff,
    /// Bring the link up again.
    PowerOn,
}

/// What an init answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    /// It is done.
    Done,
    /// The power is off.
    Off {
        /// Connections that were destroyed.
        connections: usize,
    },
    /// The process has executed its program. The packet's credentials carry its PID for the receiver.
    Started {
        /// Its PID as seen in the host.
        host_pid: i32,
    },
    /// It could not be done.
    Failed(Failure),
}

/// A request or a reply with its number, so that a late reply is not taken for the next one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Numbered<T> {
    /// Counts the requests of one controller to one init.
    pub(super) seq: u64,
    /// The request or reply.
    pub(super) body: T,
}

/// What an init tells on its own, over a second socket.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Exited {
    /// The controller's number for the process.
    pub(super) id: u64,
    /// Its PID in the host.
    pub(super) host_pid: i32,
    /// How it ended.
    pub(super) end: End,
    /// When the init reaped it, in truth time.
    pub(super) at_ns: u64,
}

/// Most descriptors that a packet carries.
const MOST_FDS: usize = 5;

/// Asked-for size of the send buffer, which bounds a message; the kernel doubles it, and cuts it at the
/// system's `net.core.wmem_max`.
const SEND_BUFFER_BYTES: usize = 512 * 1024;

/// One end of a control or event socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
    /// Held from looking at a packet's length to taking it.
    receiving: Mutex<()>,
}

/// A packet as it arrived.
pub(super) struct Packet<T> {
    /// The message.
    pub(super) message: T,
    /// Descriptors that came with it.
    pub(super) fds: Vec<OwnedFd>,
    /// The PID that the sender attached, in the receiver's PID namespace.
    pub(super) pid: Option<i32>,
}

/// Why a packet could not be received.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The other side is gone.
    Closed,
    /// Nothing came in time (or now, on a non-blocking call).
    Timeout,
    /// A message that this binary does not understand, or a broken socket.
    Broken(String),
}

impl Channel {
    /// A connected pair, close-on-exec. The first end learns PIDs.
    pub(super) fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        setsockopt(&ours, sockopt::PassCred, &true)?;
        for end in [&ours, &theirs] {
            setsockopt(end, sockopt::SndBuf, &SEND_BUFFER_BYTES)?;
        }
        Ok((Self::new(ours), theirs))
    }

    /// A channel over one end of a pair.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            receiving: Mutex::new(()),
        }
    }

    /// Sends a message with descriptors, and with a process's PID if there is one to tell.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
        pid: Option<i32>,
        flags: MsgFlags,
    ) -> Result<(), Errno> {
        let bytes = serde_json::to_vec(message).map_err(|_| Errno::EINVAL)?;
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let credentials = pid.map(|pid| {
            UnixCredentials::from(libc::ucred {
                pid,
                uid: getuid().as_raw(),
                gid: getgid().as_raw(),
            })
        });
        let mut attached = Vec::new();
        if !raw.is_empty() {
            attached.push(ControlMessage::ScmRights(&raw));
        }
        attached.extend(credentials.as_ref().map(ControlMessage::ScmCredentials));
        let flags = flags | MsgFlags::MSG_NOSIGNAL;
        loop {
            match sendmsg::<()>(
                self.socket.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                &attached,
                flags,
                None,
            ) {
                Err(Errno::EINTR) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Receives the next message; waits as long as the socket's timeout allows, or not at all with
    /// `MSG_DONTWAIT`.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        flags: MsgFlags,
    ) -> Result<Packet<T>, ReceiveError> {
        let _alone = self
            .receiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fd = self.socket.as_raw_fd();
        let length = retry(|| {
            recv(
                fd,
                &mut [],
                flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC,
            )
        })?;
        // An empty packet is never sent: this is the end of the stream.
        if length == 0 {
            return Err(ReceiveError::Closed);
        }
        let mut bytes = vec![0; length];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut space = cmsg_space!([RawFd; MOST_FDS], UnixCredentials);
        let received = recvmsg::<()>(fd, &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
            .map_err(ReceiveError::from_errno)?;
        let (mut fds, mut pid) = (Vec::new(), None);
        for attached in received
            .cmsgs()
            .map_err(|e| ReceiveError::Broken(format!("control data: {e}")))?
        {
            match attached {
                ControlMessageOwned::ScmRights(raw) => {
                    fds.extend(raw.into_iter().map(syscalls::received))
                }
                ControlMessageOwned::ScmCredentials(credentials) => pid = Some(credentials.pid()),
                _ => {}
            }
        }
        let message = serde_json::from_slice(&bytes).map_err(|e| {
            ReceiveError::Broken(format!("{e} in {}", String::from_utf8_lossy(&bytes)))
        })?;
        Ok(Packet { message, fds, pid })
    }
}

impl Channel {
    /// The descriptor in a packet that is no message, if one has arrived.
    pub(super) fn receive_descriptor(&self) -> Option<OwnedFd> {
        let mut byte = [0; 1];
        let mut parts = [IoSliceMut::new(&mut byte)];
        let mut space = cmsg_space!([RawFd; MOST_FDS], UnixCredentials);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
        let fd = self.socket.as_raw_fd();
        let received = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags).ok()?;
        let mut fds: Vec<OwnedFd> = Vec::new();
        for attached in received.cmsgs().ok()? {
            if let ControlMessageOwned::ScmRights(raw) = attached {
                fds.extend(raw.into_iter().map(syscalls::received));
            }
        }
        fds.pop()
    }
}

impl ReceiveError {
    fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::EAGAIN => Self::Timeout,
            Errno::ECONNRESET => Self::Closed,
            errno => Self::Broken(format!("receive: {errno}")),
        }
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, ReceiveError> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other.map_err(ReceiveError::from_errno),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn messages_descriptors_and_pids_arrive() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::new(theirs);
        let (mut reader, writer) = std::io::pipe().unwrap();
        let sent = Numbered {
            seq: 7,
            body: Reply::Started { host_pid: 42 },
        };
        let pid = std::process::id().cast_signed();
        theirs
            .send(&sent, &[writer.as_fd()], Some(pid), MsgFlags::empty())
            .unwrap();
        drop(writer);
        let packet = ours.receive::<Numbered<Reply>>(MsgFlags::empty()).unwrap();
        assert!(matches!(
            packet.message,
            Numbered {
                seq: 7,
                body: Reply::Started { host_pid: 42 }
            }
        ));
        assert_eq!(packet.pid, Some(pid));
        std::fs::File::from(packet.fds.into_iter().next().unwrap())
            .write_all(b"through")
            .unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn silence_rubbish_and_the_end_are_told_apart() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::new(theirs);
        assert!(matches!(
            ours.receive::<Exited>(MsgFlags::MSG_DONTWAIT),
            Err(ReceiveError::Timeout)
        ));
        theirs
            .send(&"rubbish", &[], None, MsgFlags::empty())
            .unwrap();
        assert!(
            matches!(ours.receive::<Exited>(MsgFlags::empty()), Err(ReceiveError::Broken(t)) if t.contains("rubbish"))
        );
        drop(theirs);
        assert!(matches!(
            ours.receive::<Exited>(MsgFlags::empty()),
            Err(ReceiveError::Closed)
        ));
    }

    #[test]
    fn a_large_environment_fits() {
        let (theirs, ours) = Channel::pair().unwrap();
        let ours = Channel::new(ours);
        let env = vec![("NAME".into(), OsString::from("x".repeat(30_000)))];
        let sent = Request::Spawn {
            id: 1,
            argv: vec!["a".into()],
            env,
            cwd: None,
            gate: false,
            clock: false,
        };
        ours.send(&sent, &[], None, MsgFlags::empty()).unwrap();
        let packet = theirs.receive::<Request>(MsgFlags::empty()).unwrap();
        assert!(matches!(packet.message, Request::Spawn { env, .. } if env[0].1.len() == 30_000));
    }
}
