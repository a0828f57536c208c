//! `memory` on a process that reads a mapped file again and again, and on one whose heap grows; and what can
//! go wrong with it.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::mechanism::memory;
use nemesis::{FaultPlan, HostControl, Lasts, ParamValue, Params, Target, Trigger};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{GroupWorld, MS, now, sleep_ms, wait_for};

/// How a round of the helper uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It reads a file that it maps, again and again.
    File,
    /// It takes memory in steps and gives it back.
    Heap,
}

/// Bytes that a round goes through: far more than the room that the tests leave.
const ROUND: usize = 32 << 20;
const PAGE: usize = 4096;

/// A host whose application counts its steps aloud.
struct Eater {
    child: std::sync::Mutex<Child>,
    pid: i32,
    steps: Arc<AtomicU64>,
}

impl Eater {
    fn start(how: Use, file: &Path) -> Arc<Self> {
        // A copy, since the kernel leaves pages alone that we map too.
        let program = file.with_file_name("eater");
        let copied = Command::new("cp")
            .arg(std::env::current_exe().expect("we run"))
            .arg(&program)
            .status();
        assert!(copied.expect("cp starts").success());
        let synced = Command::new("sync").arg(&program).status();
        assert!(synced.expect("sync starts").success());
        let mut child = Command::new(&program)
            .args(["eater", "--exact", "--ignored", "--nocapture"])
            .env("EATER_USES", format!("{how:?}"))
            .env("EATER_FILE", file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = i32::try_from(child.id()).expect("a process number");
        let stdout = child.stdout.take().expect("piped");
        let steps = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&steps);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line == "step" {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let eater = Arc::new(Self {
            child: std::sync::Mutex::new(child),
            pid,
            steps,
        });
        wait_for("some steps", || eater.steps() > 20);
        eater
    }

    fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// The steps that it makes within some milliseconds.
    fn steps_within(&self, within_ms: u64) -> u64 {
        let before = self.steps();
        sleep_ms(within_ms);
        self.steps() - before
    }

    fn cgroups(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).expect("it lives")
    }
}

impl HostControl for Eater {
    fn name(&self) -> &str {
        "n1"
    }

    fn tree(&self) -> Vec<i32> {
        vec![self.pid]
    }

    fn signal_all(&self, signo: i32) -> std::io::Result<()> {
        let signal = Signal::try_from(signo)?;
        Ok(kill(Pid::from_raw(self.pid), signal)?)
    }

    fn kill_all(&self) -> std::io::Result<()> {
        self.signal_all(Signal::SIGKILL as i32)
    }

    fn restart(&self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn cgroup(&self) -> Option<&Path> {
        None
    }
}

impl Drop for Eater {
    fn drop(&mut self) {
        let child = self.child.get_mut().expect("no panic");
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The application of the tests' host. It ends by itself within a minute.
#[test]
#[ignore = "the application of a test host, not a test"]
fn eater() {
    let Some(how) = std::env::var_os("EATER_USES") else {
        return;
    };
    let end_ns = now() + 60_000 * MS;
    let step = || {
        let mut out = std::io::stdout();
        let _ = out.write_all(b"\nstep\n").and_then(|()| out.flush());
        sleep_ms(1);
    };
    let mapped = map(Path::new(
        &std::env::var_os("EATER_FILE").expect("set with the other"),
    ));
    while now() < end_ns {
        if how == "Heap" {
            let mut taken = Vec::new();
            for _ in 0..ROUND / (64 * PAGE) {
                taken.push(std::hint::black_box(vec![1_u8; 64 * PAGE]));
                step();
            }
        } else {
            for pages in mapped.chunks(64 * PAGE) {
                let first = pages.iter().step_by(PAGE).map(|byte| u64::from(*byte));
                std::hint::black_box(first.sum::<u64>());
                step();
            }
        }
    }
}

/// A file of one round's size, mapped for as long as we live.
#[allow(unsafe_code)]
fn map(path: &Path) -> &'static [u8] {
    let file = File::open(path).expect("the test made it");
    // SAFETY: a new mapping, of a file that nobody changes or shortens while this process lives; it is never
    // unmapped, so the slice stays valid.
    unsafe {
        let address = libc::mmap(
            std::ptr::null_mut(),
            ROUND,
            libc::PROT_READ,
            libc::MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
        );
        assert_ne!(address, libc::MAP_FAILED);
        std::slice::from_raw_parts(address.cast::<u8>(), ROUND)
    }
}

fn params(share: f64) -> Params {
    Params([("share".to_owned(), ParamValue::Share(share))].into())
}

fn inject(host: &Arc<Eater>, share: f64) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find("memory").expect("registered").build)();
    let request = Request {
        asked_ns: None,
        now,
        params: &params(share),
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    fault.inject(&[Arc::clone(host) as Arc<dyn HostControl>], &request)
}

/// Whether this machine lets us do it to a host without a cgroup v2; says why not.
fn usable() -> bool {
    let found = nemesis::mechanism::probe::memory_limit();
    if !found.usable {
        println!("SKIPPED: {}", found.detail);
    }
    found.usable
}

/// A file of one round's size, in a directory that is removed with what is returned.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7_u8; ROUND]).expect("written");
    File::open(&path)
        .and_then(|file| file.sync_all())
        .expect("synced");
    (folder, path)
}

#[test]
fn a_heap_that_grows_stands_still_and_goes_on_afterwards() {
    if !usable() {
        return;
    }
    let (_folder, path) = file();
    let eater = Eater::start(Use::Heap, &path);
    let (home, freely) = (eater.cgroups(), eater.steps_within(500));
    let mut pressed = inject(&eater, 0.1).expect("it presses");
    assert!(eater.cgroups().contains("fencepost-memory-"));
    sleep_ms(300);
    let meanwhile = eater.steps_within(500);
    pressed.check().expect("still in force");
    let receipt = pressed.heal().expect("it goes on");
    println!("{freely} steps, {meanwhile} meanwhile: {}", receipt.words);
    assert!(receipt.proven, "{}", receipt.words);
    assert!(meanwhile * 4 < freely, "{meanwhile} of {freely}");
    assert_eq!(eater.cgroups(), home);
    wait_for("more steps", || eater.steps_within(500) > 2 * meanwhile);
}

#[test]
fn a_mapped_file_is_read_from_the_disk_again_and_again() {
    if !usable() {
        return;
    }
    let (_folder, path) = file();
    let eater = Eater::start(Use::File, &path);
    let (home, freely) = (eater.cgroups(), eater.steps_within(500));
    let mut pressed = inject(&eater, 0.1).expect("it presses");
    let before = eater.steps();
    let meanwhile = eater.steps_within(500);
    wait_for("a step", || eater.steps() > before);
    let receipt = pressed.heal().expect("it goes on");
    println!("{freely} steps, {meanwhile} meanwhile: {}", receipt.words);
    assert!(receipt.proven, "{}", receipt.words);
    assert!(
        !receipt.words.contains("for a page 0 times"),
        "{}",
        receipt.words
    );
    assert_eq!(eater.cgroups(), home);
    let before = eater.steps();
    wait_for("more steps", || eater.steps() > before + 20);
}

#[test]
fn dropping_it_brings_the_target_back_and_a_dead_one_is_a_failure_in_words() {
    if !usable() {
        return;
    }
    let (_folder, path) = file();
    let eater = Eater::start(Use::Heap, &path);
    let home = eater.cgroups();
    drop(inject(&eater, 0.1).expect("it presses"));
    assert_eq!(eater.cgroups(), home);
    let mut pressed = inject(&eater, 0.1).expect("it presses");
    sleep_ms(300);
    // Also one that waits for memory can be killed.
    eater.kill_all().expect("it lives");
    wait_for("its end", || {
        let mut child = eater.child.lock().expect("no panic");
        child.try_wait().expect("ours").is_some()
    });
    let error = pressed.heal().expect_err("nothing is proven").to_string();
    assert!(error.contains("n1: ") && error.contains("died"), "{error}");
    let error = inject(&eater, 0.1).err().expect("nothing runs");
    assert!(matches!(error, FaultError::NothingRuns { .. }), "{error}");
}

#[test]
fn a_cgroup_in_use_is_no_leftover() {
    if !usable() {
        return;
    }
    let (_folder, path) = file();
    let eater = Eater::start(Use::Heap, &path);
    let mut pressed = inject(&eater, 0.1).expect("it presses");
    memory::sweep();
    pressed.check().expect("still in force");
    pressed.heal().expect("it goes on");
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    let plan = |share| FaultPlan {
        kind: "memory".to_owned(),
        target: Target::Leader,
        trigger: Trigger::At { at_ns: 0 },
        lasts: Some(Lasts::Fixed { ns: MS }),
        params: params(share),
    };
    assert!(plan(0.5).check(1, MS).is_ok());
    for share in [0.0, 1.0] {
        let error = plan(share).check(1, MS).expect_err("no share");
        assert!(error.to_string().contains("`share` between"), "{error}");
    }
    let error = plan(1.5).check(1, MS).expect_err("no share").to_string();
    assert!(error.contains("from 0 to 1"), "{error}");
}
