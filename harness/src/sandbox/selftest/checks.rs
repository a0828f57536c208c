//! What the sandbox promises, each promise tried on running hosts. A check says what it found when it fails.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::super::{
    End, Host, HostSpec, Inside, Network, NetworkKind, Process, ProcessSpec, SELFTEST,
    SandboxError, node_address,
};
use super::{PORT, ask, faults};

/// How long anything may take that should be immediate.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) type Checked = Result<(), Box<dyn std::error::Error>>;
type Check = fn(&Bench) -> Checked;

/// A sandbox under test, as its controller sees it.
pub(super) struct Bench {
    inside: Inside,
    pub(super) hosts: Vec<Host>,
    /// Joins the hosts as long as it lives.
    _network: Network,
}

/// Name and check, in the order in which they run.
const CHECKS: &[(&str, Check)] = &[
    ("scratch is empty and sockets fit", scratch),
    ("hosts reach each other", reach_each_other),
    ("the controller reaches every host", controller_reaches),
    ("nothing outside is reachable", no_way_out),
    ("each host sees its own processes only", own_processes),
    ("PIDs are right on both sides", pids),
    ("a failed start is explained", failed_start),
    ("the cgroup holds the host without its init", cgroup),
    ("a stop reaches the whole tree", stop),
    ("a frozen host stands still and can be killed", frozen),
    ("a host can be used again after a kill", kill_and_restart),
    ("power goes without a goodbye", faults::power),
    ("syncs pass the gate", faults::gate),
];

impl Bench {
    /// Starts the hosts, each with a listener and an orphan.
    pub(super) fn start(count: u16, kind: NetworkKind) -> Result<Self, Box<dyn std::error::Error>> {
        let started = Instant::now();
        let inside = Inside::read()?;
        let network = Network::create(kind)?;
        let addresses: Vec<Ipv4Addr> = (1..=count).map(node_address).collect();
        let mut hosts = Vec::new();
        for (number, &address) in (1..).zip(&addresses) {
            let name = format!("n{number}");
            let cgroup = inside.cgroup.clone().ok();
            hosts.push(Host::start(
                &network,
                HostSpec {
                    name,
                    address,
                    neighbours: addresses.clone(),
                    cgroup,
                },
            )?);
        }
        println!(
            "{count} hosts {:.1} ms",
            started.elapsed().as_secs_f64() * 1e3
        );
        let bench = Self {
            inside,
            hosts,
            _network: network,
        };
        for host in &bench.hosts {
            populate(host)?;
        }
        println!("populated {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
        Ok(bench)
    }

    /// Runs every check and prints its outcome; true if all passed.
    pub(super) fn run_all(&self) -> bool {
        let mut passed = true;
        for (name, check) in CHECKS {
            let started = Instant::now();
            match check(self) {
                Ok(()) => println!(
                    "ok {name} ({:.1} ms)",
                    started.elapsed().as_secs_f64() * 1e3
                ),
                Err(error) => {
                    println!("FAILED {name}: {error}");
                    passed = false;
                }
            }
        }
        passed
    }
}

fn scratch(bench: &Bench) -> Checked {
    let path = &bench.inside.scratch;
    ensure(fs::read_dir(path)?.next().is_none(), || {
        format!("{} is not empty", path.display())
    })?;
    drop(UnixListener::bind(path.join(
        "n1-client-port-and-a-rather-long-name-for-a-unix-socket.sock",
    ))?);
    Ok(())
}

fn reach_each_other(bench: &Bench) -> Checked {
    let next = bench.hosts.iter().cycle().skip(1);
    for (host, other) in bench.hosts.iter().zip(next) {
        let answer = run(host, &["connect", &listener(other).to_string()])?;
        let expected = format!("{} ", other.name());
        ensure(answer.starts_with(&expected), || {
            format!("{} asked {} and got {answer:?}", host.name(), other.name())
        })?;
    }
    Ok(())
}

fn controller_reaches(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        let answer = ask(listener(host))?;
        ensure(answer.starts_with(host.name()), || {
            format!("{} answered {answer:?}", host.name())
        })?;
    }
    Ok(())
}

fn no_way_out(_: &Bench) -> Checked {
    // TEST-NET-1: no machine has it, so only the missing route can make this fail at once.
    match TcpStream::connect_timeout(&SocketAddr::from(([192, 0, 2, 1], 80)), PATIENCE) {
        Err(e) if e.raw_os_error() == Some(libc::ENETUNREACH) => Ok(()),
        other => Err(format!("expected ENETUNREACH, got {other:?}").into()),
    }
}

fn own_processes(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        // Init, listener, orphan.
        let answer = ask(listener(host))?;
        ensure(answer.trim_end().ends_with(" 3"), || {
            format!("expected 3 processes, {} says {answer:?}", host.name())
        })?;
    }
    Ok(())
}

fn pids(bench: &Bench) -> Checked {
    let mut seen = BTreeSet::new();
    for host in &bench.hosts {
        let process = start(host, &["sleep"])?.0;
        let tree = host.tree();
        ensure(tree.contains(&process.pid) && tree.len() == 3, || {
            format!("{process:?} is not in {tree:?}")
        })?;
        ensure(!tree.contains(&host.init_pid()), || {
            format!("{tree:?} contains the init")
        })?;
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid))?;
        let expected = format!("NSpid:\t{}\t{}\n", process.pid, process.host_pid);
        ensure(status.contains(&expected), || {
            format!("expected {expected:?} in {status}")
        })?;
        ensure(tree.iter().all(|&pid| seen.insert(pid)), || {
            format!("two hosts claim one of {tree:?}")
        })?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), Signal::SIGTERM)?;
        expect_end(host, process, End::Signalled(libc::SIGTERM))?;
    }
    Ok(())
}

fn failed_start(bench: &Bench) -> Checked {
    let host = &bench.hosts[0];
    let expect = |spec: ProcessSpec, errno: i32, word: &str| match host.spawn(spec) {
        Err(SandboxError::System(failure))
            if failure.errno == errno && failure.to_string().contains(word) =>
        {
            Ok(())
        }
        other => Err(format!(
            "expected errno {errno} and {word:?}, got {other:?}"
        )),
    };
    expect(
        spec(&["no-such-program"])?.0,
        libc::ENOENT,
        "no-such-program",
    )?;
    expect(spec(&["/proc/self/status"])?.0, libc::EACCES, "executable")?;
    let mut lost = spec(&["/proc/self/exe"])?.0;
    lost.cwd = Some("/no/such/folder".into());
    expect(lost, libc::ENOENT, "/no/such/folder")?;
    Ok(())
}

fn cgroup(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        let Some(path) = host.cgroup() else {
            return Ok(());
        };
        let procs = fs::read_to_string(path.join("cgroup.procs"))?;
        let members = procs
            .lines()
            .map(str::parse)
            .collect::<Result<BTreeSet<i32>, _>>()?;
        let tree = BTreeSet::from_iter(host.tree());
        ensure(members == tree, || {
            format!("{} holds {members:?}, the tree is {tree:?}", path.display())
        })?;
    }
    Ok(())
}

fn stop(bench: &Bench) -> Checked {
    let host = &bench.hosts[0];
    host.signal_all(Signal::SIGSTOP)?;
    let stopped = await_that(|| host.tree().into_iter().all(|pid| state(pid) == Some('T')));
    host.signal_all(Signal::SIGCONT)?;
    ensure(stopped, || "a process did not stop".into())?;
    ensure(await_that(|| ask(listener(host)).is_ok()), || {
        "the listener did not go on".into()
    })
}

fn frozen(bench: &Bench) -> Checked {
    let host = &bench.hosts[0];
    let Some(path) = host.cgroup() else {
        return Ok(());
    };
    fs::write(path.join("cgroup.freeze"), "1")?;
    let frozen = || {
        fs::read_to_string(path.join("cgroup.events"))
            .is_ok_and(|events| events.contains("frozen 1"))
    };
    ensure(await_that(frozen), || "it never said frozen".into())?;
    ensure(ask(listener(host)).is_err(), || {
        "a frozen listener answered".into()
    })?;
    host.kill_all()?;
    ensure(host.tree().is_empty(), || {
        format!("left after the kill: {:?}", host.tree())
    })?;
    fs::write(path.join("cgroup.freeze"), "0")?;
    drain(host)?;
    populate(host)
}

fn kill_and_restart(bench: &Bench) -> Checked {
    for host in &bench.hosts {
        drain(host)?;
        let victim = start(host, &["sleep"])?.0;
        host.kill_all()?;
        ensure(host.tree().is_empty(), || {
            format!("left after the kill: {:?}", host.tree())
        })?;
        // The listener ended too, in either order.
        let ends: Vec<_> = std::iter::from_fn(|| {
            host.exits()
                .next_within(Duration::from_millis(1))
                .transpose()
        })
        .collect::<Result<_, _>>()?;
        let killed = ends
            .iter()
            .find(|exit| exit.id == victim.id)
            .map(|exit| exit.end);
        ensure(killed == Some(End::Signalled(libc::SIGKILL)), || {
            format!("{victim:?} is reported as {ends:?}")
        })?;
        populate(host)?;
        let answer = ask(listener(host))?;
        ensure(answer.starts_with(host.name()), || {
            format!("after the restart {} says {answer:?}", host.name())
        })?;
    }
    Ok(())
}

/// Gives a host its listener and its orphan, and waits for both.
pub(super) fn populate(host: &Host) -> Checked {
    let (_, output) = start(host, &["listen"])?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure(line == "listening\n", || {
        format!("the listener on {} said {line:?}", host.name())
    })?;
    run(host, &["daemonise"])?;
    ensure(await_that(|| host.tree().len() == 2), || {
        format!("expected a tree of 2, found {:?}", host.tree())
    })
}

/// Runs one of the self-test's parts in a host to its end and returns its output.
fn run(host: &Host, part: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let (process, mut output) = start(host, part)?;
    expect_end(host, process, End::Exited(0))?;
    let mut text = String::new();
    if part[0] != "daemonise" {
        output.read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Starts one of the self-test's parts in a host; returns its standard output too.
pub(super) fn start(
    host: &Host,
    part: &[&str],
) -> Result<(Process, File), Box<dyn std::error::Error>> {
    let (spec, output) = spec(&[&["/proc/self/exe", SELFTEST], part].concat())?;
    Ok((host.spawn(spec)?, output))
}

pub(super) fn spec(argv: &[&str]) -> Result<(ProcessSpec, File), Box<dyn std::error::Error>> {
    let (reader, writer) = std::io::pipe()?;
    let spec = ProcessSpec {
        argv: argv.iter().map(Into::into).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: None,
        stdin: File::open("/dev/null")?.into(),
        stdout: writer.into(),
        stderr: File::options().write(true).open("/dev/null")?.into(),
    };
    Ok((spec, File::from(OwnedFd::from(reader))))
}

/// Waits for the end of a process; ends of others on the way are dropped.
pub(super) fn expect_end(host: &Host, process: Process, expected: End) -> Checked {
    while let Some(exit) = host.exits().next_within(PATIENCE)? {
        if exit.id == process.id {
            return ensure(exit.end == expected, || {
                format!("{process:?} on {}: {}", host.name(), exit.end)
            });
        }
    }
    Err(format!("the end of {process:?} on {} was not reported", host.name()).into())
}

pub(super) fn drain(host: &Host) -> Checked {
    while host.exits().try_next()?.is_some() {}
    Ok(())
}

pub(super) fn listener(host: &Host) -> SocketAddr {
    SocketAddr::from((host.address(), PORT))
}

/// State letter of a process, from /proc/PID/stat.
fn state(pid: i32) -> Option<char> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()?
        .rsplit_once(") ")?
        .1
        .chars()
        .next()
}

fn await_that(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    true
}

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(otherwise().into())
    }
}
