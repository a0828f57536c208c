//! What goes wrong: it is said, nothing hangs, and nobody is left in a time of his own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nemesis::clock::HostClock;

use crate::subject::{now_ns, subject};

#[test]
fn a_program_that_is_not_there_is_named() {
    let clock = HostClock::new("n1");
    let error = clock
        .spawn(&mut Command::new("no-such-program"))
        .expect_err("refused");
    assert!(error.to_string().contains("no-such-program"), "{error}");
    clock.check().expect("the clock is as good as before");
}

#[test]
fn rates_beyond_the_range_are_refused() {
    let clock = HostClock::new("n1");
    for rate in [0.0, -1.0, 0.09, 10.1, f64::NAN, f64::INFINITY] {
        let error = clock.set_rate(rate).expect_err("refused");
        assert!(error.to_string().contains("from 0.1 to 10"), "{error}");
    }
}

/// A process that is traced already cannot be seized: strace traces the launcher and all that it starts.
#[test]
fn who_is_traced_already_is_told_by_whom() {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-o", "/dev/null"])
        .arg(subject("").get_program())
        .arg("launch");
    let Ok(output) = strace.output() else {
        println!("skipped: strace is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        text.contains("cannot be traced") && text.contains("traces it already"),
        "{text}"
    );
}

/// Where a seccomp filter forbids more filters, as in some containers.
#[test]
fn a_refused_filter_is_told() {
    let output = subject("launch-without-seccomp").output().expect("ran");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(text.contains("seccomp=unconfined"), "{text}");
}

/// Where ptrace is forbidden.
#[test]
fn forbidden_tracing_is_told() {
    let output = subject("launch-without-ptrace").output().expect("ran");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(text.contains("SYS_PTRACE"), "{text}");
}

#[test]
fn programs_may_end_execute_and_fork_while_the_clock_changes() {
    let clock = HostClock::new("n1");
    let mut shell = Command::new("sh");
    // Forks, executes, and short-lived processes without end.
    shell.args([
        "-c",
        "while :; do sleep 0.001 & sh -c 'exec true'; wait; done",
    ]);
    let mut child = clock.spawn(&mut shell).expect("started");
    for change in 0..300 {
        clock.set_rate([2.0, 0.5, 10.0][change % 3]).expect("set");
    }
    clock.check().expect("works");
    let strangers = clock.strangers(&[child.pid]);
    assert!(strangers.is_empty(), "{strangers:?}");
    let pid = nix::unistd::Pid::from_raw(-child.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    assert!(!child.wait().expect("ended").success());
    assert_eq!(clock.tally().missed, 0);
    // Whoever is gone is forgotten, and a change has nobody to wait for.
    let before = Instant::now();
    clock.heal().expect("healed");
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_stopped_process_goes_on_by_the_clock_that_it_finds() {
    use nix::sys::signal::{Signal, kill};
    let clock = HostClock::new("n1");
    let mut child = clock
        .spawn(subject("tick").arg("1000").stdout(Stdio::piped()))
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    lines.next().expect("a line").expect("text");
    let pid = nix::unistd::Pid::from_raw(child.pid);
    let began = now_ns();
    // It has said its line and is on its way into the wait.
    thread::sleep(Duration::from_millis(50));
    kill(pid, Signal::SIGSTOP).expect("stopped");
    thread::sleep(Duration::from_millis(50));
    // 0.1 s are gone; what is left of its second takes 1.8 s.
    clock.set_rate(0.5).expect("set, although it is stopped");
    thread::sleep(Duration::from_millis(100));
    kill(pid, Signal::SIGCONT).expect("continued");
    lines.next().expect("a line").expect("text");
    let took = (now_ns() - began) as f64 / 1e9;
    assert!((took - 1.9).abs() < 0.1, "{took}");
}

/// The supervisor lives in a process of ours; when that is killed, so is everybody whom it supervises.
#[test]
fn a_killed_supervisor_takes_its_processes_along() {
    let mut launcher = subject("launch")
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(launcher.stdout.take().expect("piped")).lines();
    let pid: i32 = lines
        .next()
        .expect("a line")
        .expect("text")
        .parse()
        .expect("the process that it has launched");
    let is_alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z")
    };
    assert!(is_alive());
    launcher.kill().expect("killed");
    launcher.wait().expect("ended");
    let deadline = Instant::now() + Duration::from_secs(2);
    while is_alive() {
        assert!(
            Instant::now() < deadline,
            "process {pid} outlives its supervisor"
        );
        thread::sleep(Duration::from_millis(1));
    }
}
