//! The canary: a small process that lives by the same clock as a host's and tells what it lives through.
//!
//! It reads its clocks, sleeps, and waits on a condition variable, over and over, and stamps each with true
//! time, which it reads past the fault ([`TRUTH_MARKER`]); its parent stamps what it hears once more. So a
//! clock that is not what was asked for is found in every run, and not only where somebody looked. Nothing
//! here knows how the clock is made.
#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::launch::Clocked;
use super::{ClockError, HostClock, TRUTH_MARKER};
use crate::Now;

/// The subcommand of an executable that is to run [`main`].
pub const SUBCOMMAND: &str = "clock-canary";

/// How long it sleeps and waits, by its own clock.
const NAP: Duration = Duration::from_millis(20);

/// What the canary tells: a line of numbers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// It read its clocks between two true times.
    Read {
        /// True time before.
        before_ns: u64,
        /// Its own monotonic clock.
        monotonic_ns: u64,
        /// True time after.
        after_ns: u64,
        /// How far its wall clock is ahead of the true one.
        wall_ahead_ns: i64,
    },
    /// It slept.
    Slept(Nap),
    /// It waited on a condition variable that nobody signals.
    Waited(Nap),
}

/// A wait of [`asked_ns`](Nap::asked_ns) by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nap {
    /// True time before.
    pub began_ns: u64,
    /// True time after.
    pub ended_ns: u64,
    /// How long it was to last, by its own clock.
    pub asked_ns: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read {
                before_ns,
                monotonic_ns,
                after_ns,
                wall_ahead_ns,
            } => write!(
                f,
                "read {before_ns} {monotonic_ns} {after_ns} {wall_ahead_ns}"
            ),
            Self::Slept(nap) => write!(f, "slept {nap}"),
            Self::Waited(nap) => write!(f, "waited {nap}"),
        }
    }
}

impl fmt::Display for Nap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.began_ns, self.ended_ns, self.asked_ns)
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (a, b, c) = (number()?, number()?, number()?);
        let nap = Nap {
            began_ns: a,
            ended_ns: b,
            asked_ns: c,
        };
        match kind {
            "read" => Some(Self::Read {
                before_ns: a,
                monotonic_ns: b,
                after_ns: c,
                wall_ahead_ns: words.next()?.parse().ok()?,
            }),
            "slept" => Some(Self::Slept(nap)),
            "waited" => Some(Self::Waited(nap)),
            _ => None,
        }
    }
}

/// The canary's own program: runs until its standard input ends. To be a hidden subcommand of the
/// harness.
#[must_use]
pub fn main() -> ExitCode {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut out = io::stdout().lock();
    let lives: [fn() -> Sample; 3] = [
        read,
        || Sample::Slept(nap(thread::sleep)),
        || Sample::Waited(nap(wait)),
    ];
    for life in lives.iter().cycle() {
        if writeln!(out, "{}", life())
            .and_then(|()| out.flush())
            .is_err()
        {
            // Its parent has gone.
            break;
        }
    }
    ExitCode::SUCCESS
}

fn read() -> Sample {
    let before_ns = true_ns(libc::CLOCK_MONOTONIC);
    let monotonic_ns = own_monotonic_ns();
    let after_ns = true_ns(libc::CLOCK_MONOTONIC);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let wall_ns = since.map_or(0, |since| since.as_nanos() as i64);
    let wall_ahead_ns = wall_ns - true_ns(libc::CLOCK_REALTIME) as i64;
    Sample::Read {
        before_ns,
        monotonic_ns,
        after_ns,
        wall_ahead_ns,
    }
}

fn nap(with: impl Fn(Duration)) -> Nap {
    let began_ns = true_ns(libc::CLOCK_MONOTONIC);
    with(NAP);
    Nap {
        began_ns,
        ended_ns: true_ns(libc::CLOCK_MONOTONIC),
        asked_ns: NAP.as_nanos() as u64,
    }
}

/// Waits on a condition variable, as lock clients and Java do, until its timeout is over.
fn wait(length: Duration) {
    let (mutex, signalled) = (Mutex::new(()), Condvar::new());
    let deadline = Instant::now() + length;
    let mut guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        let woken = signalled.wait_timeout(guard, left);
        guard = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The process's own monotonic clock, by the C library.
fn own_monotonic_ns() -> u64 {
    super::trace::clock_ns(libc::CLOCK_MONOTONIC)
}

/// A true clock, past any fault.
fn true_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec; the third argument is for the filter only.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time, TRUTH_MARKER) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A sample, and when its line was heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// What was told.
    pub sample: Sample,
    /// Truth time here.
    pub heard_ns: u64,
}

/// A running canary. It ends when this is dropped.
#[derive(Debug)]
pub struct Canary {
    /// Gone, and with it the process, before its listener is waited for.
    child: Option<Clocked>,
    heard: Arc<Mutex<Vec<Heard>>>,
    listener: Option<JoinHandle<()>>,
}

impl Canary {
    /// Starts the canary of a clock and waits until it tells something.
    ///
    /// # Errors
    /// Why it could not be started, or that it tells nothing.
    pub fn start(clock: &HostClock, now: Now) -> Result<Self, ClockError> {
        let mut command = Command::new(&clock.canary);
        command.arg(SUBCOMMAND);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = clock.spawn_counted(&mut command, false)?;
        let out = child.stdout.take();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let listener = thread::spawn(move || listen(out, &ear, now));
        let canary = Self {
            child: Some(child),
            heard,
            listener: Some(listener),
        };
        for _ in 0..2000 {
            if !canary.lock().is_empty() {
                return Ok(canary);
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(ClockError::NotStarted {
            answer: "the canary told nothing within 2 s".to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it lived through between two truth times.
    #[must_use]
    pub fn between(&self, from_ns: u64, until_ns: u64) -> Vec<Heard> {
        let inside = |heard: &&Heard| {
            let (began_ns, ended_ns) = match heard.sample {
                Sample::Read {
                    before_ns,
                    after_ns,
                    ..
                } => (before_ns, after_ns),
                Sample::Slept(nap) | Sample::Waited(nap) => (nap.began_ns, nap.ended_ns),
            };
            began_ns >= from_ns && ended_ns <= until_ns
        };
        self.lock().iter().filter(inside).copied().collect()
    }
}

fn listen(out: Option<impl Read>, ear: &Mutex<Vec<Heard>>, now: Now) {
    let lines = out.map(BufReader::new).into_iter().flat_map(BufRead::lines);
    for line in lines.map_while(Result::ok) {
        if let Some(sample) = Sample::parse(&line) {
            let heard = Heard {
                sample,
                heard_ns: now(),
            };
            ear.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(heard);
        }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        drop(self.child.take());
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let nap = Nap {
            began_ns: 1,
            ended_ns: 2,
            asked_ns: 3,
        };
        let read = Sample::Read {
            before_ns: 1,
            monotonic_ns: 2,
            after_ns: 3,
            wall_ahead_ns: -4,
        };
        for sample in [read, Sample::Slept(nap), Sample::Waited(nap)] {
            assert_eq!(Sample::parse(&sample.to_string()), Some(sample));
        }
        for bad in ["", "read 1 2 3", "slept 1 2", "sang 1 2 3", "slept a b c"] {
            assert_eq!(Sample::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_nap_takes_as_long_as_it_should_without_a_fault() {
        for nap in [nap(thread::sleep), nap(wait)] {
            assert!(nap.ended_ns - nap.began_ns >= nap.asked_ns, "{nap:?}");
        }
    }
}
