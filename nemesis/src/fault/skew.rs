//! What the clock faults have in common: a course that a host's clock takes, and the proof that it took it.
//!
//! The proof is a canary under the same clock (`clock::canary`): it reads, sleeps and waits, and every
//! one of its readings and waits is compared with what the course should have given it, in truth time.
//! Also every process of the host must live by that clock. What is off is not proven. This file must
//! never leave a clock skewed: `Skewed` heals it when dropped.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::canary::{Canary, Heard, Nap, Sample};
use crate::clock::{ClockError, HostClock, Tally};
use crate::fault::{FaultError, InForce, Request, contained};
use crate::receipt::{Receipt, ms};
use crate::{HostControl, Now};

/// How often a rate that changes by and by is changed.
const STEP: Duration = Duration::from_millis(50);
/// A reading may be off by this much from what the course says.
const READING_WITHIN_NS: u64 = 1_000_000;
/// An achieved rate may be off by this share.
const RATE_WITHIN: f64 = 0.001;
/// The best of the canary's waits may end this much late, in real time; the others had to wait for a CPU.
const LATE_WITHIN_NS: u64 = 5_000_000;
/// The wall clock may be off by this much from where it was put: the host's own is adjusted too.
const WALL_WITHIN_NS: u64 = 5_000_000;

/// The quickest of the canary's lines may be heard this long after the canary's own true stamp.
const HEARD_WITHIN_NS: u64 = 50_000_000;

/// What a clock does while the fault lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Course {
    /// It runs at this rate.
    Rate(f64),
    /// Its rate goes evenly from 1 to this, and stays there.
    Ramp {
        /// The last rate.
        to: f64,
        /// How long that takes.
        over_ns: u64,
    },
    /// Its rate swings between this and its inverse.
    Sine {
        /// The highest (or lowest) rate.
        peak: f64,
        /// From one peak to the next.
        period_ns: u64,
    },
    /// The wall clock is put ahead by this.
    Wall(i64),
    /// The wall clock is put ahead by this and back again, over and over.
    Strobe {
        /// How far ahead.
        by_ns: i64,
        /// From one step to the next.
        every_ns: u64,
    },
}

impl Course {
    /// The rate at that time after its beginning, if it changes by and by.
    fn rate_at(&self, after_ns: u64) -> Option<f64> {
        match *self {
            Self::Ramp { to, over_ns } => {
                let share = (after_ns as f64 / over_ns as f64).min(1.0);
                Some(1.0 + (to - 1.0) * share)
            }
            Self::Sine { peak, period_ns } => {
                let turn = after_ns as f64 / period_ns as f64 * std::f64::consts::TAU;
                Some(peak.powf(turn.sin()))
            }
            _ => None,
        }
    }

    fn begin(&self, clock: &HostClock) -> Result<u64, ClockError> {
        match *self {
            Self::Rate(rate) => clock.set_rate(rate),
            Self::Ramp { .. } | Self::Sine { .. } => clock.set_rate(1.0),
            Self::Wall(by_ns) | Self::Strobe { by_ns, .. } => clock.step_wall(by_ns),
        }
    }

    /// How long until the next step, if there is one.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Rate(_) | Self::Wall(_) => None,
            Self::Ramp { .. } | Self::Sine { .. } => Some(STEP),
            Self::Strobe { every_ns, .. } => Some(Duration::from_nanos(*every_ns)),
        }
    }

    /// The step with that number, from 1, at that time after its beginning.
    fn step(&self, clock: &HostClock, number: u64, after_ns: u64) -> Result<(), ClockError> {
        if let Self::Strobe { by_ns, .. } = *self {
            let done = if number % 2 == 1 {
                clock.correct_wall()
            } else {
                clock.step_wall(by_ns)
            };
            return done.map(drop);
        }
        self.rate_at(after_ns)
            .map_or(Ok(()), |rate| clock.set_rate(rate).map(drop))
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Rate(rate) => write!(f, "all clocks at {rate}×"),
            Self::Ramp { to, over_ns } => {
                write!(f, "all clocks from 1× to {to}× over {:.0} ms", ms(over_ns))
            }
            Self::Sine { peak, period_ns } => {
                let (one, other) = (peak, 1.0 / peak);
                write!(
                    f,
                    "all clocks between {one}× and {other:.4}×, every {:.0} ms",
                    ms(period_ns)
                )
            }
            Self::Wall(by_ns) => write!(f, "wall clock {}", Ahead(by_ns)),
            Self::Strobe { by_ns, every_ns } => write!(
                f,
                "wall clock {} and back every {:.0} ms",
                Ahead(by_ns),
                ms(every_ns)
            ),
        }
    }
}

/// How far a clock is ahead, in words.
struct Ahead(i64);

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{:.3} s", self.0.unsigned_abs() as f64 / 1e9)
    }
}

/// Puts every host's clock on that course.
pub(super) fn inject(
    hosts: &[Arc<dyn HostControl>],
    course: Course,
    request: &Request<'_>,
) -> Result<Box<dyn InForce>, FaultError> {
    // Every canary is up before the first clock changes, so that the clocks change close together.
    let ready: Result<Vec<Ready>, FaultError> = hosts
        .iter()
        .map(|host| Ready::prepare(host, request.now))
        .collect();
    let skewed: Result<Vec<Skewed>, FaultError> =
        ready?.into_iter().map(|one| one.begin(course)).collect();
    Ok(Box::new(SkewInForce { hosts: skewed? }))
}

/// A host whose clock can be skewed, and its canary.
struct Ready {
    host: Arc<dyn HostControl>,
    clock: HostClock,
    canary: Canary,
    now: Now,
}

impl Ready {
    fn prepare(host: &Arc<dyn HostControl>, now: Now) -> Result<Self, FaultError> {
        let refused = |what: String| FaultError::Refused {
            host: host.name().to_owned(),
            what,
        };
        let clock = host.clock().cloned().ok_or_else(|| {
            refused("expected a host with a clock of its own, found one without; it must be started with one".into())
        })?;
        let tree = host.tree();
        if tree.is_empty() {
            let host = host.name().to_owned();
            return Err(FaultError::NothingRuns { host });
        }
        let canary =
            Canary::start(&clock, now).map_err(|error| refused(format!("its canary: {error}")))?;
        Ok(Self {
            host: Arc::clone(host),
            clock,
            canary,
            now,
        })
    }

    fn begin(self, course: Course) -> Result<Skewed, FaultError> {
        let requested_ns = (self.now)();
        let before = self.clock.tally();
        let mut skewed = Skewed {
            ready: self,
            course,
            before,
            requested_ns,
            since_ns: requested_ns,
            driver: None,
            healed: false,
        };
        // From here on dropping it heals it.
        let refused = |host: &str, error: ClockError| FaultError::Refused {
            host: host.to_owned(),
            what: error.to_string(),
        };
        skewed.since_ns = course
            .begin(&skewed.ready.clock)
            .map_err(|error| refused(skewed.ready.host.name(), error))?;
        if let Some(pause) = course.pause() {
            skewed.driver = Some(Driver::start(course, &skewed.ready.clock, pause));
        }
        Ok(skewed)
    }
}

/// The thread that takes a clock through a course that has steps.
struct Driver {
    over: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<ClockError>>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    fn start(course: Course, clock: &HostClock, pause: Duration) -> Self {
        let (over, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (ends, fails, clock) = (Arc::clone(&over), Arc::clone(&failed), clock.clone());
        let began = Instant::now();
        let drive = move || {
            for number in 1.. {
                let due = pause.saturating_mul(number);
                thread::park_timeout(due.saturating_sub(began.elapsed()));
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let after_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                if let Err(error) = course.step(&clock, u64::from(number), after_ns) {
                    *fails.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        };
        Self {
            over,
            failed,
            thread: Some(thread::spawn(drive)),
        }
    }

    fn error(&self) -> Option<ClockError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Its panic would have been a bug; the clock is healed in either case.
            let _ = thread.join();
        }
    }
}

/// A host whose clock is skewed. It is healed when this is dropped.
struct Skewed {
    ready: Ready,
    course: Course,
    before: Tally,
    requested_ns: u64,
    since_ns: u64,
    driver: Option<Driver>,
    healed: bool,
}

impl Skewed {
    fn name(&self) -> String {
        self.ready.host.name().to_owned()
    }

    fn check(&self) -> Result<(), FaultError> {
        let failed = self.driver.as_ref().and_then(Driver::error);
        failed
            .map_or_else(|| self.ready.clock.check(), Err)
            .map_err(|error| FaultError::Ended {
                host: self.name(),
                found: error.to_string(),
            })
    }

    fn heal(&mut self) -> Result<SkewReceipt, FaultError> {
        let checked = self.check();
        self.driver = None;
        self.healed = true;
        // A process that is just ending is no stranger.
        let mut strangers = self.ready.clock.strangers(&self.ready.host.tree());
        if !strangers.is_empty() {
            thread::sleep(Duration::from_millis(5));
            let now = self.ready.clock.strangers(&self.ready.host.tree());
            strangers.retain(|pid| now.contains(pid));
        }
        let tally = self.ready.clock.tally().since(&self.before);
        let healed = self.ready.clock.heal();
        let lifted_ns = healed.map_err(|error| FaultError::NotHealed {
            host: self.name(),
            found: error.to_string(),
        })?;
        checked?;
        let heard = self.ready.canary.between(self.since_ns, lifted_ns);
        Ok(SkewReceipt {
            host: self.name(),
            course: self.course,
            since_ns: self.since_ns,
            lifted_ns,
            measured: Measured::of(&heard, &self.ready.clock),
            strangers,
            tally,
        })
    }
}

impl Drop for Skewed {
    fn drop(&mut self) {
        if !self.healed {
            contained(|| drop(self.heal()));
        }
    }
}

/// What the canary lived through, against what the clock should have given it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Measured {
    /// Readings.
    readings: usize,
    /// Own time that passed for each real time, from the first to the last of them.
    rate: f64,
    /// How far the worst reading was off.
    reading_off_ns: u64,
    /// How far the wall clock was ahead, least and most.
    wall_ns: (i64, i64),
    /// Waits: how many, how early the earliest ended, and how late the least late, in own and in real time.
    slept: Naps,
    waited: Naps,
    /// How long after the canary's own stamp its lines were heard, at the least.
    heard_after_ns: u64,
}

/// Waits of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
struct Naps {
    count: usize,
    early_own_ns: u64,
    late_real_ns: u64,
}

impl Naps {
    fn of(naps: impl Iterator<Item = Nap>, clock: &HostClock) -> Self {
        let mut all = Self {
            late_real_ns: u64::MAX,
            ..Self::default()
        };
        for nap in naps {
            let (began_ns, ended_ns) = (
                clock.monotonic_at(nap.began_ns),
                clock.monotonic_at(nap.ended_ns),
            );
            let own_ns = ended_ns.saturating_sub(began_ns);
            let late_own_ns = own_ns.saturating_sub(nap.asked_ns);
            // Real time as a share of own time over this nap: the rate may have changed in it.
            let real_ns = nap.ended_ns.saturating_sub(nap.began_ns);
            let late_real_ns = late_own_ns as f64 * real_ns as f64 / own_ns.max(1) as f64;
            all.count += 1;
            all.early_own_ns = all.early_own_ns.max(nap.asked_ns.saturating_sub(own_ns));
            all.late_real_ns = all.late_real_ns.min(late_real_ns as u64);
        }
        all
    }

    /// A millisecond of own time is within what a change in the middle of a nap does to the comparison.
    fn proven(&self) -> bool {
        self.count > 0 && self.early_own_ns < 1_000_000 && self.late_real_ns <= LATE_WITHIN_NS
    }
}

impl fmt::Display for Naps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.write_str("none");
        }
        write!(
            f,
            "{} of them, best {:.2} ms late",
            self.count,
            ms(self.late_real_ns)
        )?;
        if self.early_own_ns >= 1_000_000 {
            write!(f, ", one {:.2} ms EARLY", ms(self.early_own_ns))?;
        }
        Ok(())
    }
}

impl Measured {
    fn of(heard: &[Heard], clock: &HostClock) -> Self {
        let naps = |pick: fn(&Sample) -> Option<Nap>| {
            Naps::of(heard.iter().filter_map(|one| pick(&one.sample)), clock)
        };
        let mut all = Self {
            slept: naps(|sample| match sample {
                Sample::Slept(nap) => Some(*nap),
                _ => None,
            }),
            waited: naps(|sample| match sample {
                Sample::Waited(nap) => Some(*nap),
                _ => None,
            }),
            wall_ns: (i64::MAX, i64::MIN),
            heard_after_ns: u64::MAX,
            ..Self::default()
        };
        let mut ends: Option<[(u64, u64); 2]> = None;
        for one in heard {
            let Sample::Read {
                before_ns,
                monotonic_ns,
                after_ns,
                wall_ahead_ns,
            } = one.sample
            else {
                continue;
            };
            let low_ns = clock.monotonic_at(before_ns);
            let high_ns = clock.monotonic_at(after_ns);
            let off_ns = low_ns
                .saturating_sub(monotonic_ns)
                .max(monotonic_ns.saturating_sub(high_ns));
            all.readings += 1;
            all.reading_off_ns = all.reading_off_ns.max(off_ns);
            all.wall_ns.0 = all.wall_ns.0.min(wall_ahead_ns);
            all.wall_ns.1 = all.wall_ns.1.max(wall_ahead_ns);
            all.heard_after_ns = all
                .heard_after_ns
                .min(one.heard_ns.saturating_sub(after_ns));
            let point = (before_ns, monotonic_ns);
            ends = Some([ends.map_or(point, |ends| ends[0]), point]);
        }
        if let Some([first, last]) = ends
            && last.0 > first.0
        {
            let own_ns = last.1.wrapping_sub(first.1).cast_signed();
            all.rate = own_ns as f64 / (last.0 - first.0) as f64;
        }
        all
    }
}

/// What was measured of one host's clock.
struct SkewReceipt {
    host: String,
    course: Course,
    since_ns: u64,
    lifted_ns: u64,
    measured: Measured,
    strangers: Vec<i32>,
    tally: Tally,
}

impl SkewReceipt {
    /// What is not as it should be, in words; nothing when the fault is proven.
    fn doubts(&self) -> Vec<String> {
        let found = &self.measured;
        let mut doubts = Vec::new();
        let mut doubt = |wrong: bool, what: &dyn Fn() -> String| {
            if wrong {
                doubts.push(what());
            }
        };
        doubt(found.readings < 2, &|| {
            "the canary did not read its clocks twice; a longer fault is needed".to_owned()
        });
        doubt(
            found.readings > 0 && found.heard_after_ns > HEARD_WITHIN_NS,
            &|| {
                format!(
                    "our own clock and the canary's true one are {:.2} ms apart",
                    ms(found.heard_after_ns)
                )
            },
        );
        doubt(found.reading_off_ns > READING_WITHIN_NS, &|| {
            format!("a reading was {:.3} ms off", ms(found.reading_off_ns))
        });
        doubt(!found.slept.proven(), &|| {
            format!("sleeps: {}", found.slept)
        });
        doubt(!found.waited.proven(), &|| {
            format!("condition variables: {}", found.waited)
        });
        match self.course {
            Course::Rate(rate) => doubt((found.rate / rate - 1.0).abs() > RATE_WITHIN, &|| {
                format!("expected a rate of {rate}, found {:.6}", found.rate)
            }),
            Course::Wall(by_ns) => doubt(
                found
                    .wall_ns
                    .0
                    .abs_diff(by_ns)
                    .max(found.wall_ns.1.abs_diff(by_ns))
                    > WALL_WITHIN_NS,
                &|| format!("expected the wall clock {} ahead", Ahead(by_ns)),
            ),
            Course::Strobe { by_ns, .. } => doubt(
                found.wall_ns.0.abs_diff(by_ns.min(0)) > WALL_WITHIN_NS
                    || found.wall_ns.1.abs_diff(by_ns.max(0)) > WALL_WITHIN_NS,
                &|| format!("expected the wall clock at 0 and at {}", Ahead(by_ns)),
            ),
            Course::Ramp { .. } | Course::Sine { .. } => {}
        }
        doubt(!self.strangers.is_empty(), &|| {
            format!("processes {:?} do not live by this clock", self.strangers)
        });
        doubt(self.tally.missed > 0, &|| {
            format!("{} waits kept their own timeouts", self.tally.missed)
        });
        doubts
    }
}

impl fmt::Display for SkewReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.measured;
        let lasted = ms(self.lifted_ns.saturating_sub(self.since_ns));
        write!(f, "{}: {} for {lasted:.2} ms", self.host, self.course)?;
        if found.readings > 0 {
            write!(
                f,
                "; canary: rate {:.6} by {} readings, the worst {:.3} µs off, wall {} to {}, heard within {:.2} ms",
                found.rate,
                found.readings,
                found.reading_off_ns as f64 / 1e3,
                Ahead(found.wall_ns.0),
                Ahead(found.wall_ns.1),
                ms(found.heard_after_ns),
            )?;
        }
        write!(
            f,
            "; sleeps: {}; condition variables: {}; {}",
            found.slept, found.waited, self.tally
        )?;
        for doubt in self.doubts() {
            write!(f, "; NOT PROVEN: {doubt}")?;
        }
        Ok(())
    }
}

/// Skewed clocks in force.
struct SkewInForce {
    hosts: Vec<Skewed>,
}

impl InForce for SkewInForce {
    fn requested_ns(&self) -> u64 {
        let asked = self.hosts.iter().map(|host| host.requested_ns);
        asked.min().unwrap_or(0)
    }

    fn since_ns(&self) -> u64 {
        let since = self.hosts.iter().map(|host| host.since_ns);
        since.max().unwrap_or(0)
    }

    fn words(&self) -> String {
        let words = self
            .hosts
            .iter()
            .map(|host| format!("{}: {}", host.name(), host.course));
        words.collect::<Vec<_>>().join("; ")
    }

    fn check(&self) -> Result<(), FaultError> {
        self.hosts.iter().try_for_each(Skewed::check)
    }

    fn heal(&mut self) -> Result<Receipt, FaultError> {
        let (mut receipts, mut errors) = (Vec::new(), Vec::new());
        for host in &mut self.hosts {
            match host.heal() {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => errors.push(error),
            }
        }
        if let Some(error) = FaultError::of_all(errors) {
            return Err(error);
        }
        let words: Vec<String> = receipts.iter().map(SkewReceipt::to_string).collect();
        let lifted_ns = receipts.iter().map(|receipt| receipt.lifted_ns).min();
        Ok(Receipt {
            proven: receipts.iter().all(|receipt| receipt.doubts().is_empty()),
            lifted_ns: lifted_ns.unwrap_or(0),
            words: words.join("; "),
        })
    }
}
