//! `fencepost bench faults`: how sharp the faults are on this machine. It prints what it measured and judges
//! nothing.
//!
//! Each part runs in a sandbox of its own, in the hidden mode `--inside`; the processes in its hosts are
//! the hidden mode `--wire`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::exit::Exit;
use crate::provision::{Provisioner, Wanted};
use crate::sandbox::{ControllerEnd, NetworkKind, Sandbox, SandboxSpec};

mod disk;
mod network;
mod puts;
mod sample;
mod wire;

/// The part that is no network.
const DISK: &str = "disk";

/// How sharp the faults are: onset, heal, delay, throughput, decisions, pauses, disks, power
#[derive(Debug, Args)]
pub struct FaultsArgs {
    /// An etcd binary to measure puts with, instead of looking for one
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// Leave out what needs etcd
    #[arg(long)]
    no_etcd: bool,
    /// Run one part inside a sandbox; started by `bench faults` itself
    #[arg(long, hide = true, value_name = "PART")]
    inside: Option<String>,
    /// Play a process in a host; started by `bench faults` itself
    #[arg(long, hide = true, num_args = 1.., value_name = "ROLE")]
    wire: Option<Vec<String>>,
}

/// Does it.
///
/// # Errors
/// What keeps the measurement from running.
pub fn run(args: &FaultsArgs) -> Result<Exit> {
    if let Some(role) = &args.wire {
        wire::play(role)?;
        return Ok(Exit::Met);
    }
    if let Some(part) = &args.inside {
        if part == DISK {
            disk::measure()?;
            return Ok(Exit::Met);
        }
        let kind = NetworkKind::find(part).with_context(|| format!("no part is called {part}"))?;
        network::measure(kind, args.etcd.as_deref())?;
        return Ok(Exit::Met);
    }
    let etcd = if args.no_etcd { None } else { find_etcd(args) };
    println!("{:<52} {:>12} {:>12}", "", "p50", "p99");
    for part in NetworkKind::NAMES {
        println!("network = \"{part}\"");
        in_sandbox(part, etcd.as_deref())?;
    }
    println!("disks and power");
    in_sandbox(DISK, None)?;
    Ok(Exit::Met)
}

/// The etcd to measure with. Without one the rest is still worth measuring.
fn find_etcd(args: &FaultsArgs) -> Option<PathBuf> {
    let wanted = Wanted {
        backend: "etcd".to_owned(),
        version: None,
    };
    let note = |line: &str| eprintln!("{line}");
    match Provisioner::from_env().locate(&wanted, args.etcd.as_deref(), &note) {
        Ok(located) => Some(located.path),
        Err(error) => {
            eprintln!("puts are left out: {error}");
            None
        }
    }
}

/// Runs a part in a sandbox of its own; it prints its rows itself.
fn in_sandbox(part: &str, etcd: Option<&Path>) -> Result<()> {
    let mut argv: Vec<OsString> = ["bench", "faults", "--inside", part]
        .map(OsString::from)
        .into();
    if let Some(etcd) = etcd {
        argv.extend(["--etcd".into(), etcd.into()]);
    }
    let sandbox = Sandbox::start(SandboxSpec {
        controller_argv: argv,
        needed_paths: etcd.iter().map(|path| path.to_path_buf()).collect(),
        cgroup: true,
        ..SandboxSpec::default()
    })?;
    match sandbox.wait() {
        ControllerEnd::Exited(0) => Ok(()),
        end => bail!("the part {part} {end}; what it said stands above"),
    }
}
