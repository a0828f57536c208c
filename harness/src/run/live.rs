//! Live figures: overlaps and lost writes as they happen, for the progress display.
//!
//! They are a view, not a verdict: the checks count again from the stored history.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::progress::Tick;

/// Counts as operations end.
#[derive(Debug, Default)]
pub struct Live {
    holders: HashMap<u32, Vec<u32>>,
    registers: HashMap<String, Register>,
    tick: Tick,
}

/// What is known of a register's past.
#[derive(Debug, Default)]
struct Register {
    /// Every acknowledged version and the version it was built on.
    built_on: BTreeMap<u64, u64>,
    /// Acknowledged versions whose element the latest version does not have.
    lost: BTreeSet<u64>,
    latest: u64,
}

impl Register {
    /// Adds a version. One that is built on the latest loses nothing; any other goes back to what its base
    /// had, which may bring lost elements back.
    fn add(&mut self, base: u64, version: u64) {
        self.built_on.insert(version, base);
        if version < self.latest {
            // Its answer was slow: what came after it has already been counted without it.
            self.recount();
            return;
        }
        let appended = base == self.latest;
        self.latest = version;
        if !appended {
            self.recount();
        }
    }

    fn recount(&mut self) {
        self.lost = self.built_on.keys().copied().collect();
        let mut next = Some(self.latest);
        while let Some(version) = next {
            self.lost.remove(&version);
            next = self.built_on.get(&version).copied();
        }
    }
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
        if !self.registers.contains_key(key) {
            self.registers.insert(key.to_owned(), Register::default());
        }
        if let Some(register) = self.registers.get_mut(key) {
            let before = register.lost.len() as u64;
            register.add(base, version);
            self.tick.lost_writes = self.tick.lost_writes - before + register.lost.len() as u64;
        }
    }

    /// The resource refused a write.
    pub fn refused(&mut self) {
        self.tick.refused_writes += 1;
    }

    /// The figures now.
    #[must_use]
    pub fn tick(&self, elapsed_ms: u64, faults: Vec<String>) -> Tick {
        Tick {
            elapsed_ms,
            faults,
            ..self.tick.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_loses_what_came_after_the_read_it_was_built_on() {
        let mut live = Live::default();
        for (base, version) in [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)] {
            live.wrote("l0/0", base, version);
        }
        let tick = live.tick(0, Vec::new());
        assert_eq!((tick.acknowledged, tick.lost_writes), (5, 2));
    }

    #[test]
    fn a_holder_that_writes_back_an_older_copy_brings_elements_back() {
        let mut live = Live::default();
        // Version 3 drops the element of 2; version 4, built on 2, brings it back and drops that of 3.
        for (base, version) in [(0, 1), (1, 2), (1, 3), (2, 4)] {
            live.wrote("l0/0", base, version);
        }
        assert_eq!(live.tick(0, Vec::new()).lost_writes, 1);
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
