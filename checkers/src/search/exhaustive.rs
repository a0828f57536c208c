//! Every order, one after another: the oracle for small histories.
//!
//! It must stay so plain that it can be trusted by reading it. It is exponential and meant for tests,
//! fuzzing, and anyone who doubts a verdict on a history of a dozen operations.

use std::collections::HashSet;

use super::spec::Spec;
use crate::history::Outcome;
use crate::model::op::Op;

/// The most operations it takes.
pub const MAX_OPS: usize = 32;

/// True when some order explains the history.
///
/// # Panics
/// With more than [`MAX_OPS`] operations.
#[must_use]
pub fn linearizable<S: Spec>(spec: &S, ops: &[Op]) -> bool {
    assert!(ops.len() <= MAX_OPS, "meant for small histories");
    let relevant = |op: &&Op| op.outcome != Outcome::Fail || spec.observes_failure(op);
    let ops: Vec<Op> = ops.iter().filter(relevant).copied().collect();
    let mut seen = HashSet::new();
    place_next(spec, &ops, 0, &spec.initial(), &mut seen)
}

fn place_next<S: Spec>(
    spec: &S,
    ops: &[Op],
    placed: u32,
    state: &S::State,
    seen: &mut HashSet<(u32, S::State)>,
) -> bool {
    let open = |place: &usize| placed >> place & 1 == 0;
    let must = |place: &usize| ops[*place].outcome != Outcome::Info;
    let first_return = (0..ops.len())
        .filter(open)
        .filter(must)
        .map(|p| ops[p].return_at)
        .min();
    let Some(first_return) = first_return else {
        return true;
    };
    if !seen.insert((placed, state.clone())) {
        return false;
    }
    (0..ops.len()).filter(open).any(|place| {
        ops[place].invoke_at <= first_return
            && spec
                .step(state, &ops[place])
                .is_some_and(|next| place_next(spec, ops, placed | 1 << place, &next, seen))
    })
}
