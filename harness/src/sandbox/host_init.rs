//! PID 1 of a host: configures its namespaces, then starts, signals, kills and reaps what runs in it.
//!
//! It does only what the controller asks over its socket, and ends (and with it, by the kernel, every
//! process of the host) when that socket closes. It is single-threaded and never in the host's cgroup, so
//! that it works while the host is frozen. It knows nothing of servers or faults.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{AccessFlags, Pid, access, sethostname};

use super::control::{Channel, Exited, Numbered, Packet, ReceiveError, Reply, Request};
use super::error::{Failure, Step};
use super::init::FIRST_FD;
use super::signals::{End, kill_and_reap_all, next_signal, reap, signal_all, signal_fd};
use super::spawn::{Spawn, c_environment, c_string};
use super::{HOST_INIT, mounts, network, sockets, syscalls};

/// Descriptors that every process gets; the sockets for its fsync gate and its clock come after them.
const STDIO: usize = 3;

/// The subcommand `host-init`. Its control socket is descriptor 3, its event socket 4.
pub(super) fn main() -> ExitCode {
    let sockets = (syscalls::adopt(FIRST_FD), syscalls::adopt(FIRST_FD + 1));
    let (1, (Ok(control), Ok(events))) = (std::process::id(), sockets) else {
        eprintln!(
            "fencepost {HOST_INIT} is a part of `fencepost run`; it cannot be started by hand"
        );
        return ExitCode::from(2);
    };
    let _ = prctl::set_name(c"fencepost-host");
    let init = HostInit {
        control: Channel::new(control),
        events: Channel::new(events),
        backlog: VecDeque::new(),
        processes: HashMap::new(),
        cgroup_procs: None,
        neighbours: Vec::new(),
    };
    match signal_fd(&[Signal::SIGCHLD]).and_then(|signals| init.serve(&signals)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fencepost {HOST_INIT}: {failure}");
            ExitCode::FAILURE
        }
    }
}

struct HostInit {
    control: Channel,
    events: Channel,
    /// Ends that the controller had no room for yet.
    backlog: VecDeque<Exited>,
    /// The controller's numbers of the processes that it asked for, by PID.
    processes: HashMap<Pid, u64>,
    /// Lets a process enter the host's cgroup.
    cgroup_procs: Option<OwnedFd>,
    /// The hosts whose hardware addresses it knows from the start.
    neighbours: Vec<Ipv4Addr>,
}

/// A reply, and the PID to attach to it.
type Answer = (Reply, Option<i32>);

impl HostInit {
    /// Serves requests until the controller closes the socket.
    fn serve(mut self, signals: &SignalFd) -> Result<(), Failure> {
        loop {
            let events = if self.backlog.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::POLLOUT
            };
            let mut ready = [
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.events.as_fd(), events),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(Failure::new(Step::Other, "poll in a host's init", errno));
                }
            }
            let asked = ready[1].any() == Some(true);
            while next_signal(signals).is_some() {}
            while let Ok(Some((pid, end))) = reap(false) {
                self.note_end(pid, end);
            }
            self.flush()?;
            if !asked {
                continue;
            }
            let packet = match self
                .control
                .receive::<Numbered<Request>>(MsgFlags::MSG_DONTWAIT)
            {
                Ok(packet) => packet,
                Err(ReceiveError::Timeout) => continue,
                Err(ReceiveError::Closed) => return Ok(()),
                Err(ReceiveError::Broken(problem)) => {
                    return Err(Failure::new(
                        Step::Other,
                        format!("understand the controller: {problem}"),
                        Errno::EPROTO,
                    ));
                }
            };
            let seq = packet.message.seq;
            let (body, pid) = self
                .handle(packet)
                .unwrap_or_else(|failure| (Reply::Failed(failure), None));
            self.flush()?;
            if self
                .control
                .send(&Numbered { seq, body }, &[], pid, MsgFlags::empty())
                .is_err()
            {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, packet: Packet<Numbered<Request>>) -> Result<Answer, Failure> {
        match packet.message.body {
            Request::Configure {
                hostname,
                address,
                neighbours,
            } => {
                let others = neighbours.into_iter().filter(|other| *other != address);
                self.neighbours = others.collect();
                mounts::fresh_proc()?;
                sethostname(&hostname)
                    .map_err(|e| Failure::new(Step::Other, "set the host's name", e))?;
                network::configure_host(address, &self.neighbours)?;
                self.cgroup_procs = packet.fds.into_iter().next();
                Ok((Reply::Done, None))
            }
            Request::Spawn {
                id,
                argv,
                env,
                cwd,
                gate,
                clock,
            } => {
                let pid = self.spawn(&argv, env, cwd, &packet.fds, (gate, clock))?;
                self.processes.insert(pid, id);
                Ok((
                    Reply::Started {
                        host_pid: pid.as_raw(),
                    },
                    Some(pid.as_raw()),
                ))
            }
            Request::SignalAll { signo } => {
                let all = |e| {
                    Failure::new(
                        Step::Other,
                        format!("send signal {signo} to all processes"),
                        e,
                    )
                };
                signal_all(Signal::try_from(signo).map_err(all)?).map_err(all)?;
                Ok((Reply::Done, None))
            }
            Request::KillAll => {
                self.kill_all()?;
                Ok((Reply::Done, None))
            }
            Request::PowerOff => {
                // In this order nobody hears a goodbye.
                network::take_down()?;
                self.kill_all()?;
                let connections = sockets::destroy_all()?;
                Ok((Reply::Off { connections }, None))
            }
            Request::PowerOn => {
                network::bring_back(&self.neighbours)?;
                Ok((Reply::Done, None))
            }
        }
    }

    /// Kills and reaps everything but this process.
    fn kill_all(&mut self) -> Result<(), Failure> {
        let mut ends = Vec::new();
        let killed = kill_and_reap_all(|pid, end| ends.push((pid, end)));
        for (pid, end) in ends {
            self.note_end(pid, end);
        }
        killed.map_err(|e| Failure::new(Step::Other, "kill all processes", e))
    }

    fn spawn(
        &self,
        argv: &[OsString],
        env: Vec<(OsString, OsString)>,
        cwd: Option<PathBuf>,
        fds: &[OwnedFd],
        (gate, clock): (bool, bool),
    ) -> Result<Pid, Failure> {
        let program = argv
            .first()
            .ok_or_else(|| Failure::new(Step::Exec, "execute nothing", Errno::EINVAL))?;
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map_or(OsStr::new(""), |(_, value)| value);
        let mut sockets = fds.iter().skip(STDIO).map(AsFd::as_fd);
        let spawn = Spawn {
            program: c_string(find_program(program, path)?.as_os_str())?,
            argv: argv
                .iter()
                .map(|arg| c_string(arg))
                .collect::<Result<_, _>>()?,
            env: c_environment(env)?,
            cwd: Some(c_string(
                cwd.as_deref().unwrap_or(Path::new("/")).as_os_str(),
            )?),
            fds: fds.iter().take(STDIO).map(AsFd::as_fd).collect(),
            namespaces: CloneFlags::empty(),
            cgroup_procs: self.cgroup_procs.as_ref().map(AsFd::as_fd),
            gate: gate.then(|| sockets.next()).flatten(),
            clock: clock.then(|| sockets.next()).flatten(),
        };
        spawn.start().map(|process| process.pid)
    }

    /// Queues the end of a process that the controller asked for. Orphans that ended up here are nobody's.
    fn note_end(&mut self, pid: Pid, end: End) {
        if let Some(id) = self.processes.remove(&pid) {
            self.backlog.push_back(Exited {
                id,
                host_pid: pid.as_raw(),
                end,
                at_ns: now_ns(),
            });
        }
    }

    /// Sends as many queued ends as the socket takes; never blocks on a controller that does not read.
    fn flush(&mut self) -> Result<(), Failure> {
        while let Some(exited) = self.backlog.front() {
            match self.events.send(exited, &[], None, MsgFlags::MSG_DONTWAIT) {
                Ok(()) => drop(self.backlog.pop_front()),
                Err(Errno::EAGAIN) => break,
                Err(errno) => {
                    return Err(Failure::new(
                        Step::Other,
                        "report the end of a process",
                        errno,
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Truth time.
fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
        .unwrap_or_default()
}

/// Finds a program as execvp(3) does, but in the PATH that the process will have.
fn find_program(program: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    std::env::split_paths(path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file() && access(candidate, AccessFlags::X_OK).is_ok())
        .ok_or_else(|| {
            Failure::new(
                Step::Exec,
                format!("find {program:?} in PATH={path:?}"),
                Errno::ENOENT,
            )
        })
}
