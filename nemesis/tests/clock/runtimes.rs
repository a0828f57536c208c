//! Readings and waits of other languages' runtimes: Python, a static Go program, a JVM, and ours.
//!
//! Each program says its own time before and after each wait; we note the true time of each line. A
//! runtime that is not installed is skipped and says so.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use nemesis::clock::HostClock;
use nemesis::clock::launch::Clocked;

use crate::subject::{now_ns, subject};

/// A runtime's program: what it is called, and how it is started. `None` where the runtime is missing.
struct Runtime {
    name: &'static str,
    command: Option<Vec<PathBuf>>,
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clock/programs")
        .join(name)
}

/// Builds what has to be built, into `folder`.
fn runtimes(folder: &Path) -> Vec<Runtime> {
    let built = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    let go = folder.join("tick");
    let has_go = built(
        Command::new("go")
            .args(["build", "-o"])
            .arg(&go)
            .arg(program("tick.go"))
            .env("CGO_ENABLED", "0"),
    );
    let has_java = built(
        Command::new("javac")
            .arg("-d")
            .arg(folder)
            .arg(program("Tick.java")),
    );
    let has_python = built(Command::new("python3").args(["-c", ""]));
    let rust = subject("tick");
    let java = vec!["java".into(), "-cp".into(), folder.into(), "Tick".into()];
    vec![
        Runtime {
            name: "rust",
            command: Some(vec![rust.get_program().into(), "tick".into()]),
        },
        Runtime {
            name: "python",
            command: has_python.then(|| vec![python(), program("tick.py")]),
        },
        Runtime {
            name: "go",
            command: has_go.then(|| vec![go]),
        },
        Runtime {
            name: "java",
            command: has_java.then_some(java),
        },
    ]
}

/// The interpreter itself: what is in PATH may be a script that looks for it.
fn python() -> PathBuf {
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("it was there");
    String::from_utf8(asked.stdout)
        .expect("a path")
        .trim()
        .into()
}

/// A program that ticks.
struct Ticking {
    lines: Lines<BufReader<ChildStdout>>,
    _process: Clocked,
}

impl Ticking {
    fn start(clock: &HostClock, command: &[PathBuf], length: Duration) -> Self {
        let mut command = {
            let mut it = Command::new(&command[0]);
            it.args(&command[1..]);
            it
        };
        command
            .arg(length.as_millis().to_string())
            .stdout(Stdio::piped());
        let mut process = clock.spawn(&mut command).expect("started");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        Self {
            lines,
            _process: process,
        }
    }

    /// The next line: true time, own time.
    fn next(&mut self) -> (f64, f64) {
        let line = self.lines.next().expect("a line").expect("text");
        let own: u64 = line.parse().expect("a number");
        (now_ns() as f64 / 1e9, own as f64 / 1e9)
    }
}

#[test]
fn every_runtime_lives_at_the_rate_of_its_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtimes = runtimes(folder.path());
    std::thread::scope(|scope| {
        for runtime in &runtimes {
            let Some(command) = &runtime.command else {
                println!("{}: skipped, it is not installed", runtime.name);
                continue;
            };
            scope.spawn(move || {
                for rate in [0.5, 2.0, 10.0] {
                    lives_at(rate, runtime.name, command);
                }
            });
        }
    });
}

fn lives_at(rate: f64, name: &str, command: &[PathBuf]) {
    let clock = HostClock::new("n1");
    clock.set_rate(rate).expect("set");
    let length = Duration::from_secs_f64(0.5 * rate.max(1.0));
    let mut ticking = Ticking::start(&clock, command, length);
    let ticks: Vec<(f64, f64)> = (0..7).map(|_| ticking.next()).collect();
    let expected = length.as_secs_f64() / rate;
    let waits: Vec<f64> = ticks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let (first, last) = (ticks[0], ticks[6]);
    let achieved = (last.1 - first.1) / (last.0 - first.0);
    let tally = clock.tally();
    println!("{name} at {rate}: {achieved:.5}; waits {waits:.4?} of {expected}; {tally}");
    // A line is heard a little after it was written, and the machine may be busy.
    let tolerance = 0.05 / (last.0 - first.0);
    assert!(
        (achieved / rate - 1.0).abs() < tolerance.max(0.001),
        "{name}: {achieved}"
    );
    // Three kinds of waits, twice each: the better one of each counts.
    for kind in 0..3 {
        let best = waits[kind].min(waits[kind + 3]);
        assert!((best - expected).abs() < 0.05, "{name}: {kind}: {waits:?}");
    }
    assert_eq!(tally.missed, 0);
}

#[test]
fn a_wait_in_flight_follows_a_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtimes = runtimes(folder.path());
    std::thread::scope(|scope| {
        for runtime in &runtimes {
            let Some(command) = &runtime.command else {
                println!("{}: skipped, it is not installed", runtime.name);
                continue;
            };
            scope.spawn(move || follows(runtime.name, command));
        }
    });
}

fn follows(name: &str, command: &[PathBuf]) {
    let clock = HostClock::new("n1");
    let mut ticking = Ticking::start(&clock, command, Duration::from_secs(2));
    let mut began = ticking.next();
    for kind in 0..3 {
        // Half a second at 1, half a second at 0.5: 0.75 s are gone; what is left takes an eighth at 10.
        std::thread::sleep(Duration::from_millis(500));
        clock.set_rate(0.5).expect("set");
        std::thread::sleep(Duration::from_millis(500));
        clock.set_rate(10.0).expect("set");
        let ended = ticking.next();
        let took = ended.0 - began.0;
        println!(
            "{name}: wait {kind} took {took:.4} s of 1.125; {}",
            clock.tally()
        );
        assert!((took - 1.125).abs() < 0.08, "{name}: wait {kind}: {took}");
        assert!(ended.1 - began.1 >= 1.99, "{name}: {began:?} {ended:?}");
        clock.heal().expect("healed");
        // Whatever the change back cost, the next wait begins now.
        began = (now_ns() as f64 / 1e9, ended.1);
    }
}
