//! Locks that do not know their owner: Knossos's `mutex`, and a semaphore with K permits.
//!
//! The state is a number s of permits taken, 0 ≤ s ≤ K; anybody may release what anybody acquired.
//!
//! # Why it is exact
//! Go through the invokes and returns in the order of time and act as late as possible: nothing at an
//! invoke; at a return, if that operation has not been placed, place it now. If the state forbids it,
//! first place one pending operation of the opposite kind, and of those the one whose own return comes
//! first (an unknown outcome has its return at ∞). If there is none, no order exists.
//!
//! *Acting late loses nothing*: an order that places an operation earlier than it must can be changed so
//! that it is placed at its return, unless an opposite operation needed it; then it is the greedy step.
//! One opposite operation is always enough, since the state moves by one. *Earliest return first*: two
//! pending operations of one kind have the same effect, so in any order that uses the one with the
//! later return here and the earlier one later, they can be exchanged: both are invoked by now, and
//! the exchange only moves the later deadline to the later place. So if any order exists, the greedy
//! one does. Checked against brute force in `tests/models.rs`.
//!
//! Cost: O(n log n), whatever the number of unknown outcomes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::decision::{Rule, Violation};
use super::op::{Action, FOREVER, Op};
use crate::history::Outcome;

/// With more permits than this, the witness is not shortened: it would need a try per state.
const MAX_STATES_TRIED: u32 = 16;

/// Making a witness smaller looks at no more operations than this: some milliseconds.
const MAX_EFFORT_OPS: usize = 200_000;

/// Decides one lock with `permits`. `ops` are sorted by invoke.
pub(super) fn decide(ops: &[Op], permits: u32) -> Result<(), Violation> {
    match stuck(ops, permits, 0) {
        None => Ok(()),
        Some(place) => Err(shorten(ops, permits, place)),
    }
}

/// The place of the first operation for which there is no order, beginning with `taken` permits.
fn stuck(ops: &[Op], permits: u32, taken: u32) -> Option<usize> {
    let mut returns: Vec<(u64, u32)> = (0_u32..)
        .zip(ops)
        .filter(|(_, op)| op.is_ok() && is_ours(op))
        .map(|(place, op)| (op.return_at, place))
        .collect();
    returns.sort();
    let mut invokes = (0_u32..)
        .zip(ops)
        .filter(|(_, op)| op.outcome != Outcome::Fail && is_ours(op))
        .peekable();
    let mut placed = vec![false; ops.len()];
    let mut pending = [Pending::new(), Pending::new()];
    let mut taken = taken;
    for (return_at, place) in returns {
        while let Some((invoked, op)) = invokes.next_if(|(_, op)| op.invoke_at <= return_at) {
            let deadline = if op.is_ok() { op.return_at } else { FOREVER };
            pending[kind(op)].push(Reverse((deadline, invoked)));
        }
        let place = place as usize;
        if placed[place] {
            continue;
        }
        let kind = kind(&ops[place]);
        let allowed = if kind == ACQUIRE {
            taken < permits
        } else {
            taken > 0
        };
        if !allowed && take_first(&mut pending[1 - kind], &mut placed).is_none() {
            return Some(place);
        }
        placed[place] = true;
        if allowed {
            taken = if kind == ACQUIRE {
                taken + 1
            } else {
                taken - 1
            };
        }
    }
    None
}

type Pending = BinaryHeap<Reverse<(u64, u32)>>;

const ACQUIRE: usize = 0;

fn kind(op: &Op) -> usize {
    usize::from(op.action != Action::Acquire)
}

fn is_ours(op: &Op) -> bool {
    matches!(op.action, Action::Acquire | Action::Release)
}

fn take_first(pending: &mut Pending, placed: &mut [bool]) -> Option<u32> {
    while let Some(Reverse((_, place))) = pending.pop() {
        if !std::mem::replace(&mut placed[place as usize], true) {
            return Some(place);
        }
    }
    None
}

/// A small part of the history that has no order by itself.
///
/// First the shortest stretch before the stuck operation that has none from any state, where an operation
/// that began before the stretch may have taken effect before it. Unknown outcomes can make up for each
/// other over a whole history, so there may be no short stretch; what is left is then thinned out.
fn shorten(ops: &[Op], permits: u32, stuck_place: usize) -> Violation {
    let until = ops[stuck_place].return_at;
    let known: Vec<Op> = ops
        .iter()
        .filter(|op| op.outcome != Outcome::Fail && is_ours(op) && op.invoke_at <= until)
        .map(|op| forget_return(*op, op.return_at > until))
        .collect();
    let stretch = stretch(&known, permits).unwrap_or_else(|| known.clone());
    no_order(thin_out(stretch, permits), &ops[stuck_place])
}

fn stretch(known: &[Op], permits: u32) -> Option<Vec<Op>> {
    let mut returns: Vec<u64> = known.iter().map(|op| op.return_at).collect();
    returns.sort_unstable();
    returns.retain(|&at| at != FOREVER);
    let mut length = 1;
    while permits <= MAX_STATES_TRIED && length < returns.len() {
        let from = returns[returns.len() - length];
        let stretch: Vec<Op> = known
            .iter()
            .filter(|op| op.return_at >= from)
            .map(|op| forget_return(*op, op.invoke_at < from))
            .collect();
        if (0..=permits).all(|taken| stuck(&stretch, permits, taken).is_some()) {
            return Some(stretch);
        }
        length *= 2;
    }
    None
}

/// Leaves out sections (a process's acquire and its next release) as long as what is left has no order,
/// by delta debugging (Zeller & Hildebrandt, IEEE TSE 28, 2002) with a bounded effort.
fn thin_out(mut ops: Vec<Op>, permits: u32) -> Vec<Op> {
    let mut effort = MAX_EFFORT_OPS;
    let mut chunk = ops.len().div_ceil(4).max(1);
    loop {
        let sections = sections(&ops);
        let count = sections.iter().max().map_or(0, |&last| last + 1);
        let mut from = 0;
        let mut smaller = false;
        while from < count && effort > ops.len() {
            effort -= ops.len();
            let left_out = from..from + chunk;
            let keep = ops.iter().zip(&sections);
            let keep = keep.filter(|(_, section)| !left_out.contains(section));
            let left: Vec<Op> = keep.map(|(op, _)| *op).collect();
            if stuck(&left, permits, 0).is_some() {
                ops = left;
                smaller = true;
                break;
            }
            from += chunk;
        }
        if effort <= ops.len() || (chunk == 1 && !smaller) {
            return ops;
        }
        if !smaller {
            chunk = chunk.div_ceil(2);
        }
    }
}

/// The number of each operation's section.
fn sections(ops: &[Op]) -> Vec<usize> {
    let mut open: HashMap<u32, usize> = HashMap::new();
    let mut count = 0;
    let mut of_op = Vec::with_capacity(ops.len());
    for op in ops {
        let started = match op.action {
            Action::Release => open.remove(&op.process),
            _ => None,
        };
        let section = started.unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        if op.action == Action::Acquire {
            open.insert(op.process, section);
        }
        of_op.push(section);
    }
    of_op
}

fn forget_return(mut op: Op, forget: bool) -> Op {
    if forget {
        op.outcome = Outcome::Info;
        op.return_at = FOREVER;
    }
    op
}

/// The stuck operation last. Unknown outcomes of its own kind would not have helped it.
fn no_order(stretch: Vec<Op>, stuck: &Op) -> Violation {
    let mut told: Vec<&Op> = stretch
        .iter()
        .filter(|op| op.is_ok() || op.action != stuck.action)
        .collect();
    told.sort_by_key(|op| (op.id == stuck.id, op.invoke_at, op.id));
    let ids: Vec<u32> = told.into_iter().map(|op| op.id).collect();
    Violation::new(Rule::NoOrder, ids)
}
