//! A register that holds a set: which writes survived, and which write overwrote which.
//!
//! Every write reads the whole set at version `base`, adds one element and writes it back as
//! `version`. So the content at a version is its own element and the content at its base: versions
//! form a tree, and a write survives at version v exactly if it is on the chain of bases from v.
//! The first write that clobbers w is the one with the smallest version x > w whose base is below w:
//! all between have a base of w or above, and so hold w (by induction). A stack finds it for all
//! writes in one pass.
//!
//! Where the resource reports its accesses these decide: they know of writes whose outcome
//! their client never learned.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cause::Clobber;
use crate::evidence::Evidence;
use crate::history::{Function, History, Ns, Outcome};

/// A write of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetWrite {
    /// A place in [`History::operations`].
    pub operation: usize,
    /// The element that it adds.
    pub element: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// The version that it made, if known.
    pub version: Option<u64>,
    /// The version that it was built on, if known.
    pub base: Option<u64>,
    /// When it took effect; its return where the resource did not say. [`Ns::MAX`] when unknown.
    pub effect_ns: Ns,
    /// Elements that the resource saw vanish by it; absent when the resource did not report it.
    removed: Option<Vec<u64>>,
}

impl SetWrite {
    /// True when it may have taken effect although no version of it is known.
    #[must_use]
    pub fn unplaced(&self) -> bool {
        self.outcome != Outcome::Fail && self.version.is_none()
    }
}

/// One register and all writes to it.
#[derive(Clone, Debug)]
pub struct Register {
    /// Its name.
    pub key: String,
    /// Writes in the order of hand-over.
    pub writes: Vec<SetWrite>,
    /// True when the resource reports accesses: then a write without one did not happen (yet).
    pub reported: bool,
    /// Content and version at the end, if it was read: how often each element stands there.
    pub last_read: Option<(u64, BTreeMap<u64, u64>)>,
}

/// All registers that were written or read at the end, by name.
#[must_use]
pub fn registers(evidence: &Evidence<'_>) -> Vec<Register> {
    let history = evidence.history;
    let reported = !history.accesses.is_empty();
    let mut registers: BTreeMap<&str, Register> = BTreeMap::new();
    let new = |key: &str| Register {
        key: key.to_owned(),
        writes: Vec::new(),
        reported,
        last_read: None,
    };
    for (place, operation) in history.operations.iter().enumerate() {
        let (Function::Write, Some(key), Some(element)) =
            (operation.f, operation.key, operation.element)
        else {
            continue;
        };
        let access = evidence.access_of(place);
        let key = history.keys.name(key);
        let register = registers.entry(key).or_insert_with(|| new(key));
        register.writes.push(SetWrite {
            operation: place,
            element,
            outcome: operation.outcome,
            version: access.map(|access| access.version).or(operation.version),
            base: operation.base,
            effect_ns: access.map_or(operation.return_ns, |access| access.at_ns),
            removed: access.map(|access| access.removed.clone()),
        });
    }
    for read in &history.finals {
        let register = registers.entry(&read.key).or_insert_with(|| new(&read.key));
        let mut content = BTreeMap::new();
        for &element in &read.elements {
            *content.entry(element).or_default() += 1;
        }
        register.last_read = Some((read.version, content));
    }
    registers.into_values().collect()
}

impl Register {
    /// Places in [`writes`](Self::writes) of those whose version is known, by version.
    fn by_version(&self) -> Vec<(u64, usize)> {
        let writes = self.writes.iter().enumerate();
        let mut order: Vec<(u64, usize)> = writes
            .filter_map(|(place, write)| Some((write.version?, place)))
            .collect();
        order.sort_unstable();
        order
    }

    /// Writes of unknown outcome that may have changed the register at an unknown place.
    #[must_use]
    pub fn unplaced(&self) -> usize {
        if self.reported {
            return 0;
        }
        self.writes.iter().filter(|write| write.unplaced()).count()
    }

    /// The elements that stand in the register after its last known version, without a final read.
    ///
    /// # Errors
    /// Why the history does not tell.
    pub fn survivors(&self) -> Result<HashSet<u64>, String> {
        let unplaced = self.unplaced();
        if unplaced > 0 {
            return Err(format!(
                "`{}` was not read at the end, and {unplaced} writes of unknown outcome may have replaced its content",
                self.key
            ));
        }
        let order = self.by_version();
        let mut survivors = HashSet::new();
        let mut next = order.len().checked_sub(1);
        while let Some(at) = next {
            let (version, place) = order[at];
            let write = &self.writes[place];
            survivors.insert(write.element);
            next = match (write.base, &write.removed) {
                (Some(base), _) if base >= version => {
                    return Err(format!(
                        "`{}` was not read at the end, and its version {version} claims to be built on version {base}",
                        self.key
                    ));
                }
                (Some(base), _) => self.place_of_version(&order[..at], base)?,
                // It removed nothing, so it was built on all that was there.
                (None, Some(removed)) if removed.is_empty() => at.checked_sub(1),
                (None, _) => {
                    return Err(format!(
                        "`{}` was not read at the end, and nobody knows what its version {version} was built on",
                        self.key
                    ));
                }
            };
        }
        Ok(survivors)
    }

    /// Where `version` stands in `order`; `None` when it is what the register began with.
    fn place_of_version(
        &self,
        order: &[(u64, usize)],
        version: u64,
    ) -> Result<Option<usize>, String> {
        match order.binary_search_by_key(&version, |&(version, _)| version) {
            Ok(at) => Ok(Some(at)),
            Err(0) => Ok(None),
            Err(_) => Err(format!(
                "`{}` was not read at the end, and no write of its version {version} is on record",
                self.key
            )),
        }
    }

    /// The write that clobbered each of `lost` (places in [`writes`](Self::writes)), where one is on record.
    #[must_use]
    pub fn clobbers(&self, history: &History, lost: &[usize]) -> Vec<Clobber> {
        let seen = self.seen_removals();
        let derived = self.derived_clobberers();
        let clobber = |&place: &usize| {
            let write = &self.writes[place];
            let by = seen
                .get(&write.element)
                .or_else(|| derived.get(&place))
                .map(|&by| &self.writes[by]);
            Clobber {
                lost: write.operation,
                by: by.map(|by| by.operation),
                at_ns: match by {
                    Some(by) if by.effect_ns != Ns::MAX => by.effect_ns,
                    _ => history.last_ns,
                },
            }
        };
        lost.iter().map(clobber).collect()
    }

    /// The write by which the resource saw each element vanish for the last time.
    fn seen_removals(&self) -> HashMap<u64, usize> {
        let mut removals = HashMap::new();
        for (_, place) in self.by_version() {
            for &element in self.writes[place].removed.iter().flatten() {
                removals.insert(element, place);
            }
        }
        removals
    }

    fn derived_clobberers(&self) -> HashMap<usize, usize> {
        let mut clobberers = HashMap::new();
        // Versions not clobbered so far, rising.
        let mut standing: Vec<(u64, usize)> = Vec::new();
        for (version, place) in self.by_version() {
            if let Some(base) = self.writes[place].base {
                while let Some(&(top, clobbered)) = standing.last()
                    && top > base
                {
                    standing.pop();
                    clobberers.insert(clobbered, place);
                }
            }
            standing.push((version, place));
        }
        clobberers
    }
}
