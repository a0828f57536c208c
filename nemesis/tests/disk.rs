//! `disk` on a real process behind a gate, and everything that can go wrong with it.

mod support;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::mechanism::fsync_gate::{FsyncGate, launch};
use nemesis::{FaultPlan, HostControl, Now, ParamValue, Params, Target, Trigger};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use support::{GroupWorld, MS, group_members, now, sleep_ms, wait_for};

/// Syncs a file for a minute, whatever that comes to.
const SYNCS: &str = "for i in $(seq 3000); do sync -d \"$FILE\" 2>/dev/null; sleep 0.02; done";
/// The same, but ends when a sync fails, as a careful server does.
const CAREFUL: &str = "for i in $(seq 3000); do sync -d \"$FILE\" || exit 1; sleep 0.02; done";
/// Never syncs.
const IDLE: &str = "sleep 60";

/// A host whose application runs behind a gate.
struct GateHost {
    script: &'static str,
    gate: Option<FsyncGate>,
    child: Mutex<Child>,
    file: PathBuf,
    _folder: tempfile::TempDir,
    restarts: AtomicU32,
    /// Restarting fails.
    breaks: AtomicBool,
    excused: AtomicBool,
}

impl GateHost {
    fn start(script: &'static str) -> Arc<Self> {
        Self::with_clock(script, now)
    }

    fn with_clock(script: &'static str, now: Now) -> Arc<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let gate = FsyncGate::new("n1", now);
        let child = launch(&gate, script, &file);
        Arc::new(Self {
            script,
            gate: Some(gate),
            child: Mutex::new(child),
            file,
            _folder: folder,
            restarts: AtomicU32::new(0),
            breaks: AtomicBool::new(false),
            excused: AtomicBool::new(false),
        })
    }

    fn gate(&self) -> &FsyncGate {
        self.gate.as_ref().expect("it has one")
    }

    fn group(&self) -> i32 {
        let child = self.child.lock().expect("no panic");
        i32::try_from(child.id()).expect("a number")
    }

    /// Syncs that reached the gate within some milliseconds.
    fn syncs_within(&self, ms: u64) -> u64 {
        let count = || self.gate().tally().reached.values().sum::<u64>();
        let before = count();
        sleep_ms(ms);
        count() - before
    }
}

fn launch(gate: &FsyncGate, script: &str, file: &Path) -> Child {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env("FILE", file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    launch::spawn(gate, &mut command).expect("a filter can be had everywhere")
}

impl HostControl for GateHost {
    fn name(&self) -> &str {
        "n1"
    }

    fn tree(&self) -> Vec<i32> {
        // What has ended is reaped, as a host's init does.
        let _ = self.child.lock().expect("no panic").try_wait();
        group_members(self.group())
    }

    fn signal_all(&self, signo: i32) -> io::Result<()> {
        Ok(killpg(
            Pid::from_raw(self.group()),
            Signal::try_from(signo)?,
        )?)
    }

    fn kill_all(&self) -> io::Result<()> {
        self.signal_all(libc::SIGKILL)
    }

    fn restart(&self) -> io::Result<()> {
        if self.breaks.load(Ordering::SeqCst) {
            return Err(io::Error::other("no such program"));
        }
        let new = launch(self.gate(), self.script, &self.file);
        *self.child.lock().expect("no panic") = new;
        self.restarts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn excuse_exit(&self, excused: bool) {
        self.excused.store(excused, Ordering::SeqCst);
    }

    fn fsync_gate(&self) -> Option<&FsyncGate> {
        self.gate.as_ref()
    }

    fn cgroup(&self) -> Option<&Path> {
        None
    }
}

impl Drop for GateHost {
    fn drop(&mut self) {
        let _ = self.kill_all();
        let _ = self.child.lock().expect("no panic").wait();
    }
}

fn params(what: &str) -> Params {
    Params([("what".to_owned(), ParamValue::Word(what.to_owned()))].into())
}

fn inject(host: &Arc<GateHost>, what: &str) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find("disk").expect("registered").build)();
    let request = Request {
        asked_ns: None,
        now,
        params: &params(what),
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    fault.inject(&[Arc::clone(host) as Arc<dyn HostControl>], &request)
}

fn wait_held(host: &GateHost) {
    wait_for("a held sync", || host.gate().holding() > 0);
}

#[test]
fn a_hold_is_measured_and_ends_with_the_heal() {
    let host = GateHost::start(SYNCS);
    let mut stuck = inject(&host, "hold").expect("it holds");
    wait_held(&host);
    sleep_ms(300);
    assert_eq!(host.gate().holding(), 1, "one process syncs");
    let receipt = stuck.heal().expect("it lets go");
    println!("{}", receipt.words);
    assert!(receipt.proven, "{}", receipt.words);
    assert!(
        receipt
            .words
            .contains("1 fdatasync reached the gate, 1 held back for 3")
    );
    wait_for("syncs", || host.syncs_within(100) > 0);
}

#[test]
fn a_fault_that_no_sync_ran_into_is_not_proven() {
    let host = GateHost::start(IDLE);
    let mut stuck = inject(&host, "hold").expect("it holds");
    sleep_ms(100);
    let receipt = stuck.heal().expect("it lets go");
    assert!(
        !receipt.proven && receipt.words.contains("NOT PROVEN"),
        "{}",
        receipt.words
    );
}

#[test]
fn dropping_it_opens_the_gate() {
    let host = GateHost::start(SYNCS);
    let stuck = inject(&host, "hold").expect("it holds");
    wait_held(&host);
    drop(stuck);
    assert_eq!(host.gate().holding(), 0);
    wait_for("syncs", || host.syncs_within(100) > 0);
}

#[test]
fn an_application_that_ends_of_an_error_is_started_again() {
    for what in ["eio", "enospc"] {
        let host = GateHost::start(CAREFUL);
        let mut broken = inject(&host, what).expect("it fails");
        assert!(host.excused.load(Ordering::SeqCst));
        wait_for("its end", || host.tree().is_empty());
        let receipt = broken.heal().expect("it is started again");
        println!("{}", receipt.words);
        assert!(receipt.proven && receipt.words.contains("was started again"));
        assert_eq!(host.restarts.load(Ordering::SeqCst), 1);
        assert!(!host.excused.load(Ordering::SeqCst));
        wait_for("syncs", || host.syncs_within(100) > 0);
    }
}

#[test]
fn an_application_that_cannot_be_started_again_is_a_failure_in_words() {
    let host = GateHost::start(CAREFUL);
    host.breaks.store(true, Ordering::SeqCst);
    let mut broken = inject(&host, "eio").expect("it fails");
    wait_for("its end", || host.tree().is_empty());
    let error = broken.heal().expect_err("it stays down").to_string();
    assert!(
        error.contains("could not be started again: no such program"),
        "{error}"
    );
}

#[test]
fn a_target_that_dies_while_its_syncs_are_held_proves_nothing() {
    let host = GateHost::start(SYNCS);
    let mut stuck = inject(&host, "hold").expect("it holds");
    wait_held(&host);
    host.kill_all().expect("it lives");
    wait_for("its end", || host.tree().is_empty());
    let error = stuck.heal().expect_err("it died").to_string();
    assert!(error.contains("died while its disk was faulty"), "{error}");
    assert_eq!(host.restarts.load(Ordering::SeqCst), 0);
}

#[test]
fn a_host_that_is_not_ready_for_it_is_refused() {
    let mut host = GateHost::start(IDLE);
    Arc::get_mut(&mut host).expect("only ours").gate = None;
    let error = inject(&host, "hold").err().expect("refused").to_string();
    assert!(error.contains("without"), "{error}");
    let host = GateHost::start("exit 0");
    wait_for("its end", || host.tree().is_empty());
    let error = inject(&host, "hold").err().expect("refused").to_string();
    assert!(error.contains("expected a running application"), "{error}");
}

/// Makes the supervisor's thread panic.
static BROKEN_CLOCK: AtomicBool = AtomicBool::new(false);

fn fragile_now() -> u64 {
    let thread = std::thread::current();
    let supervises = thread.name().is_some_and(|name| name.starts_with("gate-"));
    let broken = BROKEN_CLOCK.load(Ordering::SeqCst);
    assert!(!(supervises && broken), "the clock broke");
    now()
}

#[test]
fn a_supervisor_that_dies_takes_its_process_with_it_and_says_so() {
    let host = GateHost::with_clock(SYNCS, fragile_now);
    let mut stuck = inject(&host, "hold").expect("it holds");
    wait_held(&host);
    BROKEN_CLOCK.store(true, Ordering::SeqCst);
    // Opening the gate wakes the supervisor, which reads the clock.
    let error = stuck.heal().expect_err("nobody answers").to_string();
    assert!(error.contains("its supervisor ended"), "{error}");
    wait_for("its end", || host.tree().is_empty());
    let error = inject(&host, "hold").err().expect("of no use").to_string();
    assert!(error.contains("expected a running application"), "{error}");
}

#[test]
fn a_delay_and_only_a_slow_disk_go_together() {
    let check = |what: &str, delay_ns: Option<u64>| {
        let mut params = params(what);
        if let Some(ns) = delay_ns {
            let name = "delay".to_owned();
            params.0.insert(name, ParamValue::DurationNs(ns));
        }
        let plan = FaultPlan {
            kind: "disk".to_owned(),
            target: Target::Leader,
            trigger: Trigger::At { at_ns: 0 },
            lasts: None,
            params,
        };
        plan.check(1, MS)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(check("slow", Some(MS)), Ok(()));
    assert_eq!(check("hold", None), Ok(()));
    for (what, delay_ns, words) in [
        ("slow", None, "a `delay` above zero"),
        ("slow", Some(0), "a `delay` above zero"),
        ("lie", Some(MS), "`delay` only beside"),
        ("melt", None, "one of \"hold\""),
    ] {
        let error = check(what, delay_ns).expect_err(what);
        assert!(error.contains(words), "{error}");
    }
}
