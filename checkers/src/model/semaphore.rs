//! A semaphore whose permits belong to the process that took them.
//!
//! # Why it is exact
//! As for the mutex (see [`super::owner`]): an acquire of unknown outcome can be placed last and is
//! dropped; in any order a permit is held from the return of its acquire to the invoke of its release
//! at least; and placing acquires at their returns and releases at their invokes holds it for no longer.
//! *So the history is linearizable exactly if nobody releases what it does not hold and at every instant
//! the acquires that have returned, less the releases that were invoked, are at most K.* A process may
//! hold several permits.
//!
//! Cost: O(n log n).

use super::decision::{Rule, Violation};
use super::op::{Action, FOREVER, Op};
use crate::history::Outcome;
use crate::slots::Slots;

/// A permit from the return of its acquire to the invoke of its release.
#[derive(Clone, Copy)]
struct Hold {
    from: u64,
    to: u64,
    acquire: u32,
}

/// Decides one semaphore of `permits`. `ops` are sorted by invoke.
pub(super) fn decide(ops: &[Op], permits: u32) -> Result<(), Violation> {
    let mut holds = holds(ops)?;
    holds.sort_by_key(|hold| (hold.from, hold.to));
    // Ends of those in force, earliest first.
    let mut ends: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u32)>> =
        std::collections::BinaryHeap::new();
    for hold in holds {
        while let Some(&std::cmp::Reverse((to, _))) = ends.peek()
            && to <= hold.from
        {
            ends.pop();
        }
        ends.push(std::cmp::Reverse((hold.to, hold.acquire)));
        if ends.len() > permits as usize {
            let mut ids: Vec<u32> = ends.into_iter().map(|end| end.0.1).collect();
            ids.sort_unstable();
            return Err(Violation::new(Rule::TooManyPermits, ids));
        }
    }
    Ok(())
}

/// Every permit that was certainly held. Which of its permits a process gives back is its own choice:
/// the one that it took last, which makes the holds of a process nest and changes no count.
fn holds(ops: &[Op]) -> Result<Vec<Hold>, Violation> {
    let mut open: Slots<Vec<usize>> = Slots::new(ops.len());
    let mut holds: Vec<Hold> = Vec::with_capacity(ops.len() / 2 + 1);
    for op in ops.iter().filter(|op| op.outcome != Outcome::Fail) {
        match op.action {
            Action::Acquire if op.outcome == Outcome::Info => {}
            Action::Acquire => {
                open.at(op.process).push(holds.len());
                holds.push(Hold {
                    from: op.return_at,
                    to: FOREVER,
                    acquire: op.id,
                });
            }
            Action::Release => match open.at(op.process).pop() {
                Some(hold) => holds[hold].to = op.invoke_at,
                None if op.outcome == Outcome::Info => {}
                None => return Err(Violation::new(Rule::ReleasedUnheld, [op.id])),
            },
            _ => {}
        }
    }
    Ok(holds)
}
