//! The hidden subcommand `sandbox-selftest`: builds a real sandbox with real hosts and tries everything.
//!
//! `fencepost sandbox-selftest run HOSTS HOLD_MS [NETWORK]` starts a sandbox, runs every check of `checks.rs` in it,
//! prints a line each and then `ready`, stays for HOLD_MS (so that a test can kill something), and exits
//! with 0 if every check passed. SIGINT and SIGTERM end it early with 130, as in a run.
//!
//! The other words are the parts that play in it: `controller`, and the processes in the hosts. Nothing
//! here is used by a run.

mod checks;
mod faults;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::gethostname;

use super::signals::{next_signal, signal_fd};
use super::{ControllerEnd, NetworkKind, SELFTEST, Sandbox, SandboxSpec};

/// Where the listener of each host listens.
const PORT: u16 = 7000;

/// Exit code of a run that was interrupted.
const INTERRUPTED: u8 = 130;

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

/// The subcommand.
pub(super) fn main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let outcome = match args.as_slice() {
        ["run", hosts, hold_ms] => launch(hosts, hold_ms, "switch"),
        ["run", hosts, hold_ms, network] => launch(hosts, hold_ms, network),
        ["controller", hosts, hold_ms, network] => control(hosts, hold_ms, network),
        ["listen"] => listen(),
        ["connect", address] => connect(address),
        ["daemonise"] => daemonise(),
        ["sleep"] => loop {
            std::thread::park();
        },
        _ => Err(format!("usage: fencepost {SELFTEST} run HOSTS HOLD_MS [NETWORK]").into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{SELFTEST}: {error}");
        ExitCode::FAILURE
    })
}

/// The launcher's part.
fn launch(hosts: &str, hold_ms: &str, network: &str) -> Outcome {
    let signals = signal_fd(&[Signal::SIGINT, Signal::SIGTERM])?;
    let started = Instant::now();
    let sandbox = Sandbox::start(SandboxSpec {
        controller_argv: [SELFTEST, "controller", hosts, hold_ms, network]
            .map(OsString::from)
            .into(),
        cgroup: true,
        ..SandboxSpec::default()
    })?;
    println!("sandbox {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    match sandbox.cgroup() {
        Ok(path) => println!("cgroup {}", path.display()),
        Err(reason) => println!("no cgroup: {reason}"),
    }
    loop {
        let mut ready = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(sandbox.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut ready, PollTimeout::NONE)?;
        let ended = ready[1].any() == Some(true);
        if next_signal(&signals).is_some() {
            sandbox.interrupt();
        }
        if ended {
            break;
        }
    }
    let end = sandbox.wait();
    println!("controller {end}");
    Ok(match end {
        ControllerEnd::Exited(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        _ => ExitCode::FAILURE,
    })
}

/// The controller's part.
fn control(hosts: &str, hold_ms: &str, network: &str) -> Outcome {
    let signals = signal_fd(&[Signal::SIGTERM])?;
    let hosts = hosts.parse().ok().filter(|hosts| (1..=250).contains(hosts));
    let hosts = hosts.ok_or("HOSTS must be a number from 1 to 250")?;
    let network = NetworkKind::find(network).ok_or("NETWORK must be switch or bridge")?;
    let bench = checks::Bench::start(hosts, network)?;
    let passed = bench.run_all();
    println!("ready");
    let mut ready = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::try_from(hold_ms.parse::<i32>()?)?)?;
    if next_signal(&signals).is_some() {
        println!("healed");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A server in a host: tells everyone who connects its host name and how many processes its /proc shows.
fn listen() -> Outcome {
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    println!("listening");
    for connection in listener.incoming() {
        let processes = std::fs::read_dir("/proc")?
            .flatten()
            .filter(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.parse::<u32>().is_ok())
            })
            .count();
        // The other side may have gone away; the next one has not.
        let _ = writeln!(
            connection?,
            "{} {processes}",
            gethostname()?.to_string_lossy()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A client in a host: prints what the server says.
fn connect(address: &str) -> Outcome {
    print!("{}", ask(address.parse()?)?);
    Ok(ExitCode::SUCCESS)
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut answer = String::new();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Leaves an orphan behind, as a daemon does.
#[allow(clippy::zombie_processes)]
fn daemonise() -> Outcome {
    Command::new("/proc/self/exe")
        .args([SELFTEST, "sleep"])
        .spawn()?;
    Ok(ExitCode::SUCCESS)
}
