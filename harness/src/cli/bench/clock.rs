//! `fencepost bench clock`: how exact a clock of one's own is, and what it costs. It prints what it measured
//! and judges nothing.
//!
//! No sandbox: the canaries, programs and servers are children of this process, on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use nemesis::clock::HostClock;
use nemesis::clock::canary::Canary;
use workloads::truth::now_ns;

use crate::exit::Exit;
use crate::provision::{Launch, ProvisionError, Provisioner, Wanted};

mod canary;
mod lease;
mod overhead;
mod process;
mod redis;
mod runtimes;
pub mod subject;

/// How exact a clock of one's own is, and what it costs
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// How long to measure each
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Measure this only; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// An etcd binary to measure with, instead of looking for one
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// A redis-server binary to measure, instead of looking for one
    #[arg(long)]
    redis: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The canary: readings, sleeps and condition variables against true stamps of its own
    Canary,
    /// Programs of other runtimes and redis-server, seen from outside
    Runtimes,
    /// How long a change takes while a wait is in flight
    Changes,
    /// How long a lease of etcd lives
    Lease,
    /// What a wait costs, and what it costs etcd
    Cost,
}

/// How often the clock is changed to time a change.
const CHANGES: usize = 1000;

/// Does it.
///
/// # Errors
/// What keeps the measurement from running.
pub fn run(args: &ClockArgs) -> Result<Exit> {
    let length = Duration::from_secs(args.seconds);
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    if wanted(Part::Canary) {
        canary::measure(length)?;
    }
    if wanted(Part::Runtimes) {
        let redis = locate("redis", args.redis.as_deref());
        runtimes::measure(length, redis)?;
    }
    if wanted(Part::Changes) {
        measure_changes()?;
    }
    if wanted(Part::Cost) {
        overhead::measure_calls()?;
    }
    if wanted(Part::Lease) || wanted(Part::Cost) {
        match locate("etcd", args.etcd.as_deref()) {
            Err(error) => println!("what needs etcd is left out: {error}"),
            Ok(etcd) => {
                if wanted(Part::Lease) {
                    lease::measure(etcd.program())?;
                }
                if wanted(Part::Cost) {
                    overhead::measure_etcd(etcd.program(), length)?;
                }
            }
        }
    }
    Ok(Exit::Met)
}

/// What starts a backend's server, given or found.
fn locate(backend: &str, given: Option<&Path>) -> Result<Launch, ProvisionError> {
    let wanted = Wanted {
        backend: backend.to_owned(),
        version: None,
    };
    let note = |line: &str| eprintln!("{line}");
    let located = Provisioner::from_env().locate(&wanted, given, &note)?;
    Ok(located.launch)
}

fn measure_changes() -> Result<()> {
    let clock = HostClock::new("bench");
    let _canary = Canary::start(&clock, now_ns)?;
    let mut times: Vec<Duration> = Vec::with_capacity(CHANGES);
    for change in 0..CHANGES {
        let began = Instant::now();
        clock.set_rate([2.0, 0.5, 10.0, 1.0][change % 4])?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!(
        "a change with a wait in flight: median {:.2} ms, longest {:.2} ms of {CHANGES} in a row (each waits \
         for the coarse clock's tick)",
        times[CHANGES / 2].as_secs_f64() * 1e3,
        times[CHANGES - 1].as_secs_f64() * 1e3
    );
    Ok(())
}

/// A folder for what is measured, in memory where that can be had: a disk would drown everything else. It
/// is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = parent.join(format!("fencepost-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It lies where everything is removed in the end.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An address that nobody listens on just now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?)
}

/// The middle one, and the bounds of the middle half.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| values.get(values.len() * share / 4).copied();
    [1, 2, 3].map(|share| at(share).unwrap_or(f64::NAN))
}
