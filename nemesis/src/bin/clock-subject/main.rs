//! A program for the tests of `nemesis::clock` to skew: each subcommand lives through time in one way and
//! prints what it saw. Not a part of fencepost.

mod calls;
mod launch;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(nemesis::clock::canary::SUBCOMMAND) => nemesis::clock::canary::main(),
        Some("spin") => spin(),
        Some("tick") => tick(arguments.get(1).and_then(|text| text.parse().ok())),
        Some("readings") => calls::readings(),
        Some("timers") => calls::timers(),
        Some("left") => calls::left(),
        Some("launch") => launch::launch(),
        Some("launch-without-seccomp") => launch::launch_without(libc::SYS_seccomp),
        Some("launch-without-ptrace") => launch::launch_without(libc::SYS_ptrace),
        other => {
            eprintln!(
                "expected clock-canary, spin, tick, readings, timers, left or a launch, found {other:?}"
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

/// Says its own monotonic time, in nanoseconds, before and after each wait of that many milliseconds. The
/// waits take turns: a sleep, a condition variable, a channel.
fn tick(milliseconds: Option<u64>) -> ExitCode {
    let length = Duration::from_millis(milliseconds.unwrap_or(1000));
    let origin = Instant::now();
    let (mutex, signalled) = (Mutex::new(()), Condvar::new());
    let (_sender, receiver) = channel::<()>();
    for turn in 0.. {
        if writeln!(std::io::stdout(), "{}", origin.elapsed().as_nanos()).is_err() {
            break;
        }
        match turn % 3 {
            0 => thread::sleep(length),
            1 => drop(signalled.wait_timeout_while(mutex.lock().expect("ours"), length, |()| true)),
            _ => drop(receiver.recv_timeout(length)),
        }
    }
    ExitCode::SUCCESS
}
