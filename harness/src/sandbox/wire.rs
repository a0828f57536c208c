//! The switch's end of a link: a packet socket on the outer end of a host's veth pair, and the handle that
//! switches the offloads of the inner end.
//!
//! Packet sockets need no device file and no privilege outside the sandbox, and were measured to be faster
//! for small frames than TAP devices (`PACKET_VNET_HDR` keeps segmentation offload; packet(7)).
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nemesis::mechanism::switch::Offloads;
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use super::error::{Failure, Step};
use super::syscalls::interface_index;

/// Asked-for size of the buffers between kernel and switch; the kernel may give less.
const BUFFER_BYTES: libc::c_int = 32 << 20;

/// Not in the libc crate: do not see what this machine sends out of the interface (linux/if_packet.h).
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A socket that reads what comes into an interface and writes what goes out of it: whole frames, each
/// behind a virtio header.
pub(super) fn open(interface: &str) -> Result<OwnedFd, Failure> {
    let failed =
        |what: &'static str| move |e| Failure::new(Step::Network, format!("{what} {interface}"), e);
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call. With protocol 0 it hears nothing until it is bound.
    let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
        .map_err(failed("open a packet socket for"))?;
    // SAFETY: the descriptor was created just now and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    for option in [
        PACKET_IGNORE_OUTGOING,
        libc::PACKET_VNET_HDR,
        libc::PACKET_QDISC_BYPASS,
    ] {
        set(&socket, libc::SOL_PACKET, option, 1).map_err(failed("set up the packet socket of"))?;
    }
    for (forced, asked) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        // Without the privilege the buffer is what the system's limit allows.
        if set(&socket, libc::SOL_SOCKET, forced, BUFFER_BYTES).is_err() {
            let _ = set(&socket, libc::SOL_SOCKET, asked, BUFFER_BYTES);
        }
    }
    let index = interface_index(interface).map_err(failed("find the interface"))?;
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a sockaddr_ll of the length that is given, and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    Errno::result(bound).map_err(failed("bind a packet socket to"))?;
    Ok(socket)
}

fn set(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value is an int, its length is given, and it outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    };
    Errno::result(result).map(drop)
}

/// The offloads of an interface in another network namespace.
pub(super) struct HostOffloads {
    /// A socket of that namespace, through which its interfaces can be asked and told.
    socket: OwnedFd,
    interface: &'static str,
}

/// Transmit checksums, TCP segmentation, generic segmentation (linux/ethtool.h).
const COMMANDS: [u32; 3] = [
    0x17, // ETHTOOL_STXCSUM
    0x1f, // ETHTOOL_STSO
    0x24, // ETHTOOL_SGSO
];

/// Sends an ethtool request (linux/sockios.h).
const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl HostOffloads {
    /// Those of `interface` in the network namespace of a process.
    pub(super) fn of(pid: i32, interface: &'static str) -> Result<Self, Failure> {
        let path = format!("/proc/{pid}/ns/net");
        let failed = |what: String| move |e: io::Error| Failure::io(Step::Network, what, &e);
        let namespace = File::open(&path).map_err(failed(format!("open {path}")))?;
        // A thread of its own, because it does not come back from there.
        let opened = std::thread::scope(|scope| {
            let entering = scope.spawn(|| -> io::Result<OwnedFd> {
                setns(&namespace, CloneFlags::CLONE_NEWNET)?;
                Ok(std::net::UdpSocket::bind("0.0.0.0:0")?.into())
            });
            entering
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let socket = opened.map_err(failed(format!("open a socket in {path}")))?;
        Ok(Self { socket, interface })
    }
}

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    value: u32,
}

impl Offloads for HostOffloads {
    fn set(&self, on: bool) -> io::Result<()> {
        // On again in the other order: segmentation needs checksums.
        let mut order = COMMANDS;
        if !on {
            order.reverse();
        }
        for command in order {
            let mut value = EthtoolValue {
                command,
                value: u32::from(on),
            };
            // SAFETY: all-zero bytes are a valid ifreq.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(self.interface.bytes()) {
                *to = from.cast_signed();
            }
            request.ifr_ifru.ifru_data = (&raw mut value).cast();
            // SAFETY: the request names the interface, its name ends with a zero (15 bytes at most), and
            // its data points to a value that outlives the call.
            Errno::result(unsafe {
                libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request)
            })?;
        }
        Ok(())
    }
}
