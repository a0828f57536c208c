//! How real time becomes a process's own time, and back: one straight line at a time.
//!
//! Pure arithmetic. A clock runs along one [`Segment`] until it is changed, and along another from then
//! on. The layout is shared with the stub's machine code (`page`, `x86_64`): do not reorder fields.

/// Fractional bits of a rate.
const FRACTION_BITS: u32 = 32;
/// A rate of 1.
const ONE: u64 = 1 << FRACTION_BITS;

/// A straight line from real to own time, both in nanoseconds of one clock.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Real time at its base.
    pub(super) base_real_ns: u64,
    /// Own time at its base.
    pub(super) base_own_ns: u64,
    /// Own nanoseconds a real one, with 32 fractional bits.
    pub(super) rate: u64,
}

impl Segment {
    /// The clock as it is.
    pub(super) const TRUE: Self = Self {
        base_real_ns: 0,
        base_own_ns: 0,
        rate: ONE,
    };

    /// A segment that begins there.
    pub(super) fn new(base_real_ns: u64, base_own_ns: u64, rate: f64) -> Self {
        Self {
            base_real_ns,
            base_own_ns,
            rate: (rate * ONE as f64).round() as u64,
        }
    }

    /// Own time at that real time. The stub computes exactly this.
    pub(super) fn own(&self, real_ns: u64) -> u64 {
        let since_ns = i128::from(real_ns.wrapping_sub(self.base_real_ns).cast_signed());
        let own_ns = (since_ns * i128::from(self.rate)) >> FRACTION_BITS;
        self.base_own_ns.wrapping_add(own_ns as u64)
    }

    /// The first real time at which own time has reached `own_ns`: a deadline must never come early.
    /// Times before the clock's origin or beyond its range become 0 or the end of the range.
    pub(super) fn real(&self, own_ns: u64) -> u64 {
        let since_ns = i128::from(own_ns) - i128::from(self.base_own_ns);
        let scaled = since_ns << FRACTION_BITS;
        let real_ns = i128::from(self.base_real_ns) + div_ceil(scaled, i128::from(self.rate));
        real_ns.clamp(0, i128::from(i64::MAX)) as u64
    }

    /// The real length of an own length of time, rounded up; 0 only of 0.
    pub(super) fn real_length(&self, own_ns: u64) -> u64 {
        let scaled = i128::from(own_ns) << FRACTION_BITS;
        div_ceil(scaled, i128::from(self.rate)).min(i128::from(i64::MAX)) as u64
    }

    /// The own length of a real length of time, rounded down.
    pub(super) fn own_length(&self, real_ns: u64) -> u64 {
        let own_ns = (i128::from(real_ns) * i128::from(self.rate)) >> FRACTION_BITS;
        own_ns.min(i128::from(i64::MAX)) as u64
    }

    /// True when lengths of time are as they are.
    pub(super) fn keeps_lengths(&self) -> bool {
        self.rate == ONE
    }

    /// True when times are as they are.
    pub(super) fn is_true(&self) -> bool {
        self.keeps_lengths() && self.base_real_ns == self.base_own_ns
    }
}

/// Quotient rounded up; the divisor is above zero.
fn div_ceil(number: i128, divisor: i128) -> i128 {
    let quotient = number.div_euclid(divisor);
    quotient + i128::from(number.rem_euclid(divisor) != 0)
}

/// One clock: the line it ran along until `from_real_ns`, and the line from then on.
///
/// The older one is still needed after a change: a COARSE clock lags behind, so it goes on reading
/// times before the change for up to a tick.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// When, in its own real time, it changed.
    pub(super) from_real_ns: u64,
    /// Before.
    pub(super) old: Segment,
    /// From then on.
    pub(super) new: Segment,
}

impl Line {
    /// A clock that was never changed.
    pub(super) const TRUE: Self = Self {
        from_real_ns: 0,
        old: Segment::TRUE,
        new: Segment::TRUE,
    };

    /// Own time at that real time.
    pub(super) fn own(&self, real_ns: u64) -> u64 {
        let segment = if real_ns < self.from_real_ns {
            &self.old
        } else {
            &self.new
        };
        segment.own(real_ns)
    }

    /// The same clock after a change at that real time: it goes on from where it is, plus a step.
    pub(super) fn changed(&self, at_real_ns: u64, step_ns: i64, rate: f64) -> Self {
        let own_ns = self.new.own(at_real_ns).saturating_add_signed(step_ns);
        Self {
            from_real_ns: at_real_ns,
            old: self.new,
            new: Segment::new(at_real_ns, own_ns, rate),
        }
    }

    /// The same clock, true again from that real time on.
    pub(super) fn corrected(&self, at_real_ns: u64) -> Self {
        Self {
            from_real_ns: at_real_ns,
            old: self.new,
            new: Segment::TRUE,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH_NS: u64 = 1_800_000_000_000_000_000;

    #[test]
    fn a_line_goes_on_where_it_was_and_is_true_again_when_corrected() {
        let line = Line::TRUE.changed(EPOCH_NS, 0, 2.0);
        assert_eq!(line.own(EPOCH_NS), EPOCH_NS);
        assert_eq!(line.own(EPOCH_NS - 4_000_000), EPOCH_NS - 4_000_000);
        assert_eq!(line.own(EPOCH_NS + 1_000), EPOCH_NS + 2_000);
        let slower = line.changed(EPOCH_NS + 1_000, -500, 0.5);
        assert_eq!(slower.own(EPOCH_NS + 1_000), EPOCH_NS + 1_500);
        assert_eq!(slower.own(EPOCH_NS + 3_000), EPOCH_NS + 2_500);
        let healed = slower.corrected(EPOCH_NS + 3_000);
        // A line knows its latest change and what was before it, no further back.
        assert_eq!(healed.own(EPOCH_NS + 2_000), EPOCH_NS + 2_000);
        assert_eq!(healed.own(EPOCH_NS + 3_000), EPOCH_NS + 3_000);
        assert!(healed.new.is_true() && !slower.new.keeps_lengths());
    }

    proptest! {
        #[test]
        fn a_deadline_is_the_first_moment_at_which_it_is_reached(
            rate in 0.1_f64..10.0,
            base_ns in 0_u64..EPOCH_NS,
            after_ns in 0_u64..1_000_000_000_000,
        ) {
            let segment = Segment::new(base_ns, base_ns / 2 + 7, rate);
            let deadline_ns = segment.base_own_ns + after_ns;
            let real_ns = segment.real(deadline_ns);
            prop_assert!(segment.own(real_ns) >= deadline_ns);
            prop_assert!(real_ns == base_ns || segment.own(real_ns - 1) < deadline_ns);
            let length_ns = segment.real_length(after_ns);
            prop_assert_eq!(length_ns, real_ns - base_ns);
            prop_assert!(segment.own_length(length_ns) >= after_ns);
        }

        #[test]
        fn far_deadlines_saturate(rate in 0.1_f64..10.0) {
            let segment = Segment::new(EPOCH_NS, EPOCH_NS, rate);
            prop_assert!(segment.real(u64::MAX) >= segment.real(EPOCH_NS + 1));
            prop_assert_eq!(segment.real(0).min(EPOCH_NS), segment.real(0));
        }
    }
}
