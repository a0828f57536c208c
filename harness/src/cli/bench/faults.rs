//! `fencepost bench faults`: how sharp the faults are on this machine. It prints what it measured and judges
//! nothing.
//!
//! Each part runs in a sandbox of its own, in the hidden mode `--inside`; the processes in its hosts are
//! the hidden mode `--wire`.

use std::ffi::OsString;
use std::fs::File;
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

/// The parts that are no network, or more than one.
const DISK: &str = "disk";
const PUTS: &str = "puts on ";

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
        let network = part.strip_prefix(PUTS).unwrap_or(part);
        let kind =
            NetworkKind::find(network).with_context(|| format!("no part is called {part}"))?;
        if part.starts_with(PUTS) {
            let etcd = args.etcd.as_deref().context("puts need --etcd")?;
            puts::measure(kind, etcd)?;
        } else {
            network::measure(kind)?;
        }
        return Ok(Exit::Met);
    }
    let etcd = if args.no_etcd { None } else { find_etcd(args) };
    println!("{:<52} {:>12} {:>12}", "", "p50", "p99");
    for part in NetworkKind::NAMES {
        println!("network = \"{part}\"");
        in_sandbox(part, None, None)?;
    }
    if let Some(etcd) = &etcd {
        println!("etcd put, three nodes, one client of the leader");
        puts::compare(|kind, times| {
            let part = format!("{PUTS}{}", kind.name());
            in_sandbox(&part, Some(etcd), Some(times))
        })?;
    }
    println!("disks and power");
    in_sandbox(DISK, None, None)?;
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

/// Runs a part in a sandbox of its own. It prints its rows itself, or writes its times to the file it is given.
fn in_sandbox(part: &str, etcd: Option<&Path>, times: Option<File>) -> Result<()> {
    let mut argv: Vec<OsString> = ["bench", "faults", "--inside", part]
        .map(OsString::from)
        .into();
    if let Some(etcd) = etcd {
        argv.extend(["--etcd".into(), etcd.into()]);
    }
    let sandbox = Sandbox::start(SandboxSpec {
        controller_argv: argv,
        inherit: times.into_iter().map(Into::into).collect(),
        needed_paths: etcd.iter().map(|path| path.to_path_buf()).collect(),
        cgroup: true,
    })?;
    match sandbox.wait() {
        ControllerEnd::Exited(0) => Ok(()),
        end => bail!("the part {part} {end}; what it said stands above"),
    }
}
