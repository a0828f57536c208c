//! What goes wrong in the middle of a run: the switch dies, a heal fails, a client is killed with its lock in
//! hand. Nothing hangs, nothing is left, and the verdict says what it is worth.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use checkers::history::{FaultPhase, Function, History, Outcome};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::bench::{Bench, collect};

const SCENARIO: &str = r#"
title = "accidents"
[cluster]
backend = "BACKEND"
nodes = 1
[workload]
kind = "guarded-set"
lock = "LOCK"
resource = "memory"
clients = 4
workers = 4
ttl = "1s"
hold = "150ms..250ms"
duration = "6s"
acquire_timeout = "2s"
request_timeout = "500ms"
[[fault]]
FAULT
[[arm]]
name = "fault"
expect = { EXPECT }
"#;

fn with(backend: &str, lock: &str, fault: &str, expect: &str) -> String {
    SCENARIO
        .replace("BACKEND", backend)
        .replace("LOCK", lock)
        .replace("FAULT", fault)
        .replace("EXPECT", expect)
}

fn history(bench: &Bench) -> History {
    History::read(&bench.latest().join("fault/trial-1/history.jsonl.zst")).unwrap()
}

#[test]
fn a_client_that_is_killed_with_its_lock_in_hand_comes_back_and_the_lock_passes_on() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"crash\"\ntarget = \"holder\"\nlasts = \"300ms\"\n\
                     when = { on = \"acquired\", after = \"50ms\", at_most = 3, spacing = \"1500ms\" }";
        // A busy machine has time for two of the three.
        let expect =
            "faults_proven = \"> 1\", lost_writes = \"== 0\", overlapping_terms = \"== 0\"";
        let file = bench.write("s.toml", &with("builtin", "builtin", fault, expect));
        bench.fencepost(&["run", &file, "--seed", "5"]).expect(0);
        let history = history(&bench);
        let killed = history
            .faults
            .iter()
            .filter(|fault| fault.phase == FaultPhase::Injected);
        let mut waited = Vec::new();
        for fault in killed {
            let acquired = |after_ns: u64| {
                let mut operations = history.operations.iter();
                operations.find(move |operation| {
                    operation.f == Function::Acquire
                        && operation.outcome == Outcome::Ok
                        && operation.return_ns > after_ns
                })
            };
            // Nobody released it: the next holder had to wait until the lease had run out. There is none if the
            // run ended before.
            if let Some(next) = acquired(fault.at_ns) {
                waited.push((next.return_ns - fault.at_ns) / 1_000_000);
            }
        }
        assert!(waited.len() > 1, "{waited:?} ms");
        assert!(waited.iter().all(|ms| *ms >= 500), "{waited:?} ms");
        assert_eq!(bench.processes(), Vec::<i32>::new());
    }
}

#[test]
fn a_node_that_cannot_be_started_again_makes_the_run_inconclusive_with_the_reason() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let Some(binary) = bench.etcd("3.5.16") else {
        return;
    };
    let fault =
        "kind = \"crash\"\ntarget = \"node:n1\"\nlasts = \"1500ms\"\nwhen = { at = \"1s\" }";
    let text = with("etcd", "etcd-v3lock", fault, "lost_writes = \"== 0\"");
    let file = bench.write("s.toml", &text);
    let run = bench.start(&["run", &file, "--seed", "5", "--binary", &binary]);
    let began = Instant::now();
    let server = PathBuf::from(binary.trim_start_matches("etcd="));
    // The file goes away while the server runs; it is missed when the server is to be started again.
    let recorded = bench.latest().join("fault/trial-1/history.jsonl.zst");
    while !(recorded.exists() && server_runs(&server)) {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no server was started"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::remove_file(&server).unwrap();
    let done = collect(run).expect(4);
    assert!(
        began.elapsed() < Duration::from_secs(90),
        "{:?}",
        began.elapsed()
    );
    assert!(done.stdout.contains("inconclusive"), "{}", done.stdout);
    let failed = history(&bench).faults;
    let failed = failed
        .iter()
        .find(|fault| fault.phase == FaultPhase::Failed)
        .unwrap();
    let says = "could not be started again";
    assert!(failed.receipt.contains(says), "{}", failed.receipt);
    let check = bench.fencepost(&["check", "results/latest"]).expect(4);
    assert!(check.stdout.contains("byte for byte"), "{}", check.stdout);
    assert_eq!(bench.processes(), Vec::<i32>::new());
}

/// Whether a process executes this file.
fn server_runs(server: &std::path::Path) -> bool {
    !crate::bench::processes_of(server).is_empty()
}

#[test]
fn a_switch_that_dies_ends_in_inconclusive_and_nothing_hangs() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let fault = "kind = \"partition\"\ntarget = \"holder\"\nlasts = \"400ms\"\nwhen = { every = \"800ms\" }";
    let text = with("builtin", "builtin", fault, "faults_proven = \"> 0\"");
    let file = bench.write("s.toml", &text);
    let run = bench.start(&["run", &file, "--seed", "5"]);
    let began = Instant::now();
    let switch = loop {
        if let Some(switch) = switch_thread(&bench) {
            break switch;
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no switch was started"
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    // Long enough for the clients to be at work, and for a first fault.
    std::thread::sleep(Duration::from_millis(2500));
    if let Err(why) = replace_what_it_waits_for(switch) {
        eprintln!("skipped: the switch's thread cannot be reached: {why}");
        collect(run);
        return;
    }
    let done = collect(run).expect(4);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    assert!(
        done.stdout.contains("the run could not go on"),
        "{}",
        done.stdout
    );
    let log = fs::read_to_string(bench.latest().join("fault/trial-1/logs/controller.log")).unwrap();
    assert!(
        log.contains("EINVAL") || log.contains("os error 22"),
        "{log}"
    );
    assert!(history(&bench).operations.len() > 3);
    assert_eq!(bench.processes(), Vec::<i32>::new());
}

/// Anything but a set of events to wait for.
#[cfg(target_arch = "x86_64")]
const STANDARD_INPUT: u64 = 0;

/// The thread of the switch of the bench's run.
fn switch_thread(bench: &Bench) -> Option<Pid> {
    let threads = bench.processes().into_iter().flat_map(|pid| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten();
        tasks.filter_map(Result::ok).map(|task| task.path())
    });
    let mut threads = threads.filter(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "switch")
    });
    let name = threads.next()?;
    name.file_name()?.to_str()?.parse().ok().map(Pid::from_raw)
}

/// Puts another file in the place of the one on which a thread waits for events, so that its next wait fails:
/// makes the thread itself call `dup2` by the debugger's interface, then lets it go on.
#[cfg(target_arch = "x86_64")]
fn replace_what_it_waits_for(thread: Pid) -> Result<(), String> {
    let said = |what: &'static str| move |error| format!("{what}: {error}");
    let file = format!("/proc/{thread}/syscall");
    let call = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let mut words = call.split_ascii_whitespace();
    let number = words.next().unwrap_or_default();
    let waits = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    if !waits.iter().any(|wait| wait.to_string() == number) {
        return Err(format!(
            "it does not wait for events, but is in call {number}"
        ));
    }
    let argument = words.next().unwrap_or_default().trim_start_matches("0x");
    let descriptor = u64::from_str_radix(argument, 16).map_err(|error| error.to_string())?;
    ptrace::attach(thread).map_err(said("attach"))?;
    let wait = || waitpid(thread, Some(nix::sys::wait::WaitPidFlag::__WALL));
    wait().map_err(said("wait"))?;
    let registers = ptrace::getregs(thread).map_err(said("getregs"))?;
    let mut replace = registers;
    // Back on the instruction `syscall`, which is two bytes long, with another call in the registers.
    replace.rip -= 2;
    replace.rax = libc::SYS_dup2 as u64;
    replace.orig_rax = u64::MAX;
    replace.rdi = STANDARD_INPUT;
    replace.rsi = descriptor;
    ptrace::setregs(thread, replace).map_err(said("setregs"))?;
    ptrace::step(thread, None).map_err(said("step"))?;
    wait().map_err(said("wait"))?;
    let mut back = registers;
    back.rax = (-i64::from(libc::EINTR)) as u64;
    back.orig_rax = u64::MAX;
    ptrace::setregs(thread, back).map_err(said("setregs"))?;
    ptrace::detach(thread, None).map_err(said("detach"))
}

#[cfg(not(target_arch = "x86_64"))]
fn replace_what_it_waits_for(_: Pid) -> Result<(), String> {
    Err("not on this architecture".to_owned())
}
