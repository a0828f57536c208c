//! The switch with real threads and real descriptors: ports made of pairs of packet sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::time::{ClockId, clock_gettime};

use super::frame::tcp;
use super::*;

const MS: u64 = 1_000_000;

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Counts how often the offloads were switched, and refuses on request.
struct Toggle(Arc<AtomicBool>, bool);

impl Offloads for Toggle {
    fn set(&self, on: bool) -> io::Result<()> {
        if self.1 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.0.store(on, Ordering::SeqCst);
        Ok(())
    }
}

struct Lab {
    switch: Switch,
    hosts: Vec<OwnedFd>,
    offloads: Vec<Arc<AtomicBool>>,
}

impl Lab {
    /// A switch with hosts `h0`, `h1` …
    fn new(hosts: u8) -> Self {
        let switch = Switch::start(now).expect("it starts");
        let mut lab = Self {
            switch,
            hosts: Vec::new(),
            offloads: Vec::new(),
        };
        for number in 0..hosts {
            lab.add(number, false);
        }
        lab
    }

    fn add(&mut self, number: u8, refuses: bool) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (frames, host) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .expect("a pair of sockets");
        let on = Arc::new(AtomicBool::new(true));
        self.switch
            .add_port(PortSpec {
                name: format!("h{number}"),
                mac: mac(number),
                frames,
                offloads: Some(Box::new(Toggle(Arc::clone(&on), refuses))),
            })
            .expect("it lives");
        self.hosts.push(host);
        self.offloads.push(on);
    }

    fn send(&self, from: u8, to: u8, body: &[u8]) {
        let packet = tcp(mac(to), mac(from), (40_000, 2380), body);
        nix::unistd::write(&self.hosts[usize::from(from)], &packet).expect("the switch reads");
    }

    /// The body of the next frame that a host gets in time.
    fn next(&self, host: u8, within_ms: u16) -> Option<Vec<u8>> {
        let host = self.hosts[usize::from(host)].as_fd();
        let mut ready = [PollFd::new(host, PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::from(within_ms)).expect("polls");
        let mut buffer = [0; 2000];
        let len = sys::read(host, &mut buffer).expect("reads")?;
        Some(buffer[HEADER_LEN + 14 + 40..len].to_vec())
    }

    /// Bodies that arrive one after the other until nothing comes any more.
    fn all(&self, host: u8, within_ms: u16) -> Vec<u8> {
        std::iter::from_fn(|| self.next(host, within_ms))
            .flatten()
            .collect()
    }
}

fn rule(links: &[(u8, u8)], effect: Effect) -> Rule {
    let name = |number: &u8| format!("h{number}");
    Rule {
        links: links
            .iter()
            .map(|(from, to)| (name(from), name(to)))
            .collect(),
        port: None,
        effect,
        draw: 42,
    }
}

fn cut() -> Effect {
    Effect {
        cut: true,
        ..Effect::default()
    }
}

#[test]
fn every_link_of_the_matrix_is_cut_by_itself_and_healed() {
    let lab = Lab::new(4);
    let links: Vec<(u8, u8)> = (0..4)
        .flat_map(|from| (0..4).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    for cut_link in &links {
        let installed = lab
            .switch
            .install(&rule(&[*cut_link], cut()))
            .expect("cuts");
        for (from, to) in &links {
            lab.send(*from, *to, &[from * 10 + to]);
        }
        for host in 0..4 {
            let mut got = lab.all(host, 20);
            got.sort_unstable();
            let mut expected: Vec<u8> = links
                .iter()
                .filter(|link| link.1 == host && *link != cut_link)
                .map(|(from, to)| from * 10 + to)
                .collect();
            expected.sort_unstable();
            assert_eq!(got, expected, "{cut_link:?} cut, at {host}");
        }
        let removed = lab
            .switch
            .remove(installed.id)
            .expect("lives")
            .expect("was there");
        let counters = removed.counters;
        assert_eq!((counters.cut, counters.seen, counters.struck()), (1, 1, 1));
        let link = (format!("h{}", cut_link.0), format!("h{}", cut_link.1));
        assert_eq!(counters.struck_by_link, [(link, 1)].into());
    }
    lab.send(0, 1, b"x");
    assert_eq!(lab.next(1, 1000).as_deref(), Some(&b"x"[..]));
    assert!(lab.switch.remove(99).expect("lives").is_none());
}

#[test]
fn delayed_frames_arrive_on_time_and_a_cut_takes_those_under_way() {
    let lab = Lab::new(2);
    let delay = Effect {
        delay_ns: 50 * MS,
        ..Effect::default()
    };
    let delayed = lab.switch.install(&rule(&[(0, 1)], delay)).expect("delays");
    let sent_ns = now();
    lab.send(0, 1, b"late");
    assert_eq!(lab.next(1, 1000).as_deref(), Some(&b"late"[..]));
    let took_ns = now() - sent_ns;
    assert!((50 * MS..500 * MS).contains(&took_ns), "{took_ns}");
    lab.send(0, 1, b"lost");
    std::thread::sleep(Duration::from_millis(10));
    let cutting = lab.switch.install(&rule(&[(0, 1)], cut())).expect("cuts");
    assert_eq!(lab.next(1, 150), None);
    let counters = lab
        .switch
        .remove(cutting.id)
        .expect("lives")
        .expect("there")
        .counters;
    assert_eq!((counters.cut_under_way, counters.dropped()), (1, 1));
    let counters = lab
        .switch
        .remove(delayed.id)
        .expect("lives")
        .expect("there")
        .counters;
    assert_eq!((counters.delayed, counters.lateness.count()), (2, 1));
    let totals = lab.switch.totals().expect("lives");
    assert_eq!(
        (totals.received, totals.sent, totals.dropped, totals.waiting),
        (2, 1, 1, 0)
    );
}

#[test]
fn the_same_frames_have_the_same_fate_in_two_switches() {
    let effect = Effect {
        loss: 0.3,
        duplicate: 0.3,
        ..Effect::default()
    };
    let run = || {
        let lab = Lab::new(2);
        lab.switch
            .install(&rule(&[(0, 1)], effect.clone()))
            .expect("loses");
        let mut got = Vec::new();
        for number in 0..100 {
            lab.send(0, 1, &[number]);
            if number % 10 == 9 {
                got.extend(lab.all(1, 20));
            }
        }
        got
    };
    let first = run();
    assert_eq!(first, run());
    let once: std::collections::BTreeSet<u8> = first.iter().copied().collect();
    assert!(
        (40..95).contains(&once.len()) && first.len() > once.len(),
        "{first:?}"
    );
}

#[test]
fn a_selector_strikes_its_port_only() {
    let lab = Lab::new(2);
    let mut only = rule(&[(0, 1)], cut());
    only.port = Some(2379);
    let other = lab.switch.install(&only).expect("cuts");
    lab.send(0, 1, b"peer");
    assert_eq!(lab.next(1, 1000).as_deref(), Some(&b"peer"[..]));
    lab.switch.remove(other.id).expect("lives");
    only.port = Some(2380);
    lab.switch.install(&only).expect("cuts");
    lab.send(0, 1, b"peer");
    assert_eq!(lab.next(1, 100), None);
}

#[test]
fn corruption_flips_one_bit_and_needs_offloads_off() {
    let lab = Lab::new(3);
    let is_on = |host: usize| lab.offloads[host].load(Ordering::SeqCst);
    let corrupt = Effect {
        corrupt: 1.0,
        ..Effect::default()
    };
    let one = lab
        .switch
        .install(&rule(&[(0, 1), (0, 2)], corrupt.clone()))
        .expect("corrupts");
    let two = lab
        .switch
        .install(&rule(&[(0, 1)], corrupt))
        .expect("corrupts");
    assert!(!is_on(0) && is_on(1) && is_on(2));
    lab.switch.remove(two.id).expect("lives");
    assert!(!is_on(0), "the first rule still needs them off");
    let packet = tcp(mac(1), mac(0), (1, 2), &[0; 400]);
    nix::unistd::write(&lab.hosts[0], &packet).expect("the switch reads");
    let mut ready = [PollFd::new(lab.hosts[1].as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::from(1000_u16)).expect("polls");
    let mut got = [0; 2000];
    let len = sys::read(lab.hosts[1].as_fd(), &mut got)
        .expect("reads")
        .expect("one is there");
    let flipped: u32 = packet
        .iter()
        .zip(&got)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    assert_eq!((len, flipped), (packet.len(), 1));
    lab.switch.remove(one.id).expect("lives");
    assert!(is_on(0));
}

#[test]
fn rules_that_make_no_sense_are_refused_and_leave_nothing() {
    let mut lab = Lab::new(2);
    lab.add(2, true);
    let loss = Effect {
        loss: 0.1,
        ..Effect::default()
    };
    let both = Effect { loss: 0.1, ..cut() };
    for (bad, fragment) in [
        (rule(&[(0, 1)], Effect::default()), "at least one effect"),
        (rule(&[(0, 1)], both), "leave one of them out"),
        (rule(&[], cut()), "reaches nobody"),
        (rule(&[(1, 1)], cut()), "from h1 to itself"),
        (rule(&[(0, 9)], cut()), "no port h9; there are h0, h1, h2"),
        (rule(&[(0, 1), (2, 1)], loss), "h2: its segmentation"),
    ] {
        let error = lab.switch.install(&bad).expect_err(fragment).to_string();
        assert!(error.contains(fragment), "{error}");
    }
    assert!(lab.offloads[0].load(Ordering::SeqCst));
    lab.send(0, 1, b"x");
    assert_eq!(lab.next(1, 1000).as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_dead_switch_is_noticed_with_its_last_words() {
    let lab = Lab::new(2);
    let installed = lab.switch.install(&rule(&[(0, 1)], cut())).expect("cuts");
    assert!(lab.switch.check().is_ok());
    lab.switch.commands.send(Command::Panic).expect("it lives");
    let _ = lab.switch.wake.write(1);
    let error = loop {
        if let Err(error) = lab.switch.check() {
            break error.to_string();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(
        error.contains("has died") && error.contains("the test asked for it"),
        "{error}"
    );
    for error in [
        lab.switch.remove(installed.id).map(drop),
        lab.switch.totals().map(drop),
    ] {
        assert!(matches!(error, Err(SwitchError::Died { .. })));
    }
}

#[test]
fn a_host_that_is_gone_does_not_stop_the_others() {
    let mut lab = Lab::new(3);
    lab.hosts.remove(2);
    lab.send(0, 2, b"nobody");
    lab.send(0, 1, b"somebody");
    assert_eq!(lab.next(1, 1000).as_deref(), Some(&b"somebody"[..]));
    assert!(lab.switch.totals().expect("lives").refused > 0);
}

#[test]
fn onset_and_heal_are_fast() {
    let lab = Lab::new(2);
    let mut worst_ns = 0;
    for _ in 0..200 {
        let installed = lab.switch.install(&rule(&[(0, 1)], cut())).expect("cuts");
        let removed = lab
            .switch
            .remove(installed.id)
            .expect("lives")
            .expect("there");
        worst_ns = worst_ns
            .max(installed.since_ns - installed.requested_ns)
            .max(removed.gone_ns - removed.requested_ns);
    }
    println!("worst of 200: {} us", worst_ns / 1000);
    // Generous, for a machine that is busy with other tests; `fencepost bench faults` has the figures.
    assert!(worst_ns < 500 * MS);
}
