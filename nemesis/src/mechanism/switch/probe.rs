//! Tries the switch on this machine: a frame passes, is cut off, and passes again.
//!
//! Its two hosts are pairs of sockets. Whether the sandbox can give it ports of real hosts is for the
//! sandbox to find out.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::frame::{ETHERNET_LEN, HEADER_LEN};
use super::{Effect, PortSpec, Rule, Switch, sys};
use crate::mechanism::Availability;

/// Sends a frame through a switch, cuts the link, and heals it.
#[must_use]
pub fn probe() -> Availability {
    let tried = try_out();
    Availability {
        mechanism: "userspace switch",
        usable: tried.is_ok(),
        detail: match tried {
            Ok(()) => "passed, cut and passed a frame".to_owned(),
            Err(why) => why,
        },
    }
}

/// For deadlines only.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

fn try_out() -> Result<(), String> {
    let words = |error: super::SwitchError| error.to_string();
    let switch = Switch::start(wall_ns).map_err(words)?;
    let mut hosts = Vec::new();
    for number in 0..2 {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (frames, host) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|error| format!("socketpair: {error}"))?;
        let port = PortSpec {
            name: format!("h{number}"),
            mac: [2, 0, 0, 0, 0, number],
            frames,
            offloads: None,
        };
        switch.add_port(port).map_err(words)?;
        hosts.push(host);
    }
    let rule = Rule {
        links: vec![("h0".to_owned(), "h1".to_owned())],
        port: None,
        effect: Effect {
            cut: true,
            ..Effect::default()
        },
        draw: 0,
    };
    pass(&hosts, true)?;
    let cut = switch.install(&rule).map_err(words)?;
    pass(&hosts, false)?;
    switch.remove(cut.id).map_err(words)?;
    pass(&hosts, true)
}

/// Sends a frame from the first host to the second, and checks whether it arrives.
fn pass(hosts: &[OwnedFd], expected: bool) -> Result<(), String> {
    let mut packet = [0; HEADER_LEN + ETHERNET_LEN + 46];
    packet[HEADER_LEN..HEADER_LEN + 6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    let failed = |error: io::Error| format!("a frame could not be passed: {error}");
    nix::unistd::write(&hosts[0], &packet).map_err(|errno| failed(errno.into()))?;
    let patience = Duration::from_millis(if expected { 1000 } else { 20 });
    let started = Instant::now();
    let mut arrived = false;
    while !arrived && started.elapsed() < patience {
        arrived = sys::read(&hosts[1], &mut packet).map_err(failed)?.is_some();
        thread::sleep(Duration::from_micros(200));
    }
    if arrived == expected {
        Ok(())
    } else {
        Err(format!(
            "expected a frame {}, found that it {}",
            if expected {
                "to arrive"
            } else {
                "to be cut off"
            },
            if arrived { "arrived" } else { "did not arrive" }
        ))
    }
}
