//! A set that is read as a whole: what became of each element, in the notions of Jepsen's `set-full`.
//!
//! An element is *known* from the moment its add returned, or a read that saw it returned. It is *lost* if a
//! read that began after that does not see it, and no later-begun read does; *stable* if the latest-begun
//! read that could see it does; *stale* if it is stable, and a read that began after it was known missed it;
//! *never read* if neither. Beyond the original: *duplicated* elements stand more than once in one
//! read, *unexpected* ones were never added (or their add definitely failed).
//!
//! Jepsen updates every element at every read: O(reads × adds). Here reads are taken from the one begun last
//! to the one begun first, and each element counts how many of them in a row have seen it. The first that
//! does not is its latest absence. Cost: O(n log n + the elements that the reads list).

use std::collections::HashMap;

use crate::foreign::Lists;
use crate::history::Outcome;
use crate::model::op::{Action, Op, UNKNOWN};

/// What became of the elements of one set. Each list holds places in the slice of operations: of the add,
/// or of the read that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetFull {
    /// Adds invoked.
    pub attempted: u64,
    /// Adds that succeeded.
    pub acknowledged: u64,
    /// Reads that succeeded.
    pub reads: u64,
    /// Elements that the latest reads see.
    pub stable: u64,
    /// Adds whose element is neither stable nor lost.
    pub never_read: u64,
    /// Adds of unknown outcome whose element is stable.
    pub recovered: u64,
    /// Lost elements: the add, and the latest read that misses it.
    pub lost: Vec<(usize, usize)>,
    /// Stale elements: the add, and the latest read that missed it.
    pub stale: Vec<(usize, usize)>,
    /// Elements that a read lists more than once: the element and the first such read.
    pub duplicated: Vec<(u32, usize)>,
    /// Elements that nobody added: the element and the first read that lists it.
    pub unexpected: Vec<(u32, usize)>,
}

/// What is known of one element.
#[derive(Clone, Copy)]
struct Element {
    /// Place of its add.
    add: Option<usize>,
    /// It is known since then.
    known_at: u64,
    /// How many of the latest-begun reads in a row see it.
    in_a_row: usize,
    /// The rank of the latest-begun read that sees it.
    last_present: Option<usize>,
    /// The read that was counted last, so that one that lists it twice counts once.
    last_read: Option<usize>,
    duplicated_in: Option<usize>,
    first_seen: Option<usize>,
}

impl Default for Element {
    fn default() -> Self {
        Self {
            add: None,
            known_at: u64::MAX,
            in_a_row: 0,
            last_present: None,
            last_read: None,
            duplicated_in: None,
            first_seen: None,
        }
    }
}

/// Judges one set. `ops` are sorted by invoke.
#[must_use]
pub fn judge(ops: &[Op], lists: &Lists) -> SetFull {
    let mut found = SetFull::default();
    let mut elements: HashMap<u32, Element> = HashMap::new();
    for (place, op) in ops.iter().enumerate() {
        if op.action != Action::Add || op.arg == UNKNOWN {
            continue;
        }
        found.attempted += 1;
        found.acknowledged += u64::from(op.is_ok());
        let element = elements.entry(number(op.arg)).or_default();
        // Of several adds of one element, one that took effect counts.
        let better = element
            .add
            .is_none_or(|before| ops[before].outcome == Outcome::Fail);
        if better {
            element.add = Some(place);
        }
        if op.is_ok() {
            element.known_at = element.known_at.min(op.return_at);
        }
    }
    // From the one begun last to the one begun first.
    let read = |place: &usize| {
        ops[*place].action == Action::ReadAll && ops[*place].is_ok() && ops[*place].arg != UNKNOWN
    };
    let reads: Vec<usize> = (0..ops.len()).rev().filter(read).collect();
    found.reads = reads.len() as u64;
    for (rank, &place) in reads.iter().enumerate() {
        for &number in lists.get(ops[place].arg) {
            elements
                .entry(number)
                .or_default()
                .seen(rank, place, ops[place].return_at);
        }
    }
    let mut numbers: Vec<u32> = elements.keys().copied().collect();
    numbers.sort_unstable();
    for number in numbers {
        sort_out(&mut found, ops, &reads, number, &elements[&number]);
    }
    found
}

impl Element {
    fn seen(&mut self, rank: usize, place: usize, return_at: u64) {
        if self.last_read == Some(rank) {
            self.duplicated_in = Some(place);
            return;
        }
        self.last_read = Some(rank);
        self.first_seen = Some(place);
        self.known_at = self.known_at.min(return_at);
        self.last_present.get_or_insert(rank);
        if self.in_a_row == rank {
            self.in_a_row += 1;
        }
    }
}

fn sort_out(found: &mut SetFull, ops: &[Op], reads: &[usize], number: u32, element: &Element) {
    if let Some(read) = element.duplicated_in {
        found.duplicated.push((number, read));
    }
    let add = element.add.filter(|&add| ops[add].outcome != Outcome::Fail);
    let Some(add) = add else {
        if let Some(read) = element.first_seen {
            found.unexpected.push((number, read));
        }
        return;
    };
    // The latest-begun read that misses it. One that began before it was known may rightly do so.
    let absent = reads.get(element.in_a_row).copied();
    let missed = absent.filter(|&read| element.known_at < ops[read].invoke_at);
    match (element.last_present, absent) {
        // Ranks count from the read begun last.
        (Some(present), _) if present < element.in_a_row => {
            found.stable += 1;
            found.recovered += u64::from(!ops[add].is_ok());
            if let Some(read) = missed {
                found.stale.push((add, read));
            }
        }
        _ => match missed {
            Some(read) => found.lost.push((add, read)),
            None => found.never_read += 1,
        },
    }
}

#[allow(clippy::cast_possible_truncation)] // Elements are numbered in 32 bits.
fn number(arg: u64) -> u32 {
    arg as u32
}
