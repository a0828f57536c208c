//! Runs that are ended from outside: interrupted, or killed without warning.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, collect, scenario, variable};

/// How long everything may take to vanish after a SIGKILL on a slow machine.
const GONE_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn an_interrupted_run_heals_stores_and_exits_130() {
    for bench in Bench::sandboxed() {
        let file = scenario("builtin/bugs-are-caught.toml");
        let run = bench.start(&[
            "run",
            &file,
            "--seed",
            "2",
            "--set",
            "workload.duration=60s",
        ]);
        std::thread::sleep(Duration::from_secs(3));
        kill(
            Pid::from_raw(i32::try_from(run.id()).unwrap()),
            Signal::SIGINT,
        )
        .unwrap();
        let asked = Instant::now();
        let done = collect(run).expect(130).says("interrupted");
        assert!(
            asked.elapsed() < Duration::from_secs(15),
            "it took {:?}",
            asked.elapsed()
        );
        assert!(
            done.stdout.contains("the run was interrupted"),
            "{}",
            done.stdout
        );
        let check = bench.fencepost(&["check", "results/latest"]).expect(4);
        assert!(check.stdout.contains("byte for byte"), "{}", check.stdout);
        assert!(bench.trial("correct").count("terms") > 0);
        assert_eq!(bench.processes(), Vec::<i32>::new());
    }
}

#[test]
fn a_killed_run_leaves_nothing_and_its_history_checks() {
    for bench in Bench::sandboxed() {
        kill_and_look(&bench, 3);
    }
}

/// `FENCEPOST_KILLS=50 cargo test -p harness --test runs -- --ignored killed_many_times`
#[test]
#[ignore = "takes minutes: the same as a_killed_run_leaves_nothing_and_its_history_checks, 50 times"]
fn a_run_killed_many_times_leaves_nothing() {
    for bench in Bench::sandboxed() {
        kill_and_look(&bench, variable("FENCEPOST_KILLS", 50));
    }
}

/// Kills the launcher (or, each third time, the controller) at moments spread over a run.
fn kill_and_look(bench: &Bench, kills: u32) {
    let Some(binary) = bench.etcd("3.5.16") else {
        return;
    };
    let mut checked = 0;
    for round in 0..kills {
        let before = Leftovers::now();
        let run = bench.start(&[
            "run",
            &scenario("quickstart.toml"),
            "--seed",
            "1",
            "--arm",
            "unfenced",
            "--binary",
            &binary,
        ]);
        // Moments from 0.3 s to 7 s, spread without repeating.
        std::thread::sleep(Duration::from_millis(300 + u64::from(round * 2711 % 6700)));
        let launcher = i32::try_from(run.id()).unwrap();
        let victim = if round % 3 == 2 {
            controller(bench, launcher).unwrap_or(launcher)
        } else {
            launcher
        };
        kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
        let killed = Instant::now();
        let _ = collect(run);
        while !(bench.processes().is_empty() && before.is_all()) {
            let left = (bench.processes(), Leftovers::now());
            assert!(
                killed.elapsed() < GONE_WITHIN,
                "round {round}: left {left:?}, before {before:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        println!(
            "round {round}: gone {:.0} ms after the kill",
            killed.elapsed().as_secs_f64() * 1e3
        );
        let trial = bench.latest().join("unfenced/trial-1");
        if trial.join("history.jsonl.zst").exists() {
            let check = bench.fencepost(&["check", &trial.display().to_string()]);
            // Killed before the first flush there is nothing but an empty file.
            assert!(
                matches!(check.code, Some(0 | 1 | 4)),
                "round {round}: {check:?}"
            );
            checked += u32::from(check.stdout.contains("terms"));
        }
    }
    println!(
        "{kills} kills {}: nothing left, {checked} histories had something to check",
        bench.user()
    );
    assert!(checked > 0, "no kill came late enough to leave a history");
}

/// The controller's PID: the child of the sandbox init, which is the launcher's only child.
fn controller(bench: &Bench, launcher: i32) -> Option<i32> {
    let says = |pid: &i32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split('\0').nth(1) == Some("controller")
    };
    bench
        .processes()
        .into_iter()
        .filter(|pid| *pid != launcher)
        .find(says)
}

/// What a run could leave in the kernel: network links, mounts, cgroups, namespaces.
#[derive(Debug)]
pub(crate) struct Leftovers {
    links: usize,
    mounts: usize,
    cgroups: Vec<PathBuf>,
}

impl Leftovers {
    pub(crate) fn now() -> Self {
        let lines = |path: &str| std::fs::read_to_string(path).unwrap().lines().count();
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let folders = roots
            .iter()
            .filter_map(|root| std::fs::read_dir(root).ok())
            .flatten()
            .filter_map(Result::ok);
        let ours = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("fencepost-"))
        };
        // A cgroup of another test's live run is not a leftover: its name begins with the launcher's PID.
        let dead = |path: &PathBuf| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let pid = name.split('-').nth(1).unwrap_or_default().to_owned();
            !PathBuf::from(format!("/proc/{pid}")).exists()
        };
        let cgroups = folders
            .map(|entry| entry.path())
            .filter(ours)
            .filter(dead)
            .collect();
        Self {
            links: lines("/proc/net/dev"),
            mounts: lines("/proc/self/mountinfo"),
            cgroups,
        }
    }

    /// Whether nothing has been added since.
    pub(crate) fn is_all(&self) -> bool {
        let now = Self::now();
        now.links <= self.links && now.mounts <= self.mounts && now.cgroups.is_empty()
    }
}
