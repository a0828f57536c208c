//! Programs of several runtimes that tell how they live through time, and what is to be seen from it.
//!
//! Each says its own monotonic time, in nanoseconds, before and after each wait of a length that it is told;
//! the waits take turns among three kinds that its runtime has. Whoever listens notes the true time of each
//! line. For tests and `bench clock`: no fault uses this.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Now;
use crate::clock::launch::Clocked;
use crate::clock::{ClockError, HostClock};

const GO: &str = include_str!("tick.go");
const JAVA: &str = include_str!("Tick.java");
const PYTHON: &str = include_str!("tick.py");

/// A runtime's ticking program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The runtime.
    pub runtime: &'static str,
    /// How it is started, the length of its waits in milliseconds left out; or why it cannot be had.
    pub argv: Result<Vec<OsString>, String>,
}

/// The ticking programs of the runtimes that are installed, built into `folder` where they have to be.
#[must_use]
pub fn programs(folder: &Path) -> Vec<Program> {
    let program = |runtime, argv| Program { runtime, argv };
    vec![
        program("Python", python(folder)),
        program("Go, static", go(folder)),
        program("JVM", java(folder)),
    ]
}

fn python(folder: &Path) -> Result<Vec<OsString>, String> {
    let source = folder.join("tick.py");
    std::fs::write(&source, PYTHON).map_err(|error| error.to_string())?;
    // The interpreter itself: what is in PATH may be a script that looks for it.
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .map_err(|error| format!("python3 cannot be started: {error}"))?;
    let interpreter = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    Ok(vec![interpreter.into(), source.into()])
}

fn go(folder: &Path) -> Result<Vec<OsString>, String> {
    let (source, binary) = (folder.join("tick.go"), folder.join("tick"));
    std::fs::write(&source, GO).map_err(|error| error.to_string())?;
    let mut build = Command::new("go");
    build
        .args(["build", "-o"])
        .arg(&binary)
        .arg(&source)
        .env("CGO_ENABLED", "0");
    built(&mut build)?;
    Ok(vec![binary.into()])
}

fn java(folder: &Path) -> Result<Vec<OsString>, String> {
    let source = folder.join("Tick.java");
    std::fs::write(&source, JAVA).map_err(|error| error.to_string())?;
    built(Command::new("javac").arg("-d").arg(folder).arg(&source))?;
    Ok(vec![
        "java".into(),
        "-cp".into(),
        folder.into(),
        "Tick".into(),
    ])
}

fn built(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{name} cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let refused = || format!("{name} refused: {}", said.trim());
    done.status.success().then_some(()).ok_or_else(refused)
}

/// The ticking program of Rust's standard library: a sleep, a condition variable, a channel. To be a hidden
/// subcommand of whoever measures.
#[must_use]
pub fn main(length: Duration) -> ExitCode {
    let origin = Instant::now();
    let (mutex, signalled) = (Mutex::new(()), Condvar::new());
    let (_sender, receiver) = channel::<()>();
    for turn in 0.. {
        if writeln!(io::stdout(), "{}", origin.elapsed().as_nanos()).is_err() {
            break;
        }
        match turn % 3 {
            0 => thread::sleep(length),
            1 => {
                let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                drop(signalled.wait_timeout_while(guard, length, |()| true));
            }
            _ => drop(receiver.recv_timeout(length)),
        }
    }
    ExitCode::SUCCESS
}

/// A moment between two waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// True time.
    pub true_ns: u64,
    /// The program's own time.
    pub own_ns: u64,
}

/// A program that ticks. It ends when this is dropped.
#[derive(Debug)]
pub struct Ticking {
    lines: Lines<BufReader<ChildStdout>>,
    now: Now,
    _process: Clocked,
}

impl Ticking {
    /// Starts a program under a clock, with waits of that length of its own time.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(
        clock: &HostClock,
        argv: &[OsString],
        length: Duration,
        now: Now,
    ) -> Result<Self, ClockError> {
        let nothing = || ClockError::NotStarted {
            answer: "no program was given".to_owned(),
        };
        let (program, arguments) = argv.split_first().ok_or_else(nothing)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(length.as_millis().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = clock.spawn(&mut command)?;
        let out = process.stdout.take().ok_or_else(nothing)?;
        Ok(Self {
            lines: BufReader::new(out).lines(),
            now,
            _process: process,
        })
    }

    /// The next moment between two waits.
    ///
    /// # Errors
    /// It ended, or says something else.
    pub fn next_tick(&mut self) -> io::Result<Tick> {
        let line = self.lines.next();
        let true_ns = (self.now)();
        let line = line.ok_or(io::ErrorKind::UnexpectedEof)??;
        let own_ns = line.trim().parse().map_err(io::Error::other)?;
        Ok(Tick { true_ns, own_ns })
    }
}

/// How a program lived through time, seen from its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Lived {
    /// Own time for each true time, from the first tick to the last.
    pub rate: f64,
    /// By how much each wait was longer than it should have been, in milliseconds of true time, in order.
    pub late_ms: Vec<f64>,
}

impl Lived {
    /// What ticks say of waits of that length, at that rate. `None` with fewer than two ticks.
    #[must_use]
    pub fn of(ticks: &[Tick], length: Duration, rate: f64) -> Option<Self> {
        let (first, last) = (ticks.first()?, ticks.last()?);
        let true_ns = last
            .true_ns
            .checked_sub(first.true_ns)
            .filter(|ns| *ns > 0)?;
        let own_ns = last.own_ns.saturating_sub(first.own_ns);
        let late = ticks.windows(2).map(|pair| {
            let took_ns = pair[1].true_ns.saturating_sub(pair[0].true_ns) as f64;
            (took_ns - length.as_nanos() as f64 / rate) / 1e6
        });
        Some(Self {
            rate: own_ns as f64 / true_ns as f64,
            late_ms: late.collect(),
        })
    }

    /// The median and the worst lateness, in milliseconds of true time.
    #[must_use]
    pub fn lateness_ms(&self) -> (f64, f64) {
        let mut sorted = self.late_ms.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied();
        let worst = sorted
            .into_iter()
            .max_by(|a, b| a.abs().total_cmp(&b.abs()));
        (median.unwrap_or(f64::NAN), worst.unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ticks_say_is_computed_in_true_time() {
        let tick = |true_ms: u64, own_ms: u64| Tick {
            true_ns: true_ms * 1_000_000,
            own_ns: own_ms * 1_000_000,
        };
        let ticks = [tick(0, 7), tick(501, 1009), tick(1000, 2007)];
        let lived = Lived::of(&ticks, Duration::from_secs(1), 2.0).expect("ticks");
        assert!((lived.rate - 2.0).abs() < 1e-12);
        assert_eq!(lived.late_ms, [1.0, -1.0]);
        assert_eq!(Lived::of(&ticks[..1], Duration::from_secs(1), 2.0), None);
    }
}
