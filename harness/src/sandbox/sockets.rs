//! Destroys the TCP connections of a host, so that its peers hear nothing of their end.
//!
//! A process that dies leaves its connections to the kernel, which goes on to say goodbye for it; a machine
//! that loses its power does not. So they are destroyed while the host's link is down (sock_diag(7),
//! SOCK_DESTROY, which needs CONFIG_INET_DIAG_DESTROY). Connections in TIME_WAIT belong to nobody and stay.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use super::error::{Failure, Step};

/// Message types (linux/sock_diag.h, linux/netlink.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Flags of a netlink message.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;

/// Length of `nlmsghdr`.
const HEADER: usize = 16;
/// Length of `inet_diag_sockid`, which begins 4 bytes into `inet_diag_msg`.
const ID: usize = 48;
const ID_AT: usize = HEADER + 4;

/// Every state but TIME_WAIT (6), as a mask (net/tcp_states.h).
const STATES: u32 = !(1 << 6);

/// How often is looked: a destroyed connection may take a moment to go.
const LOOKS: usize = 50;

/// Destroys every TCP connection of this network namespace and returns how many there were. Refused where
/// a process is left that would make new ones: the caller has killed them all.
pub(super) fn destroy_all() -> Result<usize, Failure> {
    let failed = |errno| {
        Failure::new(
            Step::Sockets,
            "destroy the TCP connections of a host",
            errno,
        )
    };
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )
    .map_err(failed)?;
    let mut destroyed = 0;
    for _ in 0..LOOKS {
        let mut left = 0;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let family = family as u8;
            for id in list(&netlink, family).map_err(failed)? {
                left += 1;
                match destroy(&netlink, family, &id) {
                    Ok(()) => destroyed += 1,
                    // It went by itself in the meantime.
                    Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        if left == 0 {
            return Ok(destroyed);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Err(failed(Errno::ETIMEDOUT))
}

/// The identities of all connections of a family.
fn list(netlink: &OwnedFd, family: u8) -> Result<Vec<[u8; ID]>, Errno> {
    send(
        netlink,
        &request(SOCK_DIAG_BY_FAMILY, DUMP, family, &[0; ID]),
    )?;
    let mut ids = Vec::new();
    loop {
        let mut buffer = vec![0; 1 << 16];
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        for message in messages(&buffer[..length]) {
            match kind(message) {
                NLMSG_DONE => return Ok(ids),
                NLMSG_ERROR => return Err(error(message)),
                _ => ids.extend(
                    message
                        .get(ID_AT..ID_AT + ID)
                        .and_then(|id| <[u8; ID]>::try_from(id).ok()),
                ),
            }
        }
    }
}

/// Destroys one connection.
fn destroy(netlink: &OwnedFd, family: u8, id: &[u8; ID]) -> Result<(), Errno> {
    send(netlink, &request(SOCK_DESTROY, ACK, family, id))?;
    let mut buffer = vec![0; 1 << 12];
    let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    match messages(&buffer[..length]).next().map(error) {
        Some(Errno::UnknownErrno) => Ok(()),
        Some(errno) => Err(errno),
        None => Err(Errno::EPROTO),
    }
}

/// `nlmsghdr` and `inet_diag_req_v2`.
fn request(kind: u16, flags: u16, family: u8, id: &[u8; ID]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + 8 + ID);
    message.extend(((HEADER + 8 + ID) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags | REQUEST).to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, libc::IPPROTO_TCP as u8, 0, 0]);
    message.extend(STATES.to_ne_bytes());
    message.extend(id);
    message
}

fn send(netlink: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    let kernel = NetlinkAddr::new(0, 0);
    sendto(netlink.as_raw_fd(), message, &kernel, MsgFlags::empty()).map(drop)
}

/// The messages of one datagram, each with its header.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = datagram.get(..4)?.try_into().ok()?;
        let length = usize::try_from(u32::from_ne_bytes(length)).ok()?;
        if length < HEADER || length > datagram.len() {
            return None;
        }
        let (message, _) = datagram.split_at(length);
        // Messages begin at multiples of 4.
        datagram = &datagram[length.next_multiple_of(4).min(datagram.len())..];
        Some(message)
    })
}

/// The type of a message.
fn kind(message: &[u8]) -> u16 {
    u16::from_ne_bytes([message[4], message[5]])
}

/// The errno of an error message; 0, which is no errno, acknowledges.
fn error(message: &[u8]) -> Errno {
    let code = message
        .get(HEADER..HEADER + 4)
        .and_then(|code| <[u8; 4]>::try_from(code).ok())
        .map_or(-libc::EPROTO, i32::from_ne_bytes);
    Errno::from_raw(-code)
}
