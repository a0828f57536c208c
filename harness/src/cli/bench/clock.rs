//! `fencepost bench clock`: how exact a clock of one's own is, and what it costs. It prints what it measured
//! and judges nothing.
//!
//! No sandbox: the canaries and etcd are children of this process, on the loopback interface.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use nemesis::clock::HostClock;
use nemesis::clock::canary::{Canary, Heard, Sample};
use workloads::truth::now_ns;

use crate::exit::Exit;
use crate::provision::{Provisioner, Wanted};

mod overhead;

/// How exact a clock of one's own is, and what it costs
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// How long to measure each
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// An etcd binary to measure the cost with, instead of looking for one
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// Leave out what needs etcd
    #[arg(long)]
    no_etcd: bool,
}

/// The rates that are measured.
const RATES: [f64; 5] = [0.5, 1.0, 1.01, 2.0, 10.0];
/// How often the clock is changed to time a change.
const CHANGES: usize = 1000;

/// Does it.
///
/// # Errors
/// What keeps the measurement from running.
pub fn run(args: &ClockArgs) -> Result<Exit> {
    let length = Duration::from_secs(args.seconds);
    println!(
        "a Rust program, {} s each{:>17} {:>13} {:>13} {:>13}",
        args.seconds, "rate error", "sleep late", "condvar late", "worst reading"
    );
    for rate in RATES {
        measure_rate(rate, length)?;
    }
    measure_changes()?;
    if !args.no_etcd {
        let wanted = Wanted {
            backend: "etcd".to_owned(),
            version: None,
        };
        let note = |line: &str| eprintln!("{line}");
        match Provisioner::from_env().locate(&wanted, args.etcd.as_deref(), &note) {
            Ok(located) => overhead::measure(&located.path, length)?,
            Err(error) => eprintln!("the cost is left out: {error}"),
        }
    }
    Ok(Exit::Met)
}

fn measure_rate(rate: f64, length: Duration) -> Result<()> {
    let clock = HostClock::new("bench");
    clock.set_rate(rate)?;
    let canary = Canary::start(&clock, now_ns)?;
    let from_ns = now_ns();
    std::thread::sleep(length);
    let heard = canary.between(from_ns, now_ns());
    let mut worst_ns = 0;
    let reads: Vec<(u64, u64)> = heard
        .iter()
        .filter_map(|one| match one.sample {
            Sample::Read {
                before_ns,
                monotonic_ns,
                after_ns,
                ..
            } => {
                let low = clock.monotonic_at(before_ns).saturating_sub(monotonic_ns);
                let high = monotonic_ns.saturating_sub(clock.monotonic_at(after_ns));
                worst_ns = worst_ns.max(low).max(high);
                Some((before_ns, monotonic_ns))
            }
            _ => None,
        })
        .collect();
    let (first, last) = (reads.first(), reads.last());
    let (first, last) = first.zip(last).context("the canary told nothing")?;
    let achieved = (last.1 - first.1) as f64 / (last.0 - first.0) as f64;
    let slept = late(&heard, rate, |sample| matches!(sample, Sample::Slept(_)));
    let waited = late(&heard, rate, |sample| matches!(sample, Sample::Waited(_)));
    println!(
        "  at {:<6}{:>34.6} % {slept:>10.3} ms {waited:>10.3} ms {:>10.3} µs",
        format!("{rate}×"),
        (achieved / rate - 1.0) * 100.0,
        worst_ns as f64 / 1e3,
    );
    Ok(())
}

/// Median of how much later than it should the waits of one kind ended, in milliseconds of real time.
fn late(heard: &[Heard], rate: f64, kind: fn(&Sample) -> bool) -> f64 {
    let late = heard.iter().filter(|one| kind(&one.sample));
    let mut late: Vec<f64> = late
        .filter_map(|one| match one.sample {
            Sample::Slept(nap) | Sample::Waited(nap) => {
                let took_ns = nap.ended_ns.saturating_sub(nap.began_ns) as f64;
                Some((took_ns - nap.asked_ns as f64 / rate) / 1e6)
            }
            Sample::Read { .. } => None,
        })
        .collect();
    late.sort_unstable_by(f64::total_cmp);
    late.get(late.len() / 2).copied().unwrap_or(f64::NAN)
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
