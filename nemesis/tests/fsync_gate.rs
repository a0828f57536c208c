//! The fsync gate on a real process that syncs a real file: each answer, measured from inside.
//!
//! The process is this test binary, started again (see `syncer`). It ends by itself within a minute,
//! should the test be killed.
#![allow(unsafe_code, reason = "the helper installs a signal handler")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nemesis::mechanism::fsync_gate::{Answer, FsyncGate, launch};
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

/// What one call of the syncer came to.
#[derive(Clone, Copy, Debug)]
struct Synced {
    took_us: u64,
    errno: i32,
}

/// A process that syncs again and again behind a gate.
struct Syncer {
    gate: FsyncGate,
    child: Child,
    calls: Receiver<Synced>,
    /// The thread that syncs.
    thread: i32,
    _folder: tempfile::TempDir,
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    u64::try_from(time.tv_sec()).expect("after boot") * 1_000_000_000
        + u64::try_from(time.tv_nsec()).expect("not negative")
}

impl Syncer {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let gate = FsyncGate::new("n1", now);
        let mut command = Command::new(std::env::current_exe().expect("we run"));
        command
            .args(["syncer", "--exact", "--ignored", "--nocapture"])
            .env("SYNCER_FILE", folder.path().join("file"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = launch::spawn(&gate, &mut command).expect("a filter can be had everywhere");
        let stdout = child.stdout.take().expect("piped");
        let (sender, calls) = channel();
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let thread = lines.find_map(|line| line.strip_prefix("thread ")?.parse().ok());
        let thread = thread.expect("it says which thread syncs");
        thread::spawn(move || {
            for line in lines {
                let mut words = line.split(' ');
                if words.next() != Some("synced") {
                    continue;
                }
                let mut number = || words.next().and_then(|word| word.parse().ok());
                let (Some(took_us), Some(errno)) = (number(), number()) else {
                    continue;
                };
                let errno = i32::try_from(errno).expect("small");
                if sender.send(Synced { took_us, errno }).is_err() {
                    return;
                }
            }
        });
        let syncer = Self {
            gate,
            child,
            calls,
            thread,
            _folder: folder,
        };
        assert_eq!(syncer.next().errno, 0);
        syncer
    }

    /// Sends a signal with a handler to the thread that syncs.
    fn interrupt(&self) {
        // SAFETY: a plain system call with numbers.
        let done = unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                self.child.id(),
                self.thread,
                libc::SIGUSR1,
            )
        };
        assert_eq!(done, 0, "it lives");
    }

    fn next(&self) -> Synced {
        let call = self.calls.recv_timeout(Duration::from_secs(10));
        call.expect("it syncs")
    }

    /// Forgets the calls that have ended by now.
    fn drain(&self) {
        while self.calls.try_recv().is_ok() {}
    }

    /// Waits until a call is held.
    fn wait_held(&self) {
        let start = Instant::now();
        while self.gate.holding() == 0 {
            assert!(start.elapsed() < Duration::from_secs(10), "nothing is held");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_held_call_waits_until_the_gate_opens_and_signals_do_not_free_it() {
    let syncer = Syncer::start();
    syncer.gate.set(Answer::Hold).expect("it works");
    syncer.wait_held();
    syncer.drain();
    for _ in 0..10 {
        syncer.interrupt();
        thread::sleep(Duration::from_millis(20));
    }
    assert!(syncer.calls.try_recv().is_err(), "a held call returned");
    assert_eq!(syncer.gate.holding(), 1);
    let (_, tally) = syncer.gate.open().expect("it opens");
    let call = syncer.next();
    assert!(call.errno == 0 && call.took_us >= 200_000, "{call:?}");
    assert_eq!((tally.held, tally.died), (1, 0), "{tally}");
    assert!(tally.longest_ns >= 200_000_000, "{tally}");
    assert_eq!(tally.reached.get("fdatasync"), Some(&1), "{tally}");
    assert!(syncer.next().took_us < 200_000);
}

#[test]
fn slow_calls_take_as_long_as_asked_also_when_a_signal_comes() {
    let syncer = Syncer::start();
    syncer
        .gate
        .set(Answer::Slow {
            delay_ns: 100_000_000,
        })
        .expect("it works");
    syncer.wait_held();
    syncer.drain();
    syncer.interrupt();
    let calls = [syncer.next(), syncer.next()];
    for call in calls {
        assert!(call.errno == 0 && call.took_us >= 100_000, "{call:?}");
        assert!(
            call.took_us < 190_000,
            "the signal began the delay anew: {call:?}"
        );
    }
    let (_, tally) = syncer.gate.open().expect("it opens");
    assert!(
        tally.held >= 2 && tally.longest_ns >= 100_000_000,
        "{tally}"
    );
}

#[test]
fn errors_and_lies_reach_the_caller_and_end_when_the_gate_opens() {
    let syncer = Syncer::start();
    for errno in [Errno::EIO, Errno::ENOSPC] {
        let answer = Answer::Fail {
            errno: errno as i32,
        };
        syncer.gate.set(answer).expect("it works");
        let failed = (0..1000).any(|_| syncer.next().errno == errno as i32);
        assert!(failed, "{errno} did not arrive");
        let (_, tally) = syncer.gate.open().expect("it opens");
        assert!(tally.failed > 0 && tally.held == 0, "{tally}");
    }
    syncer.gate.set(Answer::Lie).expect("it works");
    thread::sleep(Duration::from_millis(50));
    let (_, tally) = syncer.gate.open().expect("it opens");
    assert!(tally.lied > 0 && tally.touched() == tally.lied, "{tally}");
    syncer.drain();
    assert_eq!(syncer.next().errno, 0);
}

#[test]
fn a_process_dies_at_once_while_a_call_of_it_is_held() {
    let mut syncer = Syncer::start();
    syncer.gate.set(Answer::Hold).expect("it works");
    syncer.wait_held();
    let start = Instant::now();
    syncer.child.kill().expect("it lives");
    syncer.child.wait().expect("it is ours");
    assert!(start.elapsed() < Duration::from_secs(1));
    let (_, tally) = syncer.gate.open().expect("it opens");
    assert_eq!((tally.held, tally.died), (0, 1), "{tally}");
    assert_eq!(tally.touched(), 1);
}

#[test]
fn an_open_gate_costs_microseconds() {
    let median = |gated: bool| {
        let syncer = Syncer::start();
        if !gated {
            // The same program without a filter.
            let bare = bare_calls(1000);
            drop(syncer);
            return bare;
        }
        let mut took: Vec<u64> = (0..1000).map(|_| syncer.next().took_us).collect();
        took.sort_unstable();
        took[500]
    };
    let (bare_us, gated_us) = (median(false), median(true));
    println!("fdatasync p50: {bare_us} us without a gate, {gated_us} us with an open one");
    // The aim is 15 us on an idle machine; tests run on busy ones.
    assert!(gated_us < bare_us + 500);
}

/// Median of calls of this process itself.
fn bare_calls(count: usize) -> u64 {
    let file = tempfile::tempfile().expect("a file");
    let mut took: Vec<u64> = (0..count).map(|_| sync_once(&file).took_us).collect();
    took.sort_unstable();
    took[count / 2]
}

fn sync_once(file: &File) -> Synced {
    file.write_all_at(b"something", 0).expect("written");
    let start = Instant::now();
    let done = file.sync_data();
    Synced {
        took_us: u64::try_from(start.elapsed().as_micros()).expect("short"),
        errno: done
            .err()
            .and_then(|error| error.raw_os_error())
            .unwrap_or(0),
    }
}

extern "C" fn ignore(_: libc::c_int) {}

/// The process behind the gate, not a test.
#[test]
#[ignore = "the process behind the gate, not a test"]
fn syncer() {
    let Some(path) = std::env::var_os("SYNCER_FILE") else {
        return;
    };
    let action = SigAction::new(
        SigHandler::Handler(ignore),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.expect("a handler");
    let file = File::create(path).expect("a file");
    let start = Instant::now();
    println!("\nthread {}", gettid());
    while start.elapsed() < Duration::from_secs(60) {
        let Synced { took_us, errno } = sync_once(&file);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "synced {took_us} {errno}").expect("the test listens");
        drop(stdout);
        thread::sleep(Duration::from_millis(1));
    }
}
