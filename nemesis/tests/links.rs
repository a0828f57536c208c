//! `partition` and `link` on a real switch whose hosts are pairs of sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nemesis::fault::{InForce, Request, find};
use nemesis::mechanism::links::Links;
use nemesis::mechanism::switch::{HEADER_LEN, PortSpec, Switch};
use nemesis::{ClientOf, HostControl, ParamValue, Params, Roster, Target, World};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::time::{ClockId, clock_gettime};

const MS: u64 = 1_000_000;
const HOSTS: [&str; 5] = ["n1", "n2", "n3", "c1", "c2"];

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    u64::try_from(time.tv_sec()).expect("after boot") * 1_000_000_000
        + u64::try_from(time.tv_nsec()).expect("not negative")
}

/// A host without processes: faults on links need its name only.
struct Named(&'static str);

impl HostControl for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn tree(&self) -> Vec<i32> {
        Vec::new()
    }

    fn signal_all(&self, _: i32) -> io::Result<()> {
        panic!("no fault on links sends a signal")
    }

    fn kill_all(&self) -> io::Result<()> {
        panic!("no fault on links kills")
    }

    fn restart(&self) -> io::Result<()> {
        panic!("no fault on links restarts")
    }

    fn cgroup(&self) -> Option<&Path> {
        None
    }
}

/// Three nodes and two clients on a switch; n1 leads, c1 talks to n1 and c2 to n2.
struct Lab {
    switch: Arc<Switch>,
    sockets: Vec<OwnedFd>,
}

impl World for Lab {
    fn roster(&self) -> Roster {
        let client = |name: &str, node: &str| ClientOf {
            name: name.to_owned(),
            node: Some(node.to_owned()),
        };
        Roster {
            nodes: HOSTS[..3].iter().map(|&name| name.to_owned()).collect(),
            clients: vec![client("c1", "n1"), client("c2", "n2")],
        }
    }

    fn links(&self) -> Result<Arc<dyn Links>, String> {
        Ok(Arc::clone(&self.switch) as Arc<dyn Links>)
    }

    fn resolve(
        &self,
        target: &Target,
        _: Option<&str>,
        _: u64,
    ) -> Result<Vec<Arc<dyn HostControl>>, String> {
        let name = match target {
            Target::Leader => "n1".to_owned(),
            Target::Node(name) | Target::ClientHost(name) => name.clone(),
            _ => return Err("the cluster has no such host now".to_owned()),
        };
        let host = HOSTS.iter().find(|&&host| host == name);
        let host = host.ok_or_else(|| format!("there is no host {name}"))?;
        Ok(vec![Arc::new(Named(host))])
    }
}

impl Lab {
    fn new() -> Self {
        let switch = Arc::new(Switch::start(now).expect("it starts"));
        let mut sockets = Vec::new();
        for (number, name) in (0..).zip(HOSTS) {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let (frames, host) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
                .expect("a pair of sockets");
            switch
                .add_port(PortSpec {
                    name: name.to_owned(),
                    mac: [2, 0, 0, 0, 0, number],
                    frames,
                    offloads: None,
                })
                .expect("it lives");
            sockets.push(host);
        }
        Self { switch, sockets }
    }

    fn inject(
        &self,
        kind: &str,
        target: &str,
        params: &[(&str, ParamValue)],
    ) -> Result<Box<dyn InForce>, String> {
        let params = params
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        let params = Params(params.collect());
        let target: Target = target.parse().expect("a target");
        let hosts = self.resolve(&target, None, 0).expect("it exists");
        let spec = find(kind).expect("registered");
        (spec.check)(&target, &params)?;
        let request = Request {
            asked_ns: None,
            now,
            params: &params,
            pick: 0,
            world: self,
        };
        let injected = (spec.build)().inject(&hosts, &request);
        injected.map_err(|error| error.to_string())
    }

    fn index(name: &str) -> usize {
        let found = HOSTS.iter().position(|&host| host == name);
        found.expect("a host")
    }

    /// Whether a frame gets from one host to another.
    fn hears(&self, from: &str, to: &str) -> bool {
        let (from, to) = (Self::index(from), Self::index(to));
        let mut packet = [0; HEADER_LEN + 60];
        packet[HEADER_LEN..HEADER_LEN + 6].copy_from_slice(&[
            2,
            0,
            0,
            0,
            0,
            u8::try_from(to).expect("few"),
        ]);
        nix::unistd::write(&self.sockets[from], &packet).expect("the switch reads");
        let socket = self.sockets[to].as_fd();
        let mut ready = [PollFd::new(socket, PollFlags::POLLIN)];
        let came = poll(&mut ready, PollTimeout::from(30_u16)).expect("polls") > 0;
        if came {
            nix::unistd::read(socket, &mut packet).expect("one is there");
        }
        came
    }

    /// The links that pass nothing, as `n1>n2`.
    fn cut(&self) -> Vec<String> {
        let pairs = HOSTS
            .iter()
            .flat_map(|from| HOSTS.iter().map(move |to| (from, to)));
        pairs
            .filter(|(from, to)| from != to && !self.hears(from, to))
            .map(|(from, to)| format!("{from}>{to}"))
            .collect()
    }
}

fn text(text: &str) -> ParamValue {
    ParamValue::Text(text.to_owned())
}

fn word(word: &str) -> ParamValue {
    ParamValue::Word(word.to_owned())
}

#[test]
fn each_shape_cuts_what_it_says_and_heals_with_a_receipt() {
    let lab = Lab::new();
    type Case<'a> = (&'a str, &'a [(&'a str, ParamValue)], &'a [&'a str]);
    let cases: [Case<'_>; 7] = [
        (
            "leader",
            &[("from", text("nodes"))],
            &["n1>n2", "n1>n3", "n2>n1", "n3>n1"],
        ),
        (
            "leader",
            &[],
            &[
                "n1>n2", "n1>n3", "n1>c1", "n1>c2", "n2>n1", "n3>n1", "c1>n1", "c2>n1",
            ],
        ),
        (
            "leader",
            &[("from", text("nodes")), ("way", word("in"))],
            &["n2>n1", "n3>n1"],
        ),
        (
            "client:c2",
            &[("from", text("its-node"))],
            &["n2>c2", "c2>n2"],
        ),
        (
            "client:c2",
            &[("from", text("nodes")), ("way", word("out"))],
            &["c2>n1", "c2>n2", "c2>n3"],
        ),
        ("leader", &[("shape", word("bridge"))], &["n2>n3", "n3>n2"]),
        (
            "leader",
            &[("shape", word("majority-minority"))],
            &["n1>n2", "n1>n3", "n2>n1", "n3>n1"],
        ),
    ];
    for (target, params, expected) in cases {
        let mut partition = lab.inject("partition", target, params).expect("it cuts");
        assert_eq!(lab.cut(), expected, "{target} {params:?}");
        assert!(partition.check().is_ok());
        let receipt = partition.heal().expect("it heals");
        assert!(receipt.proven, "{}", receipt.words);
        let dropped = format!("{} cut", expected.len());
        assert!(receipt.words.contains(&dropped), "{}", receipt.words);
        assert_eq!(lab.cut(), [""; 0], "healed");
    }
}

#[test]
fn in_a_ring_of_three_each_node_hears_one_other() {
    let lab = Lab::new();
    let _ring = lab
        .inject("partition", "leader", &[("shape", word("ring"))])
        .expect("it cuts");
    let cut = lab.cut();
    assert_eq!(cut.len(), 3, "{cut:?}");
    for hearer in &HOSTS[..3] {
        let deaf = cut.iter().filter(|link| link.ends_with(hearer));
        assert_eq!(deaf.count(), 1, "{cut:?}");
    }
}

#[test]
fn a_partition_that_nobody_ran_into_is_not_proven() {
    let lab = Lab::new();
    let mut partition = lab.inject("partition", "leader", &[]).expect("it cuts");
    let receipt = partition.heal().expect("it heals");
    assert!(!receipt.proven);
    assert!(
        receipt.words.contains("NOT PROVEN: no frame was cut"),
        "{}",
        receipt.words
    );
}

#[test]
fn a_dropped_partition_heals() {
    let lab = Lab::new();
    drop(lab.inject("partition", "leader", &[]).expect("it cuts"));
    assert_eq!(lab.cut(), [""; 0]);
}

#[test]
fn a_flapping_link_is_cut_and_whole_in_turns() {
    let lab = Lab::new();
    let flap = ("flap", ParamValue::DurationNs(300 * MS));
    let mut partition = lab.inject("partition", "leader", &[flap]).expect("it cuts");
    let mut changes = 0;
    let mut last = lab.hears("n1", "n2");
    let until_ns = now() + 1500 * MS;
    while now() < until_ns {
        let hears = lab.hears("n1", "n2");
        changes += u32::from(hears != last);
        last = hears;
    }
    assert!((3..=6).contains(&changes), "{changes}");
    assert!(partition.heal().expect("it heals").proven);
}

#[test]
fn a_link_is_slow_and_the_receipt_says_how_late_frames_were() {
    let lab = Lab::new();
    let delay = ("delay", ParamValue::DurationNs(20 * MS));
    let with = ("with", text("node:n2"));
    let mut link = lab
        .inject("link", "leader", &[delay, with])
        .expect("it delays");
    let sent_ns = now();
    assert!(lab.hears("n1", "n2"));
    assert!(now() - sent_ns >= 20 * MS);
    let receipt = link.heal().expect("it heals");
    assert!(receipt.proven, "{}", receipt.words);
    for words in ["1 delayed", "n1→n2 1", "sent on late by", "20 ms late"] {
        assert!(receipt.words.contains(words), "{words}: {}", receipt.words);
    }
}

#[test]
fn contradictions_and_unknown_hosts_are_refused_with_what_to_do() {
    let lab = Lab::new();
    let share = ParamValue::Share;
    let ms = |ms: u64| ParamValue::DurationNs(ms * MS);
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, ParamValue)], &'a str);
    let cases: [Case<'_>; 10] = [
        ("link", "leader", &[], "at least one effect"),
        (
            "link",
            "leader",
            &[("cut", ParamValue::Flag(true)), ("loss", share(0.1))],
            "leave one of them out",
        ),
        (
            "link",
            "leader",
            &[("delay", ms(1)), ("jitter", ms(2))],
            "raise the delay",
        ),
        ("link", "leader", &[("reorder", share(0.5))], "add a delay"),
        (
            "link",
            "node:n1",
            &[("loss", share(0.5)), ("with", text("node:n1"))],
            "two different hosts",
        ),
        (
            "link",
            "leader",
            &[("loss", share(0.5)), ("with", text("node:n9"))],
            "there is no host n9",
        ),
        (
            "link",
            "leader",
            &[("loss", share(0.5)), ("port", text("http"))],
            "from 1 to 65535",
        ),
        (
            "partition",
            "node:n1",
            &[("from", text("its-node"))],
            "a client as the target",
        ),
        (
            "partition",
            "client:c1",
            &[("shape", word("halves"))],
            "a target that is a node",
        ),
        (
            "partition",
            "leader",
            &[("shape", word("ring")), ("way", word("in"))],
            "way = \"both\"",
        ),
    ];
    for (kind, target, params, fragment) in cases {
        let refused = lab.inject(kind, target, params);
        let why = refused
            .map(|in_force| in_force.words())
            .expect_err(fragment);
        assert!(why.contains(fragment), "{why}");
    }
    assert_eq!(lab.cut(), [""; 0], "nothing is left in force");
}
