//! Live figures: overlaps and lost writes as they happen, for the progress display.
//!
//! They are a view, not a verdict: the checks count again from the stored history.

use std::collections::{BTreeSet, HashMap};

use super::progress::Tick;

/// Counts as operations end.
#[derive(Debug, Default)]
pub struct Live {
    holders: HashMap<u32, Vec<u32>>,
    /// Versions of acknowledged writes that nothing has clobbered yet, by register.
    standing: HashMap<String, BTreeSet<u64>>,
    tick: Tick,
}

impl Live {
    /// An operation ended.
    pub fn operation(&mut self) {
        self.tick.operations += 1;
    }

    /// `client` holds `lock` from now on.
    pub fn acquired(&mut self, lock: u32, client: u32) {
        let holders = self.holders.entry(lock).or_default();
        self.tick.terms += 1;
        self.tick.overlaps += holders.len() as u64;
        holders.push(client);
    }

    /// `client` no longer believes that it holds `lock`.
    pub fn ended(&mut self, lock: u32, client: u32) {
        if let Some(holders) = self.holders.get_mut(&lock) {
            holders.retain(|holder| *holder != client);
        }
    }

    /// A write of `key`, built on version `base`, became version `version`.
    pub fn wrote(&mut self, key: &str, base: u64, version: u64) {
        self.tick.acknowledged += 1;
        if !self.standing.contains_key(key) {
            self.standing.insert(key.to_owned(), BTreeSet::new());
        }
        if let Some(standing) = self.standing.get_mut(key) {
            if base + 1 < version {
                let clobbered: Vec<u64> = standing.range(base + 1..version).copied().collect();
                self.tick.lost_writes += clobbered.len() as u64;
                standing.retain(|version| !clobbered.contains(version));
            }
            standing.insert(version);
        }
    }

    /// The resource refused a write.
    pub fn refused(&mut self) {
        self.tick.refused_writes += 1;
    }

    /// The figures now.
    #[must_use]
    pub fn tick(&self, elapsed_ms: u64, faults: Vec<String>) -> Tick {
        Tick { elapsed_ms, faults, ..self.tick.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_clobbers_what_came_after_the_read_it_was_built_on() {
        let mut live = Live::default();
        for (base, version) in [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)] {
            live.wrote("l0/0", base, version);
        }
        let tick = live.tick(0, Vec::new());
        assert_eq!((tick.acknowledged, tick.lost_writes), (5, 2));
    }

    #[test]
    fn a_second_holder_is_one_overlap_and_a_third_two_more() {
        let mut live = Live::default();
        live.acquired(0, 1);
        live.acquired(1, 2);
        live.acquired(0, 3);
        live.acquired(0, 4);
        live.ended(0, 1);
        live.ended(0, 3);
        live.acquired(0, 5);
        assert_eq!(live.tick(0, Vec::new()).overlaps, 1 + 2 + 1);
    }
}
