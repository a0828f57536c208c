//! A program for the tests of `nemesis::clock` to skew: each subcommand lives through time in one way and
//! prints what it saw. Not a part of fencepost.

mod calls;
mod launch;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(nemesis::clock::canary::SUBCOMMAND) => nemesis::clock::canary::main(),
        Some("spin") => spin(),
        Some("tick") => {
            let milliseconds = arguments.get(1).and_then(|text| text.parse().ok());
            nemesis::ticking::main(Duration::from_millis(milliseconds.unwrap_or(1000)))
        }
        Some("stale") => calls::stale(),
        Some("readings") => calls::readings(),
        Some("timers") => calls::timers(),
        Some("left") => calls::left(),
        Some("launch") => launch::launch(),
        Some("launch-without-seccomp") => launch::launch_without(libc::SYS_seccomp),
        Some("launch-without-ptrace") => launch::launch_without(libc::SYS_ptrace),
        other => {
            eprintln!(
                "expected clock-canary, spin, tick, stale, readings, timers, left or a launch, found {other:?}"
            );
            ExitCode::from(2)
        }
    }
}

/// Eight threads read the monotonic clock as fast as they can until standard input ends, each against the
/// latest that any of them has seen, and tell how often it went backwards.
fn spin() -> ExitCode {
    let over = AtomicBool::new(false);
    let (latest, backwards, readings) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let origin = Instant::now();
    println!("spinning");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // Whatever another thread has published was read before this reading.
                    let before = latest.load(Ordering::SeqCst);
                    let now = origin.elapsed().as_nanos() as u64;
                    if now < before {
                        backwards.fetch_add(1, Ordering::Relaxed);
                    }
                    latest.fetch_max(now, Ordering::SeqCst);
                    readings.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ = std::io::stdin().read_line(&mut String::new());
        over.store(true, Ordering::Relaxed);
    });
    println!("{} {}", readings.into_inner(), backwards.into_inner());
    ExitCode::SUCCESS
}
