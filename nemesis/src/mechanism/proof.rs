//! What the kernel knows about a process tree's threads: their states and the CPU time they used.
//!
//! Two censuses, one after the tree was stopped and one before it goes on, prove that it did not run
//! in between. Read from `/proc` (proc_pid_stat(5); the first field of `schedstat` is the time spent
//! on a CPU in nanoseconds, Documentation/scheduler/sched-stats.rst). Nothing in here acts on a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::sync::OnceLock;

/// Where CPU times were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// `/proc/PID/task/TID/schedstat`, in nanoseconds.
    Schedstat,
    /// User and system time in `/proc/PID/task/TID/stat`, in steps of 10 ms.
    Ticks,
}

impl fmt::Display for CpuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Schedstat => "schedstat",
            Self::Ticks => "stat, in steps of 10 ms",
        })
    }
}

/// A tick of the times in `stat`: Linux shows them to users in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

/// Chooses the source once for this machine: kernels without scheduler statistics lack the file or
/// show zeros, also for ourselves, who have certainly used some CPU time.
fn cpu_source() -> CpuSource {
    static SOURCE: OnceLock<CpuSource> = OnceLock::new();
    *SOURCE.get_or_init(|| match schedstat_ns("/proc/self/schedstat") {
        Some(ns) if ns > 0 => CpuSource::Schedstat,
        _ => CpuSource::Ticks,
    })
}

/// The time on a CPU in a `schedstat` file.
fn schedstat_ns(path: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The fields of a `stat` file that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// One letter, see proc_pid_stat(5).
    state: char,
    /// User and system time in ticks.
    cpu_ticks: u64,
    /// Start time in ticks after boot: with the number, it tells a process from its successor.
    started: u64,
}

impl Stat {
    fn read(path: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }

    /// The name stands in parentheses and may hold any character, so the fields begin after the last
    /// parenthesis; the first there is field 3.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            cpu_ticks: number(14)? + number(15)?,
            started: number(22)?,
        })
    }

    /// True when the thread has exited and only its entry is left.
    fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// One thread at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// State letter, for instance `T` for stopped by a signal and `t` for stopped by a tracer.
    pub state: char,
    /// CPU time used so far.
    pub cpu_ns: u64,
    /// Start time in ticks after boot.
    started: u64,
}

/// All living threads of some processes, at about one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// By process and thread number.
    threads: BTreeMap<(i32, i32), ThreadSample>,
}

impl Census {
    /// Takes a census of these processes. Those that do not exist or have exited are left out.
    #[must_use]
    pub fn take(pids: &[i32]) -> Self {
        let mut threads = BTreeMap::new();
        for &pid in pids {
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
            for tid in tids {
                if let Some(sample) = sample(pid, tid) {
                    threads.insert((pid, tid), sample);
                }
            }
        }
        Self { threads }
    }

    /// Where the CPU times were read.
    #[must_use]
    pub fn cpu_source(&self) -> CpuSource {
        cpu_source()
    }

    /// Number of processes with a living thread.
    #[must_use]
    pub fn processes(&self) -> usize {
        let pids: BTreeSet<i32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        pids.len()
    }

    /// Number of living threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The first thread that no signal and no tracer has stopped, as process, thread, and state.
    #[must_use]
    pub fn first_unstopped(&self) -> Option<(i32, i32, char)> {
        let mut unstopped = self
            .threads
            .iter()
            .filter(|(_, sample)| !is_stopped(sample));
        unstopped
            .next()
            .map(|((pid, tid), sample)| (*pid, *tid, sample.state))
    }

    /// The first thread that is still stopped, as process and thread.
    #[must_use]
    pub fn first_stopped(&self) -> Option<(i32, i32)> {
        let mut stopped = self.threads.iter().filter(|(_, sample)| is_stopped(sample));
        stopped.next().map(|(ids, _)| *ids)
    }

    /// CPU time that the threads used since an earlier census, those born in between included.
    #[must_use]
    pub fn cpu_since_ns(&self, earlier: &Self) -> u64 {
        let used = self.threads.iter().map(|(ids, sample)| {
            let before_ns = earlier.same(ids, sample).map_or(0, |before| before.cpu_ns);
            sample.cpu_ns.saturating_sub(before_ns)
        });
        used.sum()
    }

    /// The processes that had a thread in an earlier census which has gone since. A stopped thread
    /// cannot end on its own: its process was killed.
    #[must_use]
    pub fn died_since(&self, earlier: &Self) -> Vec<i32> {
        let gone = earlier
            .threads
            .iter()
            .filter(|(ids, sample)| self.same(ids, sample).is_none());
        let pids: BTreeSet<i32> = gone.map(|((pid, _), _)| *pid).collect();
        pids.into_iter().collect()
    }

    /// The processes of an earlier census of which no thread is left. One that runs may end threads of its own.
    #[must_use]
    pub fn ended_since(&self, earlier: &Self) -> Vec<i32> {
        let living: BTreeSet<i32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        let pids: BTreeSet<i32> = earlier.threads.keys().map(|(pid, _)| *pid).collect();
        pids.difference(&living).copied().collect()
    }

    /// The entry of the same thread in this census.
    fn same(&self, ids: &(i32, i32), sample: &ThreadSample) -> Option<&ThreadSample> {
        let found = self.threads.get(ids)?;
        (found.started == sample.started).then_some(found)
    }
}

/// True when a signal or a tracer has stopped the thread.
fn is_stopped(sample: &ThreadSample) -> bool {
    matches!(sample.state, 'T' | 't')
}

/// Looks at one thread; `None` when it is gone.
fn sample(pid: i32, tid: i32) -> Option<ThreadSample> {
    let stat = Stat::read(&format!("/proc/{pid}/task/{tid}/stat"))?;
    if stat.is_dead() {
        return None;
    }
    let cpu_ns = match cpu_source() {
        CpuSource::Schedstat => schedstat_ns(&format!("/proc/{pid}/task/{tid}/schedstat"))?,
        CpuSource::Ticks => stat.cpu_ticks * TICK_NS,
    };
    Some(ThreadSample {
        state: stat.state,
        cpu_ns,
        started: stat.started,
    })
}

/// A process, told from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// Its start time in ticks after boot.
    started: u64,
}

impl ProcessId {
    /// Finds a living process by its number.
    #[must_use]
    pub fn find(pid: i32) -> Option<Self> {
        let started = Stat::read(&format!("/proc/{pid}/stat"))?.started;
        let found = Self { pid, started };
        found.is_alive().then_some(found)
    }

    /// True while any of its threads lives. One that only waits to be reaped is dead: its memory and
    /// its sockets are gone.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Some(leader) = Stat::read(&format!("/proc/{}/stat", self.pid)) else {
            return false;
        };
        if leader.started != self.started {
            return false;
        }
        // The first thread may have exited before the others.
        !leader.is_dead() || Census::take(&[self.pid]).threads() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line =
            "42 (a) b (c)) T 1 42 42 0 -1 4194304 123 0 1 0 7 5 0 0 20 0 1 0 106503 2990080 406";
        let expected = Stat {
            state: 'T',
            cpu_ticks: 12,
            started: 106_503,
        };
        assert_eq!(Stat::parse(line), Some(expected));
        assert_eq!(Stat::parse("42 (sleep"), None);
        assert_eq!(Stat::parse("42 (sleep) S 1 2"), None);
    }

    #[test]
    fn a_thread_that_ended_is_no_process_that_did() {
        let me = i32::try_from(std::process::id()).expect("a process number");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || ended.recv());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let other = i32::try_from(child.id()).expect("a process number");
        let before = Census::take(&[me, other]);
        drop(end);
        let _ = thread.join();
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        let after = Census::take(&[me, other]);
        assert_eq!(after.ended_since(&before), [other]);
        assert!(after.died_since(&before).contains(&me));
    }

    #[test]
    fn a_census_of_ourselves_sees_us_running_and_using_cpu_time() {
        let me = i32::try_from(std::process::id()).expect("a process number");
        let before = Census::take(&[me]);
        let mut sum = 0_u64;
        // More than two ticks of work, so that the coarse source sees it as well.
        let until = std::time::Instant::now() + std::time::Duration::from_millis(40);
        while std::time::Instant::now() < until {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = Census::take(&[me]);
        assert_eq!(before.processes(), 1);
        assert!(before.threads() >= 2, "the test's thread and the main one");
        assert!(after.first_unstopped().is_some());
        assert!(after.cpu_since_ns(&before) > 1_000_000, "{after:?}");
        assert!(ProcessId::find(me).expect("we live").is_alive());
        assert_eq!(Census::take(&[i32::MAX]).threads(), 0);
    }
}
