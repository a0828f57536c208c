//! The controller's side of a host: start it, run processes in it, signal them, know them.
//!
//! A host outlives its processes: a server that was killed is started again in the same namespaces, at
//! the same address, with the same links. Every call may be made from any thread.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nemesis::clock::{ClockError, HostClock, Launch};
use nemesis::mechanism::fsync_gate::FsyncGate;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::waitpid;

use super::control::{Channel, Numbered, Packet, ReceiveError, Reply, Request};
use super::error::{Failure, SandboxError, Step};
use super::network::{Network, TAKEN_NAMES};
use super::process::{Exits, Process, ProcessSpec};
use super::spawn::{OWN_NAMESPACES, SELF, SELF_NAME, Spawn, Spawned, c_environment, c_string};
use super::{HOST_INIT, cgroup, syscalls};

/// How long an init may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Interface names end at 15 bytes, and a host's link bears its name.
const LONGEST_NAME: usize = 15;

/// A host to start.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// `n1`, `c1` …: at most 15 lower-case letters, digits and dashes.
    pub name: String,
    /// Its address; see [`super::node_address`] and [`super::client_address`].
    pub address: Ipv4Addr,
    /// Other hosts that it will talk to, started or not: it gets their hardware addresses, so that no
    /// experiment waits for ARP. Those that are missing here are found the usual way.
    pub neighbours: Vec<Ipv4Addr>,
    /// The run's cgroup directory ([`super::Inside::cgroup`]), below which the host gets its own.
    pub cgroup: Option<PathBuf>,
}

/// What a process is started under, so that faults can reach it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Under<'a> {
    /// The gate that each of its syncs passes.
    pub gate: Option<&'a FsyncGate>,
    /// The clock that it lives by.
    pub clock: Option<&'a HostClock>,
}

/// A running host. Dropping it kills all of it.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    cgroup: Option<PathBuf>,
    init: Spawned,
    /// Inode of the host's PID namespace, by which its processes are known.
    pid_namespace: u64,
    control: Mutex<Control>,
    exits: Exits,
    next_id: AtomicU64,
}

/// The control socket and the number of the last request.
#[derive(Debug)]
struct Control {
    channel: Channel,
    seq: u64,
}

impl Host {
    /// Starts a host: namespaces, link, address. Returns when it is ready for processes.
    pub fn start(network: &Network, spec: HostSpec) -> Result<Self, SandboxError> {
        check_name(&spec.name)?;
        let socket = |e| Failure::new(Step::Other, "create the control sockets of a host", e);
        let (control, init_control) = Channel::pair().map_err(socket)?;
        let (events, init_events) = Channel::pair().map_err(socket)?;
        let timeout = TimeVal::milliseconds(ANSWER_WITHIN.as_millis() as i64);
        setsockopt(&control, sockopt::ReceiveTimeout, &timeout).map_err(socket)?;
        setsockopt(&control, sockopt::SendTimeout, &timeout).map_err(socket)?;
        let group = spec
            .cgroup
            .as_deref()
            .map(|run| cgroup::create_host(run, &spec.name))
            .transpose()?;
        let init = start_init(&spec.name, [&init_control, &init_events])?;
        let pid = init.pid.as_raw();
        let host = Self {
            exits: Exits::new(&spec.name, events),
            name: spec.name,
            address: spec.address,
            cgroup: group.as_ref().map(|(path, _)| path.clone()),
            init,
            pid_namespace: pid_namespace(pid).map_err(|e| {
                Failure::io(
                    Step::Other,
                    format!("identify the PID namespace of process {pid} (this user must be able to read the fencepost executable)"),
                    &e,
                )
            })?,
            control: Mutex::new(Control {
                channel: control,
                seq: 0,
            }),
            next_id: AtomicU64::new(0),
        };
        network.attach(&host.name, pid, host.address)?;
        let configure = Request::Configure {
            hostname: host.name.clone(),
            address: host.address,
            neighbours: spec.neighbours,
        };
        let procs: Vec<BorrowedFd<'_>> = group.iter().map(|(_, procs)| procs.as_fd()).collect();
        host.ask(configure, &procs, "configure it")?;
        Ok(host)
    }

    /// The host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host's address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The cgroup that holds every process of the host except its init, if there are cgroups.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_deref()
    }

    /// PID of the host's init as the controller sees it: `/proc/PID/ns/*` are the host's namespaces.
    #[must_use]
    pub fn init_pid(&self) -> i32 {
        self.init.pid.as_raw()
    }

    /// Starts a process; returns when it has executed its program. It is in a session of its own and, from
    /// its first instruction on, in the host's cgroup.
    pub fn spawn(&self, spec: ProcessSpec) -> Result<Process, SandboxError> {
        self.spawn_with(spec, None, None)
    }

    /// Starts a process under what faults need to reach it. Returns when it lives by its clock.
    ///
    /// # Errors
    /// What the host's init, the gate or the clock answered.
    pub fn spawn_under(&self, spec: ProcessSpec, under: Under<'_>) -> io::Result<Process> {
        let prepared = under.clock.map(HostClock::prepare).transpose();
        let (launch, socket) = prepared.map_err(io::Error::other)?.unzip();
        let gate = under.gate.map(|_| Channel::pair()).transpose()?;
        let (ours, theirs) = gate.unzip();
        let theirs_fd = theirs.as_ref().map(AsFd::as_fd);
        let asked = self.spawn_with(spec, theirs_fd, socket.as_ref().map(AsFd::as_fd));
        // Ours of the new process's ends: whoever waits at the other hears it end.
        drop((theirs, socket));
        if let (Ok(process), Some(gate), Some(ours)) = (&asked, under.gate, ours) {
            let listener = ours.receive_descriptor().ok_or(Errno::EPROTO)?;
            gate.attach(listener, process.pid)?;
        }
        match (asked, launch.map_or(Ok(()), Launch::confirm)) {
            (Ok(process), Ok(())) => Ok(process),
            // Of a process that nobody may trace, the init knows only that it did not start.
            (Ok(_), Err(why)) | (Err(_), Err(why @ ClockError::Seize { .. })) => {
                Err(io::Error::other(why))
            }
            (Err(why), _) => Err(io::Error::other(why)),
        }
    }

    /// Starts a process that asks, at every sync of a file, whoever has the descriptor that is returned
    /// beside it: an [`nemesis::mechanism::fsync_gate::FsyncGate`] must be attached to it at once.
    pub fn spawn_gated(&self, spec: ProcessSpec) -> Result<(Process, OwnedFd), SandboxError> {
        let socket = |e| Failure::new(Step::Gate, "make a socket for the fsync gate", e);
        let (ours, theirs) = Channel::pair().map_err(socket)?;
        let process = self.spawn_with(spec, Some(theirs.as_fd()), None)?;
        drop(theirs);
        let listener = ours.receive_descriptor().ok_or_else(|| {
            let what = "receive the listener of the fsync gate";
            Failure::new(Step::Gate, what, Errno::EPROTO)
        })?;
        Ok((process, listener))
    }

    fn spawn_with(
        &self,
        spec: ProcessSpec,
        gate: Option<BorrowedFd<'_>>,
        clock: Option<BorrowedFd<'_>>,
    ) -> Result<Process, SandboxError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let doing = format!(
            "start {}",
            spec.argv
                .first()
                .map_or("nothing".into(), |p| p.to_string_lossy())
        );
        let request = Request::Spawn {
            id,
            argv: spec.argv,
            env: spec.env,
            cwd: spec.cwd,
            gate: gate.is_some(),
            clock: clock.is_some(),
        };
        let stdio = [spec.stdin.as_fd(), spec.stdout.as_fd(), spec.stderr.as_fd()];
        let fds: Vec<BorrowedFd<'_>> = stdio.into_iter().chain(gate).chain(clock).collect();
        let packet = self.ask(request, &fds, &doing)?;
        match (packet.message.body, packet.pid) {
            (Reply::Started { host_pid }, Some(pid)) => Ok(Process { id, pid, host_pid }),
            (other, pid) => Err(SandboxError::Protocol {
                doing,
                problem: format!("answer {other:?}, pid {pid:?}"),
            }),
        }
    }

    /// Signals every process of the host except its init, atomically: none can be missed by forking.
    pub fn signal_all(&self, signal: Signal) -> Result<(), SandboxError> {
        let request = Request::SignalAll {
            signo: signal as i32,
        };
        self.ask(request, &[], &format!("send {signal} to all its processes"))
            .map(drop)
    }

    /// Kills every process of the host except its init, and returns when all are gone.
    pub fn kill_all(&self) -> Result<(), SandboxError> {
        self.ask(Request::KillAll, &[], "kill all its processes")
            .map(drop)
    }

    /// Takes the host's power: its link goes down, every process is killed, and its connections are gone
    /// without a word. Returns how many connections there were.
    pub fn power_off(&self) -> Result<usize, SandboxError> {
        let doing = "take its power";
        match self.ask(Request::PowerOff, &[], doing)?.message.body {
            Reply::Off { connections } => Ok(connections),
            other => Err(SandboxError::Protocol {
                doing: doing.into(),
                problem: format!("answer {other:?}"),
            }),
        }
    }

    /// Gives the host its power back: its link comes up. Processes are to be started by whoever asks.
    pub fn power_on(&self) -> Result<(), SandboxError> {
        self.ask(Request::PowerOn, &[], "give its power back")
            .map(drop)
    }

    /// The host's living processes except its init, as PIDs of the controller. A process that starts or
    /// ends meanwhile may or may not be among them.
    #[must_use]
    pub fn tree(&self) -> Vec<i32> {
        let Ok(processes) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            // A process that was not reaped yet has no PID namespace any more, and is not living.
            .filter(|&pid| {
                pid != self.init_pid()
                    && pid_namespace(pid).is_ok_and(|ns| ns == self.pid_namespace)
            })
            .collect()
    }

    /// The ends of the processes that were started with [`Self::spawn`].
    #[must_use]
    pub fn exits(&self) -> &Exits {
        &self.exits
    }

    /// One request and its reply.
    fn ask(
        &self,
        request: Request,
        fds: &[BorrowedFd<'_>],
        doing: &str,
    ) -> Result<Packet<Numbered<Reply>>, SandboxError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.seq += 1;
        let message = Numbered {
            seq: control.seq,
            body: request,
        };
        control
            .channel
            .send(&message, fds, None, MsgFlags::empty())
            .map_err(|errno| match errno {
                Errno::EPIPE | Errno::ECONNRESET => self.lost(doing),
                Errno::EAGAIN => self.silent(doing),
                Errno::EMSGSIZE => SandboxError::Invalid {
                    what: format!("arguments and environment on host {} ({doing})", self.name),
                    expected: "at most about 50 kB together".into(),
                    found: "more".into(),
                },
                errno => Failure::new(
                    Step::Other,
                    format!("ask host {} to {doing}", self.name),
                    errno,
                )
                .into(),
            })?;
        loop {
            let packet = match control
                .channel
                .receive::<Numbered<Reply>>(MsgFlags::empty())
            {
                Ok(packet) => packet,
                Err(ReceiveError::Closed) => return Err(self.lost(doing)),
                Err(ReceiveError::Timeout) => return Err(self.silent(doing)),
                Err(ReceiveError::Broken(problem)) => {
                    return Err(SandboxError::Protocol {
                        doing: format!("host {}: {doing}", self.name),
                        problem,
                    });
                }
            };
            // An older number is the late answer to a request that was given up.
            if packet.message.seq == control.seq {
                return match packet.message.body {
                    Reply::Failed(mut failure) => {
                        failure.what = format!("{} (host {})", failure.what, self.name);
                        Err(failure.into())
                    }
                    _ => Ok(packet),
                };
            }
        }
    }

    fn lost(&self, doing: &str) -> SandboxError {
        SandboxError::HostLost {
            host: self.name.clone(),
            doing: doing.into(),
        }
    }

    fn silent(&self, doing: &str) -> SandboxError {
        let waited_ms = ANSWER_WITHIN.as_millis() as u64;
        SandboxError::HostSilent {
            host: self.name.clone(),
            doing: doing.into(),
            waited_ms,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The kernel kills the whole PID namespace with its PID 1, and reaps it before the wait returns.
        let _ = syscalls::pidfd_send_signal(self.init.pidfd.as_fd(), Signal::SIGKILL);
        while waitpid(self.init.pid, None) == Err(Errno::EINTR) {}
    }
}

/// Starts the init of a host in namespaces of its own.
fn start_init(name: &str, sockets: [&OwnedFd; 2]) -> Result<Spawned, SandboxError> {
    let null =
        fs::File::open("/dev/null").map_err(|e| Failure::io(Step::Other, "open /dev/null", &e))?;
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let stdio = [null.as_fd(), stdout.as_fd(), stderr.as_fd()];
    // The name is for people who look at `ps`.
    let argv = [SELF_NAME, HOST_INIT, name];
    let spawn = Spawn {
        program: SELF.to_owned(),
        argv: argv
            .iter()
            .map(|arg| c_string(arg.as_ref()))
            .collect::<Result<_, _>>()?,
        env: c_environment([])?,
        cwd: Some(c"/".to_owned()),
        fds: stdio
            .into_iter()
            .chain(sockets.into_iter().map(AsFd::as_fd))
            .collect(),
        namespaces: OWN_NAMESPACES,
        cgroup_procs: None,
        gate: None,
        clock: None,
    };
    Ok(spawn.start()?)
}

/// Inode of the PID namespace that a process is in.
fn pid_namespace(pid: i32) -> std::io::Result<u64> {
    fs::metadata(format!("/proc/{pid}/ns/pid")).map(|namespace| namespace.ino())
}

fn check_name(name: &str) -> Result<(), SandboxError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let taken = TAKEN_NAMES.contains(&name);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) || taken {
        return Err(SandboxError::Invalid {
            what: "host name".into(),
            expected:
                "1 to 15 lower-case letters, digits and dashes (and neither lo, fencepost nor fencepost-sw)"
                    .into(),
            found: format!("{name:?}"),
        });
    }
    Ok(())
}
