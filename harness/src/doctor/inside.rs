//! The part of the doctor that runs in the sandbox: tries each operation and tells what came of it.
//!
//! One failure must not hide another: whatever can still be tried is tried.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use nemesis::Need;
use nemesis::fault::{FAULTS, FaultSpec};
use nemesis::mechanism::fsync_gate::{Answer, FsyncGate};
use workloads::truth::now_ns;

use super::{EVERY_RUN, FaultFinding, Finding, Mechanism, Refusal, Told};
use crate::exit::Exit;
use crate::sandbox::{
    End, Host, HostSpec, Inside, Network, NetworkKind, ProcessSpec, node_address,
};

/// How long a process may take that ends at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries everything and tells it over `pipe`.
#[must_use]
pub fn main(pipe: OwnedFd) -> Exit {
    let mut teller = Teller {
        pipe: pipe.into(),
        failed: Vec::new(),
    };
    teller.try_all();
    Exit::Met
}

struct Teller {
    pipe: File,
    /// Operations that did not work.
    failed: Vec<&'static str>,
}

impl Teller {
    fn tell(&mut self, told: &Told) {
        if let Ok(mut line) = serde_json::to_vec(told) {
            line.push(b'\n');
            // A doctor that is gone hears nothing; the sandbox ends with it.
            let _ = self.pipe.write_all(&line);
        }
    }

    fn operation(&mut self, name: &'static str, finding: Finding) {
        if !finding.works {
            self.failed.push(name);
        }
        self.tell(&Told::Operation(finding));
    }

    fn try_all(&mut self) {
        let (scratch, cgroup) = match Inside::read() {
            Ok(inside) => (Ok(inside.scratch), inside.cgroup.map_err(Refusal::words)),
            // Nobody else than the sandbox's init can have left it out.
            Err(error) => (Err(Refusal::from(error)), Err(Refusal::words("not known"))),
        };
        let group = cgroup.as_ref().ok().cloned();
        let made = cgroup.map(|path| format!("made {}", path.display()));
        let finding = Finding::of("cgroup v2", "mkdir, cgroup.freeze", &["pause"], made);
        self.operation(
            "cgroup",
            finding.or_else("pauses use SIGSTOP; all else works"),
        );
        let found = scratch.and_then(|path| {
            let file = path.join("doctor");
            std::fs::write(&file, "x")
                .map_err(|error| Refusal::words(format!("write {}: {error}", file.display())))?;
            Ok(format!("mounted and used {}", path.display()))
        });
        let call = "mount(tmpfs), mount(proc)";
        self.operation(
            "scratch",
            Finding::of("scratch space", call, &[EVERY_RUN], found),
        );
        self.try_network(group.as_deref());
        self.try_priority();
        for spec in FAULTS {
            let finding = self.fault(spec);
            self.tell(&Told::Fault(finding));
        }
    }

    /// The network, hosts in it, and what only hosts can do.
    fn try_network(&mut self, cgroup: Option<&std::path::Path>) {
        let network = Network::create(NetworkKind::Switch);
        let (network, refusal) = match network {
            Ok(network) => (Some(network), None),
            Err(error) => (None, Some(Refusal::from(error))),
        };
        let done = refusal.map_or_else(|| Ok("made the switch and its port".to_owned()), Err);
        let call = "socket(AF_PACKET), netlink(RTM_NEWLINK veth)";
        self.operation("network", Finding::of("network", call, &[EVERY_RUN], done));
        let Some(network) = network else { return };
        let host = |number: u16| {
            Host::start(
                &network,
                HostSpec {
                    name: format!("n{number}"),
                    address: node_address(number),
                    neighbours: vec![node_address(1), node_address(2)],
                    cgroup: cgroup.map(Into::into),
                },
            )
        };
        let hosts = host(1).and_then(|one| Ok((one, host(2)?)));
        let call = "clone3(NEWPID|NEWNET|NEWNS|…), mount(proc), netlink(RTM_NEWADDR)";
        let (hosts, done) = match hosts {
            Ok(hosts) => (Some(hosts), Ok("started two hosts".to_owned())),
            Err(error) => (None, Err(Refusal::from(error))),
        };
        self.operation("hosts", Finding::of("hosts", call, &[EVERY_RUN], done));
        let Some((one, _other)) = hosts else { return };
        let call = "seccomp(SET_MODE_FILTER, NEW_LISTENER), SCM_RIGHTS";
        let done = gate(&one);
        self.operation("gate", Finding::of("fsync gate", call, &["disk"], done));
        let call = "netlink(RTM_SETLINK down), kill(-1), netlink(SOCK_DESTROY)";
        let done = power(&one);
        self.operation("power", Finding::of("power", call, &["power-loss"], done));
    }

    /// Real-time priority, for a timer that is not late when the machine is busy.
    fn try_priority(&mut self) {
        let ran = Command::new("chrt")
            .args(["-f", "1", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output();
        let done = match ran {
            Err(error) => Err(Refusal::words(format!(
                "start chrt: {error}; install util-linux"
            ))),
            Ok(ran) if ran.status.success() => Ok("ran a process under SCHED_FIFO".to_owned()),
            Ok(ran) => Err(Refusal {
                detail: format!(
                    "{}; run as root, or raise `ulimit -r`",
                    String::from_utf8_lossy(&ran.stderr).trim()
                ),
                errno: Some(nix::errno::Errno::EPERM),
            }),
        };
        let finding = Finding::of(
            "real-time priority",
            "sched_setscheduler(SCHED_FIFO)",
            &[],
            done,
        );
        let instead = "injected delays are late by some milliseconds when the machine is busy; receipts say by how much";
        self.operation("priority", finding.or_else(instead));
    }

    /// Whether one of a fault's mechanisms works, and what only the harness can do for it.
    fn fault(&self, spec: &FaultSpec) -> FaultFinding {
        let mechanisms: Vec<Mechanism> =
            spec.available().into_iter().map(Mechanism::from).collect();
        let needs_gate = spec.needs.contains(&Need::FsyncGate);
        let needs_power = spec.name == "power-loss";
        let lacks = |operation| self.failed.contains(&operation);
        let lacking = lacks("network")
            || lacks("hosts")
            || (needs_gate && lacks("gate"))
            || (needs_power && lacks("power"));
        FaultFinding {
            name: spec.name.to_owned(),
            available: !lacking && mechanisms.iter().any(|one| one.works),
            mechanisms,
        }
    }
}

/// A process in a host syncs, and the sync fails as the gate says.
fn gate(host: &Host) -> Result<String, Refusal> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Refusal::words(format!("{what}: {error}"))
    };
    let null = || File::options().read(true).write(true).open("/dev/null");
    let spec = ProcessSpec {
        argv: vec!["sync".into(), "/proc/self/exe".into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: None,
        stdin: null().map_err(io("open /dev/null"))?.into(),
        stdout: null().map_err(io("open /dev/null"))?.into(),
        stderr: null().map_err(io("open /dev/null"))?.into(),
    };
    let gate = FsyncGate::new(host.name(), now_ns);
    gate.set(Answer::Fail { errno: libc::EIO })
        .map_err(Refusal::words)?;
    let (process, listener) = host.spawn_gated(spec)?;
    gate.attach(listener, process.pid)
        .map_err(io("start a supervisor"))?;
    let exit = host.exits().next_within(PATIENCE)?;
    match exit.map(|exit| exit.end) {
        Some(End::Exited(1)) => Ok("made a sync in a host fail with EIO".to_owned()),
        end => Err(Refusal::words(format!(
            "expected a sync that fails, found {end:?} and {}",
            gate.tally()
        ))),
    }
}

/// A host loses its power and gets it back.
fn power(host: &Host) -> Result<String, Refusal> {
    let off = host.power_off();
    // It gets it back also when it was taken half only.
    host.power_on()?;
    off?;
    Ok("took a host's power and gave it back".to_owned())
}
