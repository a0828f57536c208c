//! `power-loss` on a real process that writes to a disk that can forget, and what can go wrong with it.
//!
//! Where FUSE cannot be had the tests are skipped, with the reason. That peers hear nothing is tested where
//! there is a network: by the sandbox's self-test.

mod support;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nemesis::fault::{FaultError, InForce, Request, find};
use nemesis::mechanism::undo_fs::UndoFs;
use nemesis::{HostControl, Params};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use support::{GroupWorld, group_members, now, wait_for};

/// Writes two lines and syncs the first; at its start it says what it found.
const WRITER: &str = "cat log >>../found 2>/dev/null; echo synced >log; sync log . ; echo unsynced >>log; \
    echo . >>../ready; sleep 60";

/// A host whose application keeps its data on a disk that can forget.
struct PoweredHost {
    disk: Option<UndoFs>,
    folder: tempfile::TempDir,
    child: Mutex<Child>,
    lit: AtomicBool,
    stays_dark: AtomicBool,
}

impl PoweredHost {
    fn start() -> Option<Arc<Self>> {
        let folder = tempfile::tempdir().expect("a folder");
        let point = folder.path().join("mnt");
        std::fs::create_dir(&point).expect("a folder");
        let disk = match UndoFs::mount(&folder.path().join("backing"), &point) {
            Ok(disk) => disk,
            Err(why) => {
                println!("SKIPPED: {why}");
                return None;
            }
        };
        let host = Arc::new(Self {
            child: Mutex::new(launch(&point)),
            disk: Some(disk),
            folder,
            lit: AtomicBool::new(true),
            stays_dark: AtomicBool::new(false),
        });
        host.wait_ready(1);
        Some(host)
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// Waits until the application has come so far so often.
    fn wait_ready(&self, times: usize) {
        let ready = self.folder.path().join("ready");
        wait_for("the writer", || {
            std::fs::read_to_string(&ready).is_ok_and(|text| text.lines().count() == times)
        });
    }

    /// What the application found when it was started again.
    fn found(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("found")).unwrap_or_default()
    }

    fn group(&self) -> Pid {
        let child = self.child.lock().expect("no panic");
        Pid::from_raw(i32::try_from(child.id()).expect("a number"))
    }
}

fn launch(point: &Path) -> Child {
    Command::new("sh")
        .args(["-c", WRITER])
        .current_dir(point)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh starts")
}

impl HostControl for PoweredHost {
    fn name(&self) -> &str {
        "n1"
    }

    fn tree(&self) -> Vec<i32> {
        group_members(self.group().as_raw())
    }

    fn signal_all(&self, signo: i32) -> io::Result<()> {
        Ok(killpg(self.group(), Signal::try_from(signo)?)?)
    }

    fn kill_all(&self) -> io::Result<()> {
        self.signal_all(libc::SIGKILL)
    }

    fn restart(&self) -> io::Result<()> {
        assert!(
            self.lit.load(Ordering::SeqCst),
            "nothing starts without power"
        );
        *self.child.lock().expect("no panic") = launch(&self.point());
        Ok(())
    }

    fn power_off(&self) -> io::Result<usize> {
        self.lit.store(false, Ordering::SeqCst);
        self.kill_all()?;
        self.child.lock().expect("no panic").wait()?;
        wait_for("its end", || self.tree().is_empty());
        Ok(0)
    }

    fn power_on(&self) -> io::Result<()> {
        if self.stays_dark.load(Ordering::SeqCst) {
            return Err(io::Error::other("the fuse blew"));
        }
        self.lit.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn undo_fs(&self) -> Option<&UndoFs> {
        self.disk.as_ref()
    }

    fn cgroup(&self) -> Option<&Path> {
        None
    }
}

impl Drop for PoweredHost {
    fn drop(&mut self) {
        let _ = self.kill_all();
        let _ = self.child.lock().expect("no panic").wait();
    }
}

fn inject(host: &Arc<PoweredHost>) -> Result<Box<dyn InForce>, FaultError> {
    let fault = (find("power-loss").expect("registered").build)();
    let request = Request {
        asked_ns: None,
        now,
        params: &Params::default(),
        pick: 0,
        world: &GroupWorld(Vec::new()),
    };
    fault.inject(&[Arc::clone(host) as Arc<dyn HostControl>], &request)
}

#[test]
fn what_was_synced_is_found_again_and_nothing_else() {
    let Some(host) = PoweredHost::start() else {
        return;
    };
    let mut dark = inject(&host).expect("it goes dark");
    assert!(host.tree().is_empty());
    let receipt = dark.heal().expect("it is lit again");
    println!("{}", receipt.words);
    assert!(receipt.proven, "{}", receipt.words);
    assert!(
        receipt.words.contains("9 unsynced bytes in 1 file"),
        "{}",
        receipt.words
    );
    host.wait_ready(2);
    assert_eq!(host.found(), "synced\n");
}

#[test]
fn dropping_it_gives_the_power_back() {
    let Some(host) = PoweredHost::start() else {
        return;
    };
    drop(inject(&host).expect("it goes dark"));
    host.wait_ready(2);
    assert_eq!(host.found(), "synced\n");
}

#[test]
fn power_that_does_not_come_back_is_a_failure_in_words() {
    let Some(host) = PoweredHost::start() else {
        return;
    };
    let mut dark = inject(&host).expect("it goes dark");
    host.stays_dark.store(true, Ordering::SeqCst);
    let error = dark.heal().expect_err("it stays dark").to_string();
    assert!(
        error.contains("n1: healing failed") && error.contains("the fuse blew"),
        "{error}"
    );
}

#[test]
fn whatever_runs_without_power_disproves_it() {
    let Some(host) = PoweredHost::start() else {
        return;
    };
    let mut dark = inject(&host).expect("it goes dark");
    host.lit.store(true, Ordering::SeqCst);
    host.restart().expect("somebody starts it");
    let error = dark.check().expect_err("it runs").to_string();
    assert!(error.contains("although there is no power"), "{error}");
    host.kill_all().expect("it lives");
    host.child.lock().expect("no panic").wait().expect("ours");
    dark.heal().expect("it is lit again");
}

#[test]
fn a_host_with_another_disk_is_refused() {
    let Some(mut host) = PoweredHost::start() else {
        return;
    };
    let disk = Arc::get_mut(&mut host).expect("only ours").disk.take();
    let error = inject(&host).err().expect("refused").to_string();
    assert!(error.contains("another disk"), "{error}");
    assert!(!host.tree().is_empty(), "it was not touched");
    drop(host);
    drop(disk);
}
