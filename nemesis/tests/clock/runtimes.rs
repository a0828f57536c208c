//! Readings and waits of other languages' runtimes: Python, a static Go program, a JVM, and ours.
//!
//! A runtime that is not installed is skipped and says so.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use nemesis::clock::HostClock;
use nemesis::ticking::{self, Lived, Program, Tick, Ticking};

use crate::subject::{now_ns, subject};

fn programs(folder: &Path) -> Vec<Program> {
    let mut programs = ticking::programs(folder);
    programs.push(Program {
        runtime: "Rust",
        argv: Ok(vec![subject("").get_program().into(), "tick".into()]),
    });
    programs
}

/// Does something with every runtime that is there, all at once: they sleep most of the time.
fn with_each(what: impl Fn(&str, &[OsString]) + Sync) {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = programs(folder.path());
    std::thread::scope(|scope| {
        for program in &programs {
            match &program.argv {
                Err(why) => println!("{}: skipped: {why}", program.runtime),
                Ok(argv) => drop(scope.spawn(|| what(program.runtime, argv))),
            }
        }
    });
}

fn start(clock: &HostClock, argv: &[OsString], length: Duration) -> Ticking {
    Ticking::start(clock, argv, length, now_ns).expect("started")
}

#[test]
fn every_runtime_lives_at_the_rate_of_its_clock() {
    with_each(|name, argv| {
        for rate in [0.5, 1.01, 2.0, 10.0] {
            lives_at(rate, name, argv);
        }
    });
}

fn lives_at(rate: f64, name: &str, argv: &[OsString]) {
    let clock = HostClock::new("n1");
    clock.set_rate(rate).expect("set");
    let length = Duration::from_secs_f64(0.5 * rate.max(1.0));
    let mut ticking = start(&clock, argv, length);
    let ticks: Vec<Tick> = (0..7)
        .map(|_| ticking.next_tick().expect("a tick"))
        .collect();
    let lived = Lived::of(&ticks, length, rate).expect("ticks");
    let tally = clock.tally();
    println!("{name} at {rate}: {lived:.5?}; {tally}");
    // A line is heard a little after it was written, and the machine may be busy.
    let lasted_ns = ticks[6].true_ns - ticks[0].true_ns;
    let tolerance = 50e6 / lasted_ns as f64;
    assert!(
        (lived.rate / rate - 1.0).abs() < tolerance.max(0.001),
        "{name}: {lived:?}"
    );
    // Three kinds of waits, twice each: the better one of each counts. (A line that is heard late makes the wait
    // before it too long and the one after it too short.)
    for kind in 0..3 {
        let [first_ms, second_ms] = [kind, kind + 3].map(|wait| lived.late_ms[wait].abs());
        assert!(first_ms.min(second_ms) < 50.0, "{name}: {kind}: {lived:?}");
    }
    assert_eq!(tally.missed, 0);
}

#[test]
fn a_wait_in_flight_follows_a_change() {
    with_each(follows);
}

fn follows(name: &str, argv: &[OsString]) {
    let clock = HostClock::new("n1");
    let mut ticking = start(&clock, argv, Duration::from_secs(2));
    let mut began = ticking.next_tick().expect("a tick");
    for kind in 0..3 {
        // Half a second at 1, half a second at 0.5: 0.75 s are gone; what is left takes an eighth at 10.
        std::thread::sleep(Duration::from_millis(500));
        clock.set_rate(0.5).expect("set");
        let slowed_ns = now_ns();
        std::thread::sleep(Duration::from_millis(500));
        clock.set_rate(10.0).expect("set");
        let hastened_ns = now_ns();
        let ended = ticking.next_tick().expect("a tick");
        let seconds = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64 / 1e9;
        let (at_one, at_half) = (
            seconds(began.true_ns, slowed_ns),
            seconds(slowed_ns, hastened_ns),
        );
        // By the true times of the changes, which a busy machine makes late.
        let expected = at_one + at_half + (2.0 - at_one - at_half / 2.0).max(0.0) / 10.0;
        let took = seconds(began.true_ns, ended.true_ns);
        println!(
            "{name}: wait {kind} took {took:.4} s of {expected:.4}; {}",
            clock.tally()
        );
        // A wait that did not follow would take 2 s, or 1.75 s from the first change on.
        assert!(
            (took - expected).abs() < 0.2,
            "{name}: wait {kind}: {took} of {expected}"
        );
        let own_ns = ended.own_ns - began.own_ns;
        assert!(own_ns >= 1_990_000_000, "{name}: {began:?} {ended:?}");
        clock.heal().expect("healed");
        // Whatever the change back cost, the next wait begins now.
        began = Tick {
            true_ns: now_ns(),
            ..ended
        };
    }
}
