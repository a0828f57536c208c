//! Whether a clock took its course: what the canary lived through, against what it should have.

use std::fmt;

use super::course::{Ahead, Course};
use crate::clock::canary::{Heard, Nap, Sample};
use crate::clock::{HostClock, Tally};
use crate::fault::on_hosts::HostReceipt;
use crate::receipt::ms;

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

/// What the canary lived through, against what the clock should have given it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
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
    pub(super) fn of(heard: &[Heard], clock: &HostClock) -> Self {
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
pub(super) struct SkewReceipt {
    pub(super) host: String,
    pub(super) course: Course,
    pub(super) since_ns: u64,
    pub(super) lifted_ns: u64,
    pub(super) measured: Measured,
    pub(super) strangers: Vec<i32>,
    pub(super) tally: Tally,
}

impl SkewReceipt {
    /// What is not as it should be, in words; nothing when the fault is proven.
    pub(super) fn doubts(&self) -> Vec<String> {
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

impl HostReceipt for SkewReceipt {
    fn proven(&self) -> bool {
        self.doubts().is_empty()
    }

    fn lifted_ns(&self) -> u64 {
        self.lifted_ns
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
