//! What a host's clock and the supervisors of its processes share: the lines, the pages, the tally.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::bell;
use super::error::ClockError;
use super::page::{CLOCKS, Page, is_skewed};
use super::segment::{Line, Segment};
use super::tally::Tally;
use super::trace::clock_ns;

/// How long waits in flight may take to be armed again after a change.
const PATIENCE: Duration = Duration::from_secs(2);
/// The coarse clocks tick at least this often (CONFIG_HZ=100).
const COARSE_TICK: Duration = Duration::from_millis(1);

/// How a clock is to change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// All clocks run at this rate, from where they are.
    Rate(f64),
    /// The wall clock steps; its rate stays.
    Step(i64),
    /// The wall clock is true again; its rate stays that of the monotonic clock.
    Wall,
    /// Every rate is 1, the wall clock is true again, and the monotonic clocks keep what they gained.
    Heal,
}

/// The clock of one host.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: String,
    state: Mutex<State>,
    /// Held through a change, until every wait in flight knows of it.
    changing: Mutex<()>,
    /// Counts the changes.
    pub(super) generation: AtomicU64,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    /// How each clock runs.
    pub(super) lines: [Line; CLOCKS],
    /// How the monotonic clock ran, one entry a change, for the comparison with what was measured.
    pub(super) monotonic: Vec<Line>,
    /// The pages of all living processes.
    pub(super) pages: Vec<Weak<Page>>,
    pub(super) supervisors: Vec<Weak<Supervised>>,
    /// The host's processes that live by it, canaries left out.
    pub(super) processes: BTreeSet<i32>,
    pub(super) tally: Tally,
    /// Why it is of no use any more.
    pub(super) broken: Option<String>,
}

/// One supervisor, as the others see it.
#[derive(Debug, Default)]
pub(super) struct Supervised {
    /// Its thread; 0 before it runs.
    pub(super) thread: AtomicI32,
    /// The last change of which all its threads know.
    pub(super) knows: AtomicU64,
    /// It has nothing left to supervise.
    pub(super) over: AtomicBool,
}

impl Shared {
    pub(super) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            state: Mutex::new(State {
                lines: [Line::TRUE; CLOCKS],
                monotonic: vec![Line::TRUE],
                pages: Vec::new(),
                supervisors: Vec::new(),
                processes: BTreeSet::new(),
                tally: Tally::default(),
                broken: None,
            }),
            changing: Mutex::new(()),
            generation: AtomicU64::new(0),
        }
    }

    /// Every change under the lock is complete in itself, so a panic leaves consistent data.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why it is of no use any more; the first reason counts.
    pub(super) fn break_down(&self, why: String) {
        self.lock().broken.get_or_insert(why);
    }

    /// Says whether it works.
    pub(super) fn check(&self) -> Result<(), ClockError> {
        let why = self.lock().broken.clone();
        why.map_or(Ok(()), |why| {
            Err(ClockError::Broken {
                host: self.host.clone(),
                why,
            })
        })
    }

    /// A page of a new process: from now on it follows the clock.
    pub(super) fn publish(&self, page: &Arc<Page>) {
        let mut state = self.lock();
        page.begin_change();
        page.end_change(&state.lines);
        state.pages.retain(|page| page.strong_count() > 0);
        state.pages.push(Arc::downgrade(page));
    }

    /// Changes the clock of every process at one moment, and returns when that was, in truth time
    /// (CLOCK_MONOTONIC). Returns when every wait in flight is armed again.
    pub(super) fn change(&self, change: Change) -> Result<u64, ClockError> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        self.await_coarse();
        let (at_ns, generation, supervisors) = self.publish_change(change);
        self.await_supervisors(generation, &supervisors)?;
        Ok(at_ns)
    }

    /// The coarse clocks lag behind. Until they have passed the last change, the lines before it are
    /// still needed and there is no room for another pair.
    fn await_coarse(&self) {
        let state = self.lock();
        let line = |clock: libc::clockid_t| state.lines[clock as usize].from_real_ns;
        let (wall_ns, monotonic_ns) = (line(libc::CLOCK_REALTIME), line(libc::CLOCK_MONOTONIC));
        drop(state);
        // Bounded: the host's own wall clock may have been set back meanwhile.
        for _ in 0..100 {
            if clock_ns(libc::CLOCK_MONOTONIC_COARSE) >= monotonic_ns
                && clock_ns(libc::CLOCK_REALTIME_COARSE) >= wall_ns
            {
                return;
            }
            thread::sleep(COARSE_TICK);
        }
    }

    fn publish_change(&self, change: Change) -> (u64, u64, Vec<Arc<Supervised>>) {
        let mut state = self.lock();
        let pages: Vec<Arc<Page>> = state.pages.iter().filter_map(Weak::upgrade).collect();
        // From here to the end nobody reads a clock, so that no reading is newer than the change and older
        // than its publication.
        pages.iter().for_each(|page| page.begin_change());
        let lines = changed(&state.lines, change);
        pages.iter().for_each(|page| page.end_change(&lines));
        state.lines = lines;
        let monotonic = lines[libc::CLOCK_MONOTONIC as usize];
        state.monotonic.push(monotonic);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        state.supervisors.retain(|one| one.strong_count() > 0);
        let supervisors = state.supervisors.iter().filter_map(Weak::upgrade);
        (monotonic.from_real_ns, generation, supervisors.collect())
    }

    fn await_supervisors(
        &self,
        generation: u64,
        supervisors: &[Arc<Supervised>],
    ) -> Result<(), ClockError> {
        let deadline = Instant::now() + PATIENCE;
        for supervised in supervisors {
            let mut pause = Duration::from_micros(20);
            while supervised.knows.load(Ordering::SeqCst) < generation
                && !supervised.over.load(Ordering::SeqCst)
            {
                // Again and again: a ring between the supervisor's look at the clock and its wait is lost.
                bell::ring(supervised.thread.load(Ordering::SeqCst));
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(2));
                if Instant::now() > deadline {
                    return Err(ClockError::Broken {
                        host: self.host.clone(),
                        why: format!(
                            "waits in flight were not armed again within {PATIENCE:?} after a change"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// The own monotonic time that belongs to a truth time.
    pub(super) fn monotonic_at(&self, truth_ns: u64) -> u64 {
        let state = self.lock();
        let line = state
            .monotonic
            .iter()
            .rev()
            .find(|line| line.from_real_ns <= truth_ns)
            .unwrap_or(&Line::TRUE);
        line.new.own(truth_ns)
    }
}

/// Every clock after a change, as of now.
fn changed(lines: &[Line; CLOCKS], change: Change) -> [Line; CLOCKS] {
    let mut changed = *lines;
    for (clock, line) in changed.iter_mut().enumerate() {
        let clock = clock as libc::clockid_t;
        if !is_skewed(clock) {
            continue;
        }
        // The coarse clocks change where their fine ones do, which are done first.
        let fine = match clock {
            libc::CLOCK_REALTIME_COARSE => libc::CLOCK_REALTIME,
            libc::CLOCK_MONOTONIC_COARSE => libc::CLOCK_MONOTONIC,
            itself => itself,
        };
        let wall = matches!(fine, libc::CLOCK_REALTIME | libc::CLOCK_TAI);
        let rate = line.new.rate as f64 / Segment::TRUE.rate as f64;
        let now_ns = clock_ns(fine);
        *line = match change {
            Change::Rate(rate) => line.changed(now_ns, 0, rate),
            Change::Step(by_ns) => line.changed(now_ns, if wall { by_ns } else { 0 }, rate),
            Change::Wall if wall => {
                let gained_ns = now_ns.wrapping_sub(line.new.own(now_ns)).cast_signed();
                line.changed(now_ns, gained_ns, rate)
            }
            Change::Wall => line.changed(now_ns, 0, rate),
            Change::Heal if wall => line.corrected(now_ns),
            Change::Heal => line.changed(now_ns, 0, 1.0),
        };
    }
    // A coarse clock has exactly its fine clock's lines, not ones taken a moment later.
    changed[libc::CLOCK_REALTIME_COARSE as usize] = changed[libc::CLOCK_REALTIME as usize];
    changed[libc::CLOCK_MONOTONIC_COARSE as usize] = changed[libc::CLOCK_MONOTONIC as usize];
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(lines: &[Line; CLOCKS], clock: libc::clockid_t) -> i128 {
        let real_ns = clock_ns(clock);
        i128::from(lines[clock as usize].own(real_ns)) - i128::from(real_ns)
    }

    #[test]
    fn only_the_wall_clock_steps_and_only_it_steps_back() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let skewed = changed(&[Line::TRUE; CLOCKS], Change::Rate(2.0));
        thread::sleep(Duration::from_millis(20));
        let stepped = changed(&skewed, Change::Step(-HOUR_NS));
        assert!(own(&stepped, libc::CLOCK_MONOTONIC) >= 20_000_000);
        let wall = own(&stepped, libc::CLOCK_REALTIME);
        assert!((20_000_000..500_000_000).contains(&(wall + i128::from(HOUR_NS))));
        let healed = changed(&stepped, Change::Heal);
        assert_eq!(own(&healed, libc::CLOCK_REALTIME), 0);
        assert_eq!(own(&healed, libc::CLOCK_TAI), 0);
        assert!(own(&healed, libc::CLOCK_MONOTONIC) >= 20_000_000);
        assert!(own(&healed, libc::CLOCK_BOOTTIME) >= 20_000_000);
        assert!(healed[libc::CLOCK_MONOTONIC as usize].new.keeps_lengths());
        assert_eq!(healed[libc::CLOCK_PROCESS_CPUTIME_ID as usize], Line::TRUE);
    }

    #[test]
    fn the_wall_clock_can_be_corrected_while_its_rate_stays() {
        let lines = changed(&[Line::TRUE; CLOCKS], Change::Rate(2.0));
        let lines = changed(&lines, Change::Step(5_000_000_000));
        let lines = changed(&lines, Change::Wall);
        assert!(own(&lines, libc::CLOCK_REALTIME).abs() < 1_000_000_000);
        assert!(!lines[libc::CLOCK_REALTIME as usize].new.keeps_lengths());
    }
}
