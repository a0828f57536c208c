//! The canary, which every clock fault is proven by: it stamps what it lives through with true time.

use std::time::Duration;

use anyhow::{Context, Result};
use nemesis::clock::HostClock;
use nemesis::clock::canary::{Canary, Heard, Sample};
use workloads::truth::now_ns;

/// The rates that are measured.
const RATES: [f64; 5] = [0.5, 1.0, 1.01, 2.0, 10.0];

/// Measures and prints.
pub(super) fn measure(length: Duration) -> Result<()> {
    println!(
        "the canary, {} s each{:>17} {:>13} {:>13} {:>13}",
        length.as_secs(),
        "rate error",
        "sleep late",
        "condvar late",
        "worst reading"
    );
    RATES
        .into_iter()
        .try_for_each(|rate| measure_rate(rate, length))
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
