//! Real processes for the tests: hosts made of a process group of our own, and a world of such hosts.
//!
//! Each host is a shell script that ends by itself within two minutes, should the tests be killed.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use nemesis::mechanism::cgroup::OwnCgroup;
use nemesis::mechanism::proof::Census;
use nemesis::{HostControl, Notice, Target, World};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Three processes that sleep: a shell and its two children.
pub(crate) const SLEEPERS: &str = "sleep 120 & sleep 120 & echo ready; wait";
/// One process that never sleeps.
pub(crate) const SPINNER: &str = "ulimit -t 60; echo ready; while :; do :; done";
/// One process with [`HELPER_THREADS`] threads that report each gap in their own running.
pub(crate) const HELPER: &str =
    "exec \"$HELPER_EXE\" support::helper --exact --ignored --nocapture";

/// Threads of the helper: the first half spins, the second half sleeps a little between two looks.
pub(crate) const HELPER_THREADS: usize = 6;
/// The helper reports gaps longer than this.
pub(crate) const HELPER_GAP_NS: u64 = 30_000_000;

pub(crate) const MS: u64 = 1_000_000;

/// Truth time for the tests.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("the clock is there");
    u64::try_from(time.tv_sec()).expect("after boot") * 1_000_000_000
        + u64::try_from(time.tv_nsec()).expect("not negative")
}

pub(crate) fn sleep_ms(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

/// How a test host is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Freezer,
    Sigstop,
}

/// Both ways, or only the one that works here, with the reason printed.
pub(crate) fn both_ways() -> Vec<By> {
    let freezer = nemesis::mechanism::probe::freezer();
    if freezer.usable {
        return vec![By::Freezer, By::Sigstop];
    }
    println!(
        "SKIPPED the freezer's half of this test: {}",
        freezer.detail
    );
    vec![By::Sigstop]
}

/// A host whose application is a process group.
pub(crate) struct GroupHost {
    name: String,
    script: &'static str,
    cgroup: Option<OwnCgroup>,
    child: Mutex<Child>,
    /// Lines that the helper printed.
    lines: Mutex<Receiver<String>>,
    pub(crate) restarts: AtomicU32,
    /// What a restart answers instead of doing it.
    pub(crate) restart_error: Mutex<Option<io::Error>>,
    /// Makes the next look at the tree panic, once.
    pub(crate) panics: AtomicBool,
    /// Signals are swallowed.
    pub(crate) deaf: AtomicBool,
    /// What it says when it is asked whether it does its work.
    pub(crate) well: Mutex<Option<bool>>,
}

impl GroupHost {
    /// Starts a host, and waits until it has as many processes as its script makes.
    pub(crate) fn start(name: &str, script: &'static str, by: By) -> Arc<Self> {
        let cgroup = (by == By::Freezer).then(|| {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("nemesis-test-{}-{number}", std::process::id());
            OwnCgroup::create(&name).expect("the probe has just made one")
        });
        let (child, lines) = spawn(script, cgroup.as_ref());
        let host = Arc::new(Self {
            name: name.to_owned(),
            script,
            cgroup,
            child: Mutex::new(child),
            lines: Mutex::new(lines),
            restarts: AtomicU32::new(0),
            restart_error: Mutex::new(None),
            panics: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            well: Mutex::new(None),
        });
        host.wait_ready();
        host
    }

    fn wait_ready(&self) {
        let lines = self.lines.lock().expect("no panic");
        loop {
            let line = lines.recv_timeout(Duration::from_secs(10));
            if line.expect("it says that it is ready") == "ready" {
                break;
            }
        }
        drop(lines);
        let (processes, threads) = match self.script {
            SLEEPERS => (3, 3),
            SPINNER => (1, 1),
            // The test thread, the main thread and those of the helper.
            _ => (1, HELPER_THREADS + 2),
        };
        wait_for("the host's processes", || {
            let census = self.census();
            census.processes() == processes && census.threads() == threads
        });
    }

    pub(crate) fn group(&self) -> Pid {
        let child = self.child.lock().expect("no panic");
        Pid::from_raw(i32::try_from(child.id()).expect("a process number"))
    }

    pub(crate) fn census(&self) -> Census {
        Census::take(&group_members(self.group().as_raw()))
    }

    /// CPU time used within some milliseconds.
    pub(crate) fn cpu_used_ns(&self, within_ms: u64) -> u64 {
        let before = self.census();
        sleep_ms(within_ms);
        self.census().cpu_since_ns(&before)
    }

    /// The helper's next gap as thread, start and end.
    pub(crate) fn next_gap(&self, patience_ms: u64) -> Option<(usize, u64, u64)> {
        let lines = self.lines.lock().expect("no panic");
        loop {
            let line = lines
                .recv_timeout(Duration::from_millis(patience_ms))
                .ok()?;
            if let Some(gap) = line.strip_prefix("gap ") {
                let mut numbers = gap.split(' ').map(|one| one.parse().expect("a number"));
                let mut next = || numbers.next().expect("three numbers");
                let thread = usize::try_from(next()).expect("small");
                return Some((thread, next(), next()));
            }
        }
    }
}

/// Starts a script as a process group of its own, in that cgroup.
fn spawn(script: &str, cgroup: Option<&OwnCgroup>) -> (Child, Receiver<String>) {
    let enter = "test -z \"$CGROUP\" || echo $$ >\"$CGROUP/cgroup.procs\"; ";
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("{enter}{script}"))
        .env("CGROUP", cgroup.map_or(Path::new(""), OwnCgroup::path))
        .env("HELPER_EXE", std::env::current_exe().expect("we run"))
        .env("NEMESIS_HELPER", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("sh starts");
    let stdout = child.stdout.take().expect("piped");
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

/// The living processes of a group.
pub(crate) fn group_members(group: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return false;
        };
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        fields.first() != Some(&"Z") && fields.get(2) == Some(&group.to_string().as_str())
    })
    .collect()
}

impl HostControl for GroupHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn tree(&self) -> Vec<i32> {
        if self.panics.swap(false, Ordering::SeqCst) {
            panic!("the tree fell over");
        }
        group_members(self.group().as_raw())
    }

    fn signal_all(&self, signo: i32) -> io::Result<()> {
        if self.deaf.load(Ordering::SeqCst) {
            return Ok(());
        }
        Ok(killpg(self.group(), Signal::try_from(signo)?)?)
    }

    fn kill_all(&self) -> io::Result<()> {
        self.signal_all(libc::SIGKILL)
    }

    fn restart(&self) -> io::Result<()> {
        if let Some(error) = self.restart_error.lock().expect("no panic").take() {
            return Err(error);
        }
        let mut child = self.child.lock().expect("no panic");
        child.wait()?;
        let (new, lines) = spawn(self.script, self.cgroup.as_ref());
        *child = new;
        *self.lines.lock().expect("no panic") = lines;
        drop(child);
        self.restarts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn is_well(&self) -> Option<bool> {
        *self.well.lock().expect("no panic")
    }

    fn cgroup(&self) -> Option<&Path> {
        self.cgroup.as_ref().map(OwnCgroup::path)
    }
}

impl Drop for GroupHost {
    fn drop(&mut self) {
        match killpg(self.group(), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => eprintln!("killing {}: {error}", self.name),
        }
        let _ = self.child.lock().expect("no panic").wait();
    }
}

/// A world of such hosts. `holder` is the host of the event, `all` is all, `one` and `client` are
/// picked, a name is that host, and `leader` is a bug.
pub(crate) struct GroupWorld(pub(crate) Vec<Arc<GroupHost>>);

impl World for GroupWorld {
    fn resolve(
        &self,
        target: &Target,
        about: Option<&str>,
        pick: u64,
    ) -> Result<Vec<Arc<dyn HostControl>>, String> {
        let named = |name: &str| {
            let found = self.0.iter().filter(|host| host.name() == name);
            found
                .map(|host| Arc::clone(host) as Arc<dyn HostControl>)
                .collect()
        };
        match target {
            Target::Node(name) | Target::ClientHost(name) => Ok(named(name)),
            Target::Holder => about.map(named).ok_or("nobody holds a lock".to_owned()),
            Target::All | Target::Clients => {
                Ok(self.0.iter().map(|host| Arc::clone(host) as _).collect())
            }
            Target::Leader => panic!("the world is broken"),
            _ => {
                let index = usize::try_from(pick).expect("64 bits") % self.0.len();
                Ok(vec![Arc::clone(&self.0[index]) as _])
            }
        }
    }
}

/// Waits up to ten seconds.
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_there() {
            return;
        }
        sleep_ms(5);
    }
    panic!("{what} did not come within 10 s");
}

/// The next notice, within ten seconds.
pub(crate) fn next(notices: &Receiver<Notice>) -> Notice {
    match notices.recv_timeout(Duration::from_secs(10)) {
        Ok(notice) => notice,
        Err(RecvTimeoutError::Timeout) => panic!("no notice within 10 s"),
        Err(RecvTimeoutError::Disconnected) => panic!("the engine is gone"),
    }
}

/// The application of hosts with the script [`HELPER`]: a test binary that was started again.
#[test]
#[ignore = "the application of a test host, not a test"]
fn helper() {
    if std::env::var_os("NEMESIS_HELPER").is_none() {
        return;
    }
    let end_ns = now() + 60_000 * MS;
    let all_run = Arc::new(Barrier::new(HELPER_THREADS + 1));
    let (gaps, seen): (Sender<(usize, u64, u64)>, _) = channel();
    for thread in 0..HELPER_THREADS {
        let gaps = gaps.clone();
        let all_run = Arc::clone(&all_run);
        thread::spawn(move || {
            let mut last_ns = now();
            all_run.wait();
            while last_ns < end_ns {
                if thread >= HELPER_THREADS / 2 {
                    thread::sleep(Duration::from_micros(300));
                }
                let at_ns = now();
                if at_ns - last_ns > HELPER_GAP_NS {
                    gaps.send((thread, last_ns, at_ns)).expect("we listen");
                }
                last_ns = at_ns;
            }
        });
    }
    all_run.wait();
    // On a line of its own: the test runner has begun one.
    writeln!(io::stdout().lock(), "\nready").expect("the test listens");
    drop(gaps);
    for (thread, start_ns, end_ns) in seen {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "gap {thread} {start_ns} {end_ns}").expect("the test listens");
    }
}
