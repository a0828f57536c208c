//! What is measured of the network and of pauses, inside a sandbox with two hosts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nemesis::fault::{self, Request};
use nemesis::mechanism::links::Links;
use nemesis::mechanism::switch::{Effect, Rule, RuleId};
use nemesis::{HostControl, Params, Target};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use workloads::truth::now_ns;

use super::sample::{Sample, figure};
use crate::known::known;
use crate::run::host::ManagedHost;
use crate::run::place::Place;
use crate::sandbox::{Host, NetworkKind, ProcessSpec, client_address};
use crate::scenario::{ArmPlan, Scenario, render};

/// The cluster that puts are measured on, and two hosts to measure between.
const SCENARIO: &str = r#"
title = "bench faults"
[cluster]
backend = "etcd"
[workload]
kind = "mutex"
lock = "etcd-v3lock"
clients = 2
workers = 2
ttl = "5s"
duration = "1s"
"#;

/// Datagrams that pass while cuts are timed, one every 0.2 ms or so.
const NOISE: u32 = 8_000;
/// Cuts that are timed.
const CUTS: usize = 300;
/// Datagrams whose delay is measured, and the pause between two.
const DATAGRAMS: u64 = 400;
const GAP_US: u64 = 5_000;
/// The delay that is asked for.
const DELAY_NS: u64 = 50_000_000;
/// Processes that burn CPU time when the machine is to be under load.
const HOGS: usize = 4;
/// Pauses that are timed.
const PAUSES: usize = 50;
/// How long requests and answers are counted, in milliseconds.
const ASK_MS: u64 = 2_000;

/// Measures everything that this kind of network can do.
pub(super) fn measure(kind: NetworkKind) -> Result<()> {
    let arm = arm(kind)?;
    let logs = std::env::temp_dir();
    let place = Place::new(&arm, logs)?;
    let pair = Pair {
        links: place.network.links(),
        hosts: [
            place.host("c1", client_address(1))?,
            place.host("c2", client_address(2))?,
        ],
    };
    pair.requests()?;
    if kind == NetworkKind::Switch {
        pair.cuts("idle")?;
        pair.delays("idle")?;
        let hogs = (0..HOGS)
            .map(|_| pair.start(0, &["hog"]))
            .collect::<Result<Vec<_>>>()?;
        pair.cuts("4 busy processes")?;
        pair.delays("4 busy processes")?;
        drop(hogs);
        pair.hosts[0].kill_all()?;
        pair.decisions()?;
    }
    drop(pair);
    if kind == NetworkKind::Switch {
        pauses(&place)?;
    }
    Ok(())
}

/// An arm on this kind of network.
pub(super) fn arm(kind: NetworkKind) -> Result<ArmPlan> {
    let scenario = Scenario::parse("bench", SCENARIO, &known());
    let mut scenario = scenario.map_err(|errors| anyhow::anyhow!(render(&errors)))?;
    let mut arm = scenario.arms.remove(0);
    arm.cluster.network = kind;
    Ok(arm)
}

/// Two hosts with a link between them.
struct Pair {
    links: Arc<dyn Links>,
    hosts: [Host; 2],
}

impl Pair {
    /// Starts a role on a host and returns its output, after its first line where it says that it is ready.
    fn start(&self, host: usize, role: &[&str]) -> Result<BufReader<File>> {
        start(&self.hosts[host], role)
    }

    /// A rule in force on the link from the first host to the second.
    fn install(&self, effect: Effect) -> Result<RuleId> {
        let names = self.hosts.each_ref().map(|host| host.name().to_owned());
        let [from, to] = names;
        let rule = Rule {
            links: vec![(from, to)],
            port: None,
            effect,
            draw: 42,
        };
        Ok(self.links.install(&rule)?.id)
    }

    /// Requests and answers a second on one connection.
    fn requests(&self) -> Result<()> {
        let echo = self.start(1, &["echo", "7000"])?;
        let address = format!("{}:7000", self.hosts[1].address());
        let mut asked = self.start(0, &["ask", &address, &ASK_MS.to_string()])?;
        let mut answered = String::new();
        asked.read_to_string(&mut answered)?;
        drop(echo);
        self.hosts[1].kill_all()?;
        figure(
            "requests and answers a second, one connection",
            answered.trim(),
        );
        Ok(())
    }

    /// How long a cut takes to be in force and to be lifted, while datagrams pass.
    fn cuts(&self, load: &str) -> Result<()> {
        let address = format!("{}:7001", self.hosts[1].address());
        let noise = self.start(0, &["tell", &address, &NOISE.to_string(), "200"])?;
        let names = self.hosts.each_ref().map(|host| host.name().to_owned());
        let [one, two] = names;
        let rule = Rule {
            links: vec![(one.clone(), two.clone()), (two, one)],
            port: None,
            effect: Effect {
                cut: true,
                ..Effect::default()
            },
            draw: 0,
        };
        let (mut onset, mut heal, mut dropped) = (Sample::default(), Sample::default(), 0);
        for _ in 0..CUTS {
            let installed = self.links.install(&rule)?;
            std::thread::sleep(Duration::from_millis(3));
            let removed = self
                .links
                .remove(installed.id)?
                .context("the rule is gone")?;
            onset.add(installed.since_ns - installed.requested_ns);
            heal.add(removed.gone_ns - removed.requested_ns);
            dropped += removed.counters.dropped();
        }
        if dropped == 0 {
            bail!("no cut dropped a frame, though one was sent every 0.2 ms");
        }
        // It ends by itself; what comes next is not to be disturbed by it.
        drop(noise.lines().last());
        onset.row(&format!("partition: onset after the call ({load})"));
        heal.row(&format!("partition: heal after the call ({load})"));
        Ok(())
    }

    /// What becomes of a delay of 50 ms.
    fn delays(&self, load: &str) -> Result<()> {
        let rule = self.install(Effect {
            delay_ns: DELAY_NS,
            ..Effect::default()
        })?;
        let heard = self.datagrams(DATAGRAMS, GAP_US)?;
        self.links.remove(rule)?;
        let sample: Sample = heard.into_iter().map(|(_, took_ns)| took_ns).collect();
        sample.row(&format!("delay of 50 ms ({load})"));
        Ok(())
    }

    /// Sends datagrams from the first host to the second; number and time under way of those that came.
    fn datagrams(&self, count: u64, gap_us: u64) -> Result<Vec<(u64, u64)>> {
        let most = (count * 2).to_string();
        let mut heard = self.start(1, &["hear", "7002", &most, "500"])?;
        let address = format!("{}:7002", self.hosts[1].address());
        let told = self.start(
            0,
            &["tell", &address, &count.to_string(), &gap_us.to_string()],
        )?;
        let mut text = String::new();
        heard.read_to_string(&mut text)?;
        drop(told);
        let pair = |line: &str| {
            let (number, took_ns) = line.split_once(' ')?;
            Some((number.parse().ok()?, took_ns.parse().ok()?))
        };
        Ok(text.lines().filter_map(pair).collect())
    }

    /// Whether the same seed loses and doubles the same datagrams.
    fn decisions(&self) -> Result<()> {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let rule = self.install(Effect {
                loss: 0.2,
                duplicate: 0.1,
                ..Effect::default()
            })?;
            let heard = self.datagrams(500, 1_000)?;
            self.links.remove(rule)?;
            runs.push(
                heard
                    .into_iter()
                    .map(|(number, _)| number)
                    .collect::<Vec<_>>(),
            );
        }
        let came = |run: &Vec<u64>| run.len();
        let same = if runs[0] == runs[1] {
            "the same"
        } else {
            "DIFFERENT"
        };
        let counts = format!("{same} ({} and {} of 500)", came(&runs[0]), came(&runs[1]));
        figure("loss and duplicates twice under one seed", &counts);
        Ok(())
    }
}

/// Starts a role on a host. One that says when it is ready is waited for.
fn start(host: &Host, role: &[&str]) -> Result<BufReader<File>> {
    let (output, stdout) = pipe2(OFlag::O_CLOEXEC)?;
    let null = File::open("/dev/null")?;
    let argv = ["/proc/self/exe", "bench", "faults", "--wire"];
    host.spawn(ProcessSpec {
        argv: argv.iter().chain(role).map(Into::into).collect(),
        env: Vec::new(),
        cwd: None,
        stdin: null.into(),
        stdout,
        stderr: std::io::stderr().as_fd().try_clone_to_owned()?,
    })?;
    let mut output = BufReader::new(File::from(output));
    if matches!(role[0], "echo" | "hear") {
        let mut ready = String::new();
        output.read_line(&mut ready)?;
    }
    Ok(output)
}

/// How long a pause takes to be confirmed, and to be lifted.
fn pauses(place: &Place) -> Result<()> {
    let restart = |_: &Host| Err(std::io::ErrorKind::Unsupported.into());
    let host = ManagedHost::new(place.host("c1", client_address(1))?, Box::new(restart));
    let _echo = start(host.host(), &["echo", "7000"])?;
    let hosts: [Arc<dyn HostControl>; 1] = [Arc::new(host)];
    let pause = (fault::find("pause")
        .context("this build has no pause")?
        .build)();
    let (mut onset, mut lift) = (Sample::default(), Sample::default());
    for _ in 0..PAUSES {
        let request = Request {
            asked_ns: Some(20_000_000),
            now: now_ns,
            params: &Params::default(),
            pick: 0,
            world: &Nobody,
        };
        let mut in_force = pause.inject(&hosts, &request)?;
        onset.add(in_force.since_ns() - in_force.requested_ns());
        std::thread::sleep(Duration::from_millis(20));
        let receipt = in_force.heal()?;
        lift.add(now_ns() - receipt.lifted_ns);
    }
    onset.row("pause: confirmed after the request");
    lift.row("pause: confirmed to run again after the request");
    Ok(())
}

/// A pause needs to know of nobody else.
struct Nobody;

impl nemesis::World for Nobody {
    fn resolve(
        &self,
        target: &Target,
        _: Option<&str>,
        _: u64,
    ) -> Result<Vec<Arc<dyn HostControl>>, String> {
        Err(format!("there is no {target} here"))
    }
}
