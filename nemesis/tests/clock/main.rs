//! A clock of its own, on real processes: a Rust program, Python, a static Go program, a JVM, coreutils.
//!
//! What is measured is compared with truth time, taken here. A runtime that is not installed is skipped
//! with its reason.

mod calls;
mod failures;
mod faults;
mod runtimes;
mod subject;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use nemesis::clock::HostClock;
use nemesis::clock::canary::{Canary, Sample};
use subject::{now_ns, subject};

#[test]
fn a_process_reads_and_sleeps_at_the_rate_it_is_given() {
    for rate in [0.5, 1.0, 1.01, 2.0, 10.0] {
        let clock = HostClock::new("n1");
        clock.set_rate(rate).expect("set");
        let clock = clock.with_canary(subject("").get_program().into());
        let canary = Canary::start(&clock, now_ns).expect("started");
        let from_ns = now_ns();
        std::thread::sleep(Duration::from_millis(1500));
        let heard = canary.between(from_ns, now_ns());
        let reads: Vec<(u64, u64)> = heard
            .iter()
            .filter_map(|heard| match heard.sample {
                Sample::Read {
                    before_ns,
                    monotonic_ns,
                    ..
                } => Some((before_ns, monotonic_ns)),
                _ => None,
            })
            .collect();
        let (first, last) = (reads[0], reads[reads.len() - 1]);
        let achieved = (last.1 - first.1) as f64 / (last.0 - first.0) as f64;
        let naps: Vec<f64> = heard
            .iter()
            .filter_map(|heard| match heard.sample {
                Sample::Slept(nap) | Sample::Waited(nap) => {
                    Some((nap.ended_ns - nap.began_ns) as f64 / 1e6)
                }
                Sample::Read { .. } => None,
            })
            .collect();
        let shortest = naps.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "{rate}: achieved {achieved:.6}, naps {shortest:.3} ms of {:.3}; {}",
            20.0 / rate,
            clock.tally()
        );
        assert!((achieved / rate - 1.0).abs() < 0.001, "{rate}: {achieved}");
        assert!((shortest - 20.0 / rate).abs() < 5.0, "{rate}: {naps:?}");
        assert!(shortest >= 20.0 / rate - 0.001, "{rate}: {naps:?}");
    }
}

#[test]
fn time_never_goes_backwards_through_a_thousand_changes() {
    let clock = HostClock::new("n1");
    let mut child = clock
        .spawn(subject("spin").stdin(Stdio::piped()).stdout(Stdio::piped()))
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "spinning");
    for change in 0..1000 {
        let rate = [2.0, 0.5, 10.0, 0.1, 1.0, 1.01][change % 6];
        if change % 7 == 0 {
            clock.heal().expect("heal");
        } else {
            clock.set_rate(rate).expect("set");
        }
    }
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"\n")
        .expect("told");
    let counts = lines.next().expect("a line").expect("text");
    println!("readings and backward steps: {counts}");
    let (readings, backwards) = counts.split_once(' ').expect("two");
    assert!(readings.parse::<u64>().expect("a number") > 100_000);
    assert_eq!(backwards, "0");
    assert!(child.wait().expect("ended").success());
}

#[test]
fn ordinary_programs_follow() {
    let clock = HostClock::new("n1");
    clock.set_rate(2.0).expect("set");
    let before = now_ns();
    let status = clock
        .spawn(Command::new("sleep").arg("1"))
        .expect("started")
        .wait();
    let status = status.expect("ended");
    assert!(status.success(), "{status:?}");
    let took = (now_ns() - before) as f64 / 1e9;
    assert!((0.5..0.6).contains(&took), "{took}");
}
