//! The sandbox from outside: real namespaces, real hosts, and nothing left of them however they end.
//!
//! Every stage of a sandbox, and every process of the self-test in it, executes the same file. So each
//! test runs a copy of the binary of its own, and whatever executes that copy is a part of its sandbox.
//! As root the tests run twice, the second time as an ordinary user. Where the machine allows no
//! namespaces they are skipped, with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// How long a sandbox may take to vanish after a SIGKILL on this (shared, slow) machine.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// Kills a part and a user.
const KILLS: u32 = 20;

/// A copy of the binary for one test and one user.
struct Bench {
    _folder: tempfile::TempDir,
    binary: PathBuf,
    as_nobody: bool,
}

/// A self-test under way.
struct Running {
    launcher: Child,
    output: BufReader<ChildStdout>,
}

impl Bench {
    /// One bench a user that this machine can test; prints why one is left out.
    fn all() -> Vec<Self> {
        let users: &[bool] = if geteuid().is_root() {
            &[false, true]
        } else {
            &[false]
        };
        users
            .iter()
            .filter_map(|&as_nobody| Self::new(as_nobody))
            .collect()
    }

    fn new(as_nobody: bool) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let binary = folder.path().join("fencepost");
        // By another process: while this one writes, a test beside it may fork and keep the file busy.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_fencepost"))
            .arg(&binary)
            .status()
            .unwrap();
        assert!(copied.success());
        let bench = Self {
            _folder: folder,
            binary,
            as_nobody,
        };
        let probe = bench.command("1", "0").output();
        match probe {
            Ok(probe) if probe.status.success() => Some(bench),
            Ok(probe) => {
                let why = String::from_utf8_lossy(&probe.stderr);
                // A refusal of the kernel is the machine's affair; anything else is ours.
                assert!(
                    why.contains("forbids") || why.contains("limit on namespaces"),
                    "{why}"
                );
                eprintln!("SKIPPED ({}): {why}", bench.user());
                None
            }
            Err(e) => {
                assert!(as_nobody && e.kind() == std::io::ErrorKind::NotFound, "{e}");
                eprintln!(
                    "SKIPPED ({}): setpriv is not installed (package util-linux)",
                    bench.user()
                );
                None
            }
        }
    }

    fn user(&self) -> &'static str {
        if self.as_nobody {
            "as an ordinary user"
        } else {
            "as the user of the tests"
        }
    }

    fn command(&self, hosts: &str, hold_ms: &str) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&self.binary);
            command
        } else {
            Command::new(&self.binary)
        };
        command
            .args(["sandbox-selftest", "run", hosts, hold_ms])
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    /// Starts a self-test that stays after its checks.
    fn start(&self, hosts: &str) -> Running {
        let mut launcher = self
            .command(hosts, "60000")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(launcher.stdout.take().unwrap());
        Running { launcher, output }
    }

    /// PIDs of everything that executes this bench's binary.
    fn processes(&self) -> BTreeSet<i32> {
        all_pids()
            .filter(|pid| {
                fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.binary)
            })
            .collect()
    }

    /// Every process of the machine, whatever it executes, that is in a PID namespace of this sandbox; each
    /// with its start time. (Numbers of namespaces are reused at once, so they cannot be looked for later.)
    fn members(&self) -> Vec<(i32, u64)> {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(std::process::id().cast_signed());
        let namespaces: BTreeSet<_> = self
            .processes()
            .into_iter()
            .map(namespace)
            .filter(|ns| ns.is_some() && *ns != own)
            .collect();
        let inside = all_pids().filter(|&pid| namespaces.contains(&namespace(pid)));
        inside
            .filter_map(|pid| Some((pid, start_of(pid)?)))
            .collect()
    }

    /// The first child of a process that executes this bench's binary.
    fn child_of(&self, parent: i32) -> Option<i32> {
        self.processes()
            .into_iter()
            .find(|&pid| parent_of(pid) == Some(parent))
    }
}

impl Running {
    fn launcher_pid(&self) -> i32 {
        self.launcher.id().cast_signed()
    }

    fn await_line(&mut self, expected: &str) {
        let mut seen = String::new();
        loop {
            let from = seen.len();
            assert!(
                self.output.read_line(&mut seen).unwrap() > 0,
                "{expected:?} never came, only:\n{seen}"
            );
            if seen[from..].trim_end() == expected {
                return;
            }
        }
    }

    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (self.launcher.wait().unwrap(), rest)
    }
}

/// What the whole machine sees of sandboxes, apart from processes.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    links: BTreeSet<String>,
    mounts: BTreeSet<String>,
}

impl Traces {
    fn read() -> Self {
        let links = fs::read_to_string("/proc/net/dev").unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        Self {
            links: links
                .lines()
                .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
                .collect(),
            mounts: mounts
                .lines()
                .filter(|line| line.contains("fencepost"))
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// PIDs of all processes.
fn all_pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Field of /proc/PID/stat, counted from the state as 0.
fn stat_field(pid: i32, index: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?
        .1
        .split(' ')
        .nth(index)?
        .parse()
        .ok()
}

fn parent_of(pid: i32) -> Option<i32> {
    i32::try_from(stat_field(pid, 1)?).ok()
}

/// When a process started: with its PID it names one process for ever. `None` once it is dead, even if
/// the machine's own init takes its time to reap an orphan.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let dead = stat.rsplit_once(") ")?.1.starts_with(['Z', 'X']);
    if dead { None } else { stat_field(pid, 19) }
}

/// cgroup directories of a launcher, wherever a hierarchy is mounted.
fn cgroups_of(launcher: i32) -> Vec<PathBuf> {
    fn search(directory: &Path, start: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(start) {
                    found.push(entry.path());
                }
                search(&entry.path(), start, found);
            }
        }
    }
    let mut found = Vec::new();
    search(
        Path::new("/sys/fs/cgroup"),
        &format!("fencepost-{launcher}-"),
        &mut found,
    );
    found
}

/// Waits until nothing of a sandbox is left, asserts that it is so, and returns how long after `killed`.
/// `members` were in its namespaces before.
fn assert_gone(
    bench: &Bench,
    launcher: i32,
    killed: Instant,
    members: &[(i32, u64)],
    before: &Traces,
) -> Duration {
    loop {
        let alive: Vec<_> = members
            .iter()
            .filter(|(pid, start)| start_of(*pid) == Some(*start))
            .collect();
        let left = (bench.processes(), alive, cgroups_of(launcher));
        if left.0.is_empty() && left.1.is_empty() && left.2.is_empty() {
            break;
        }
        assert!(
            killed.elapsed() < GONE_WITHIN,
            "left after {GONE_WITHIN:?}: {left:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = killed.elapsed();
    assert_eq!(Traces::read(), *before);
    took
}

#[test]
fn every_promise_holds() {
    for bench in Bench::all() {
        for network in ["switch", "bridge"] {
            let before = Traces::read();
            let output = bench.command("5", "0").arg(network).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            eprintln!("{}, {network}:\n{text}", bench.user());
            assert!(
                output.status.success(),
                "{text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(bench.processes().is_empty());
            assert_eq!(Traces::read(), before);
        }
    }
}

#[test]
fn an_interrupt_lets_the_controller_heal() {
    for bench in Bench::all() {
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let before = Traces::read();
            let mut running = bench.start("2");
            running.await_line("ready");
            let members = bench.members();
            assert!(
                members.len() >= 8,
                "init, controller, and 2 hosts of 3: {members:?}"
            );
            let launcher = running.launcher_pid();
            let killed = Instant::now();
            kill(Pid::from_raw(launcher), signal).unwrap();
            let (status, rest) = running.end();
            assert_eq!(status.code(), Some(130), "{rest}");
            assert!(rest.starts_with("healed\n"), "{rest}");
            assert_gone(&bench, launcher, killed, &members, &before);
        }
    }
}

/// Kills the process that `victim` finds at moments spread over the whole start and the checks.
fn kill_at_many_moments(what: &str, victim: impl Fn(&Bench, i32) -> Option<i32>) {
    for bench in Bench::all() {
        let whole = Instant::now();
        let mut first = bench.start("5");
        first.await_line("ready");
        let life = whole.elapsed();
        kill(Pid::from_raw(first.launcher_pid()), Signal::SIGTERM).unwrap();
        first.end();
        let mut times = Vec::new();
        for number in 0..KILLS {
            let before = Traces::read();
            let running = bench.start("5");
            let launcher = running.launcher_pid();
            std::thread::sleep(life * number / KILLS);
            let pid = loop {
                match victim(&bench, launcher) {
                    Some(pid) => break pid,
                    None => std::thread::sleep(Duration::from_micros(200)),
                }
            };
            let members = bench.members();
            let killed = Instant::now();
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            // Ends when every process that holds the launcher's output has ended.
            let (status, rest) = running.end();
            assert!(!status.success(), "killed its {what}, but {status}: {rest}");
            times.push(assert_gone(&bench, launcher, killed, &members, &before));
        }
        times.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        eprintln!(
            "kill -9 of the {what} {}, {KILLS} times over {:.0} ms: all gone {:.1} ms later (median), {:.1} ms \
             (longest)",
            bench.user(),
            ms(life),
            ms(times[times.len() / 2]),
            ms(times[times.len() - 1]),
        );
    }
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed() {
    kill_at_many_moments("launcher", |bench, launcher| {
        bench.processes().contains(&launcher).then_some(launcher)
    });
}

#[test]
fn nothing_is_left_when_the_init_is_killed() {
    kill_at_many_moments("init", |bench, launcher| bench.child_of(launcher));
}

#[test]
fn nothing_is_left_when_the_controller_is_killed() {
    kill_at_many_moments("controller", |bench, launcher| {
        bench.child_of(bench.child_of(launcher)?)
    });
}
