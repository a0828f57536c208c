//! The operation that models are decided on: 40 bytes, whatever format it was read from.
//!
//! Ten million of them are 400 MB, so nothing in here owns memory: names, values and lists of values
//! are numbers in tables that their reader keeps. It knows nothing of files.

use crate::history::Outcome;

/// The return of an operation that may take effect at any later time, or never.
pub const FOREVER: u64 = u64::MAX;

/// The argument of an acquire without a known token, and of a read whose value nobody knows.
pub const UNKNOWN: u64 = u64::MAX;

/// What an operation does. What its `arg` means depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// Takes a lock; `arg` is the fencing token or [`UNKNOWN`].
    Acquire,
    /// Gives a lock back.
    Release,
    /// Reads a register; `arg` is the value's number or [`UNKNOWN`].
    Read,
    /// Writes a register; `arg` is the value's number.
    Write,
    /// Sets a register to the second value if it holds the first (see [`pair`]).
    Cas,
    /// Adds an element to a set; `arg` is the element's number.
    Add,
    /// Reads a whole set; `arg` is the number of its list of elements.
    ReadAll,
}

/// One operation on one lock, register or set.
///
/// Times are *ticks*: nanoseconds of truth time in fencepost's own histories, positions in the file in
/// those of others. Operation a precedes b exactly if `a.return_at < b.invoke_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// When it was invoked.
    pub invoke_at: u64,
    /// When it returned; [`FOREVER`] when its outcome is [`Outcome::Info`].
    pub return_at: u64,
    /// Its argument or result; see [`Action`].
    pub arg: u64,
    /// Who did it. Does one thing at a time, and nothing after an [`Outcome::Info`].
    pub process: u32,
    /// The lock, register or set, as a number.
    pub key: u32,
    /// Its number in its history.
    pub id: u32,
    /// What it does.
    pub action: Action,
    /// How it ended. An [`Outcome::Fail`] had no effect.
    pub outcome: Outcome,
}

impl Op {
    /// True when it is known to have taken effect.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok
    }

    /// The fencing token of an acquire.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        (self.arg != UNKNOWN).then_some(self.arg)
    }
}

/// The argument of a [`Action::Cas`].
#[must_use]
pub fn pair(expected: u32, new: u32) -> u64 {
    u64::from(expected) << 32 | u64::from(new)
}

/// The two values of a [`Action::Cas`]: what it expects, what it sets.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // The two halves are what is wanted.
pub fn unpair(arg: u64) -> (u32, u32) {
    ((arg >> 32) as u32, arg as u32)
}

/// Sorts operations by key, then by invoke, and gives each key's slice to `each`.
///
/// This is P-compositionality (Herlihy & Wing, TOPLAS 12, 1990): a history is linearizable exactly if
/// that of each object is.
pub fn partition<'o, B>(
    ops: &'o mut [Op],
    each: impl FnMut(&'o [Op]) -> std::ops::ControlFlow<B>,
) -> std::ops::ControlFlow<B> {
    let order = |op: &Op| (op.key, op.invoke_at, op.id);
    if !ops.is_sorted_by_key(order) {
        // Stable, because it makes use of the long sorted runs that a history has.
        ops.sort_by_key(order);
    }
    ops.chunk_by(|a, b| a.key == b.key).try_for_each(each)
}
