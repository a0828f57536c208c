//! Overlaps among intervals, by one sweep: O(n log n) however many pairs overlap.
//!
//! Intervals are half-open, so that one may begin at the instant at which another ends. Pure
//! geometry: what an interval means is the caller's business.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::history::Ns;

/// An interval `[from_ns, to_ns)` that belongs to number `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// Its first instant.
    pub from_ns: Ns,
    /// The first instant after it.
    pub to_ns: Ns,
    /// What it belongs to.
    pub of: usize,
}

/// Two intervals that overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The one that began first.
    pub earlier: usize,
    /// The one that began during it.
    pub later: usize,
    /// When both are in force for the first time.
    pub from_ns: Ns,
    /// For how long.
    pub lasts_ns: Ns,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Overlapping pairs.
    pub pairs: u64,
    /// Time during which two or more were in force.
    pub shared_ns: Ns,
    /// Most in force at one time.
    pub depth: u64,
    /// The longest overlap of a pair.
    pub longest: Option<Overlap>,
    /// One overlap for each of the first intervals to begin during others: with the one of those that
    /// goes on longest. In order of time, at most as many as asked for.
    pub first: Vec<Overlap>,
}

/// Sweeps over `intervals`; empty and reversed ones are ignored. At most `keep` overlaps are listed.
#[must_use]
pub fn sweep(mut intervals: Vec<Interval>, keep: usize) -> Sweep {
    intervals.retain(|interval| interval.from_ns < interval.to_ns);
    intervals.sort_unstable();
    let mut found = Sweep::default();
    let mut ends: BinaryHeap<Reverse<Ns>> = BinaryHeap::new();
    let mut shared_since_ns = 0;
    let mut furthest: Option<Interval> = None;
    for now in intervals {
        while let Some(&Reverse(end_ns)) = ends.peek()
            && end_ns <= now.from_ns
        {
            leave(&mut ends, &mut found, shared_since_ns);
        }
        found.pairs += ends.len() as u64;
        ends.push(Reverse(now.to_ns));
        found.depth = found.depth.max(ends.len() as u64);
        if ends.len() == 2 {
            shared_since_ns = now.from_ns;
        }
        // Of those in force the one that ends last is the one that ends last of all seen so far.
        if let Some(before) = furthest
            && before.to_ns > now.from_ns
        {
            note(&mut found, before, now, keep);
        }
        if furthest.is_none_or(|before| before.to_ns < now.to_ns) {
            furthest = Some(now);
        }
    }
    while !ends.is_empty() {
        leave(&mut ends, &mut found, shared_since_ns);
    }
    found
}

fn leave(ends: &mut BinaryHeap<Reverse<Ns>>, found: &mut Sweep, shared_since_ns: Ns) {
    let two_or_more = ends.len() >= 2;
    if let Some(Reverse(end_ns)) = ends.pop()
        && two_or_more
        && ends.len() == 1
    {
        found.shared_ns += end_ns - shared_since_ns;
    }
}

fn note(found: &mut Sweep, earlier: Interval, later: Interval, keep: usize) {
    let overlap = Overlap {
        earlier: earlier.of,
        later: later.of,
        from_ns: later.from_ns,
        lasts_ns: earlier.to_ns.min(later.to_ns) - later.from_ns,
    };
    if found
        .longest
        .is_none_or(|longest| longest.lasts_ns < overlap.lasts_ns)
    {
        found.longest = Some(overlap);
    }
    if found.first.len() < keep {
        found.first.push(overlap);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every pair and every instant, one after another.
    fn brute_force(intervals: &[Interval]) -> (u64, Ns, u64, Ns, Option<Ns>) {
        let overlap = |a: &Interval, b: &Interval| {
            let from_ns = a.from_ns.max(b.from_ns);
            let to_ns = a.to_ns.min(b.to_ns);
            (from_ns < to_ns).then(|| (from_ns, to_ns - from_ns))
        };
        let (mut pairs, mut longest, mut first) = (0, 0, None::<Ns>);
        for (i, a) in intervals.iter().enumerate() {
            for b in &intervals[i + 1..] {
                if let Some((from_ns, lasts_ns)) = overlap(a, b) {
                    pairs += 1;
                    longest = longest.max(lasts_ns);
                    first = Some(first.map_or(from_ns, |first| first.min(from_ns)));
                }
            }
        }
        let at = |t: Ns| {
            intervals
                .iter()
                .filter(|i| i.from_ns <= t && t < i.to_ns)
                .count() as u64
        };
        let shared = (0..64).filter(|&t| at(t) >= 2).count() as Ns;
        let depth = (0..64).map(at).max().unwrap_or(0);
        (pairs, shared, depth, longest, first)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn agrees_with_every_pair_and_every_instant(
            spans in prop::collection::vec((0_u64..60, 0_u64..12), 0..14)
        ) {
            let intervals: Vec<Interval> = spans
                .iter()
                .enumerate()
                .map(|(of, &(from_ns, length))| Interval {
                    from_ns,
                    to_ns: (from_ns + length).min(64),
                    of,
                })
                .collect();
            let real: Vec<Interval> =
                intervals.iter().copied().filter(|i| i.from_ns < i.to_ns).collect();
            let found = sweep(intervals, 3);
            let (pairs, shared, depth, longest, first) = brute_force(&real);
            prop_assert_eq!(found.pairs, pairs);
            prop_assert_eq!(found.shared_ns, shared);
            prop_assert_eq!(found.depth, depth);
            prop_assert_eq!(found.longest.map_or(0, |o| o.lasts_ns), longest);
            prop_assert_eq!(found.first.first().map(|o| o.from_ns), first);
        }
    }
}
