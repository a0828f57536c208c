//! Single system calls under a clock: raw readings, truth stamps, timerfds, time left, arguments.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nemesis::clock::HostClock;

use crate::subject::{now_ns, subject};

/// Runs a subcommand of our own program under that clock and returns its lines as numbers.
fn numbers(clock: &HostClock, subcommand: &str) -> Vec<i64> {
    let command = subject(subcommand);
    let mut child = clock
        .spawn(command.stdout(Stdio::piped()))
        .expect("started");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let numbers = out
        .lines()
        .map(|line| line.expect("text").parse().expect("a number"));
    let numbers = numbers.collect();
    assert!(child.wait().expect("ended").success());
    numbers
}

#[test]
fn raw_readings_follow_and_truth_stamps_do_not() {
    let clock = HostClock::new("n1");
    clock.set_rate(10.0).expect("set");
    thread::sleep(Duration::from_millis(100));
    clock.step_wall(3_600_000_000_000).expect("stepped");
    // time(2) reads a coarse clock, which steps a tick later.
    thread::sleep(Duration::from_millis(20));
    let before_ns = now_ns() as i64;
    let found = numbers(&clock, "readings");
    let after_ns = now_ns() as i64;
    let [
        vdso_ns,
        raw_ns,
        truth_ns,
        cpu_ns,
        wall_s,
        raw_wall_s,
        raw_time_s,
    ] = found[..]
    else {
        panic!("{found:?}");
    };
    // 100 ms at 10x: the clock is 0.9 s ahead at least.
    assert!(vdso_ns - truth_ns > 900_000_000, "{found:?}");
    assert!(
        (0..1_000_000_000).contains(&(raw_ns - vdso_ns)),
        "{found:?}"
    );
    assert!((before_ns..=after_ns).contains(&truth_ns), "{found:?}");
    assert!(
        (0..1_000_000_000).contains(&cpu_ns),
        "CPU time is true: {found:?}"
    );
    let true_wall_s = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)
        .expect("a clock")
        .tv_sec();
    println!("{}", clock.tally());
    for wall_s in [wall_s, raw_wall_s, raw_time_s] {
        assert!((3600..3650).contains(&(wall_s - true_wall_s)), "{found:?}");
    }
    assert_eq!(clock.tally().readings, 3, "{}", clock.tally());
}

#[test]
fn timers_follow_and_are_armed_again() {
    let clock = HostClock::new("n1");
    clock.set_rate(2.0).expect("set");
    let mut child = clock
        .spawn(subject("timers").stdout(Stdio::piped()))
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || {
        lines.next().expect("a line").expect("text");
        now_ns() as f64 / 1e9
    };
    // A relative timer of 1 s, an absolute one of 1 s, then two periods of 1 s.
    let mut last = next();
    for what in ["relative", "absolute", "period"] {
        let now = next();
        assert!((now - last - 0.5).abs() < 0.05, "{what}: {}", now - last);
        last = now;
    }
    // In the middle of a period: half of it is gone, the other half takes a twentieth.
    thread::sleep(Duration::from_millis(250));
    clock.set_rate(10.0).expect("set");
    let now = next();
    assert!(
        (now - last - 0.3).abs() < 0.05,
        "armed again: {}",
        now - last
    );
    // And the period after that.
    let after = next();
    assert!(
        (after - now - 0.1).abs() < 0.05,
        "next period: {}",
        after - now
    );
}

#[test]
fn a_call_s_arguments_come_back_and_the_time_left_is_in_own_time() {
    let clock = HostClock::new("n1");
    clock.set_rate(2.0).expect("set");
    let found = numbers(&clock, "left");
    let [registers_changed, select_left_us, nanosleep_left_ms, gap] = found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(registers_changed, 0);
    // A second of its own, of which a signal or an event took about 200 ms of its own.
    assert!((700_000..=820_000).contains(&select_left_us), "{found:?}");
    assert!((700..=820).contains(&nanosleep_left_ms), "{found:?}");
    assert_eq!(gap, 0);
    let gaps = clock.tally().gaps;
    assert_eq!(gaps.get("setitimer"), Some(&1), "{gaps:?}");
}

/// A change of the clock interrupts a wait without a timeout too, and the next wait from the same place is a
/// whole one and no rest of an older.
#[test]
fn a_wait_after_an_interrupted_one_is_whole() {
    let clock = HostClock::new("n1");
    let mut child = clock
        .spawn(subject("stale").stdout(Stdio::piped()))
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "waiting");
    thread::sleep(Duration::from_millis(300));
    clock.set_rate(2.0).expect("set");
    let own_ms: u64 = lines
        .next()
        .expect("a line")
        .expect("text")
        .parse()
        .expect("a number");
    assert!((1000..1400).contains(&own_ms), "{own_ms}");
}
