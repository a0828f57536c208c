//! What a skewed clock does while its fault lasts, and the thread that takes it there step by step.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::{ClockError, HostClock};
use crate::receipt::ms;

/// How often a rate that changes by and by is changed.
const STEP: Duration = Duration::from_millis(50);

/// What a clock does while the fault lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::fault) enum Course {
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

    pub(super) fn begin(&self, clock: &HostClock) -> Result<u64, ClockError> {
        match *self {
            Self::Rate(rate) => clock.set_rate(rate),
            Self::Ramp { .. } | Self::Sine { .. } => clock.set_rate(1.0),
            Self::Wall(by_ns) | Self::Strobe { by_ns, .. } => clock.step_wall(by_ns),
        }
    }

    /// How long until the next step, if there is one.
    pub(super) fn pause(&self) -> Option<Duration> {
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
pub(super) struct Ahead(pub(super) i64);

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{:.3} s", self.0.unsigned_abs() as f64 / 1e9)
    }
}

/// The thread that takes a clock through a course that has steps.
pub(super) struct Driver {
    over: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<ClockError>>>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(super) fn start(course: Course, clock: &HostClock, pause: Duration) -> Self {
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

    pub(super) fn error(&self) -> Option<ClockError> {
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
