//! What the switch counts, for receipts. Nothing is judged here.

use std::collections::BTreeMap;

/// What one rule has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Frames that it was about.
    pub seen: u64,
    /// Frames dropped because their link was cut.
    pub cut: u64,
    /// Frames that were under way when their link was cut, and were dropped.
    pub cut_under_way: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames lost because the buffer of a link of limited rate was full.
    pub overflowed: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames that were let past others.
    pub reordered: u64,
    /// Frames with a bit flipped.
    pub corrupted: u64,
    /// Frames that were made to wait.
    pub delayed: u64,
    /// How much later than they were due those that waited were sent on.
    pub lateness: Lateness,
    /// When the first frame was struck.
    pub first_ns: Option<u64>,
    /// When the last frame was struck.
    pub last_ns: Option<u64>,
    /// Frames struck on each link, by the names of sender and receiver.
    pub struck_by_link: BTreeMap<(String, String), u64>,
    /// The same by the numbers of the ports.
    pub(crate) struck_by_number: BTreeMap<(u16, u16), u64>,
}

impl RuleCounters {
    /// Frames that did not arrive.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.cut + self.cut_under_way + self.lost + self.overflowed
    }

    /// Frames that it did anything to.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.struck_by_link.values().sum()
    }

    pub(super) fn strike(&mut self, link: (u16, u16), now_ns: u64) {
        *self.struck_by_number.entry(link).or_default() += 1;
        self.first_ns.get_or_insert(now_ns);
        self.last_ns = Some(now_ns);
    }
}

/// What the switch has done since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that came in.
    pub received: u64,
    /// Frames that went out, copies included.
    pub sent: u64,
    /// Frames dropped by a rule.
    pub dropped: u64,
    /// Frames for nobody: too short, or to an address that no port has.
    pub unknown: u64,
    /// Frames that a port did not take because its buffer was full.
    pub refused: u64,
    /// Frames dropped because too many were waiting.
    pub overfull: u64,
    /// Frames that wait at this moment.
    pub waiting: u64,
    /// Lateness of all frames that waited.
    pub lateness: Lateness,
}

/// Buckets a power of two: percentiles are right within an eighth.
const STEPS: u64 = 8;

/// A histogram of how much too late something happened, with buckets that grow with the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// By bucket; as long as the highest that is used.
    buckets: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Lateness {
    /// Adds a value.
    pub fn add(&mut self, ns: u64) {
        let bucket = Self::bucket(ns);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest value.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The value that a share of all values does not exceed, rounded up by an eighth at most; 0 when there
    /// are none.
    #[must_use]
    pub fn percentile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::top(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    fn bucket(ns: u64) -> usize {
        if ns < STEPS {
            return ns as usize;
        }
        let power = u64::from(ns.ilog2() - STEPS.ilog2());
        (power * STEPS + (ns >> power)) as usize
    }

    /// The largest value of a bucket.
    fn top(bucket: usize) -> u64 {
        let bucket = bucket as u64;
        if bucket < 2 * STEPS {
            return bucket;
        }
        let power = bucket / STEPS - 1;
        let step = bucket % STEPS + STEPS;
        ((step + 1) << power) - 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_right_within_an_eighth(mut values in prop::collection::vec(0_u64..10_000_000_000, 1..300), share in 0.0..=1.0_f64) {
            let mut lateness = Lateness::default();
            values.iter().for_each(|ns| lateness.add(*ns));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let found = lateness.percentile_ns(share);
            prop_assert!(found >= exact && found <= exact + exact / 8 + 1, "{exact} {found}");
            prop_assert_eq!(lateness.max_ns(), *values.last().expect("one at least"));
        }
    }

    #[test]
    fn nothing_is_never_late() {
        assert_eq!(Lateness::default().percentile_ns(0.99), 0);
    }
}
