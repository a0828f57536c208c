//! What each model means, as a state machine: one operation after another, nothing at the same time.
//!
//! These are the definitions. The direct algorithms in [`crate::model`] are proven and tested against
//! them; [`super::wgl`] searches with them. They must stay too simple to be wrong.

use std::hash::Hash;

use crate::history::Outcome;
use crate::model::op::{Action, Op, UNKNOWN, unpair};

/// A sequential object.
pub trait Spec {
    /// Its state.
    type State: Clone + Eq + Hash;

    /// The state at the beginning.
    fn initial(&self) -> Self::State;

    /// The state after `op`, or `None` if it could not have happened like this in `state`.
    fn step(&self, state: &Self::State, op: &Op) -> Option<Self::State>;

    /// True when a failed `op` says something about the state; otherwise failures are dropped.
    fn observes_failure(&self, _op: &Op) -> bool {
        false
    }

    /// True when `op` never changes the state, whatever it is.
    fn only_observes(&self, _op: &Op) -> bool {
        false
    }

    /// True when the two do the same to every state, whoever did them.
    fn same_effect(&self, a: &Op, b: &Op) -> bool {
        (a.action, a.arg, a.process) == (b.action, b.arg, b.process)
    }
}

/// A mutex, reentrant lock or fenced lock with its owner.
#[derive(Clone, Copy, Debug)]
pub struct OwnerLockSpec(pub crate::model::owner::OwnerLock);

/// Owner, depth, token of this holding, highest token before it. Tokens are 0 while unknown, else token + 1.
pub type OwnerState = (Option<u32>, u32, u64, u64);

impl Spec for OwnerLockSpec {
    type State = OwnerState;

    fn initial(&self) -> OwnerState {
        (None, 0, 0, 0)
    }

    fn step(&self, &(owner, depth, token, highest): &OwnerState, op: &Op) -> Option<OwnerState> {
        let known = self.0.fenced && op.is_ok() && op.arg != UNKNOWN;
        let new = if known { op.arg + 1 } else { 0 };
        match op.action {
            Action::Acquire if owner.is_none() => {
                (new == 0 || new > highest).then_some((Some(op.process), 1, new, new.max(highest)))
            }
            Action::Acquire if owner == Some(op.process) && depth < self.0.cap => {
                if new == 0 || new == token {
                    Some((owner, depth + 1, token, highest))
                } else if token == 0 && new > highest {
                    Some((owner, depth + 1, new, new))
                } else {
                    None
                }
            }
            Action::Release if owner == Some(op.process) => Some(match depth {
                1 => (None, 0, 0, highest),
                _ => (owner, depth - 1, token, highest),
            }),
            _ => None,
        }
    }
}

/// A semaphore whose permits belong to who took them.
#[derive(Clone, Copy, Debug)]
pub struct SemaphoreSpec {
    /// How many there are.
    pub permits: u32,
}

impl Spec for SemaphoreSpec {
    /// Permits by process, none with 0.
    type State = Vec<(u32, u32)>;

    fn initial(&self) -> Self::State {
        Vec::new()
    }

    fn step(&self, state: &Self::State, op: &Op) -> Option<Self::State> {
        let mut state = state.clone();
        let place = state.binary_search_by_key(&op.process, |&(process, _)| process);
        match (op.action, place) {
            (Action::Acquire, place) => {
                if state.iter().map(|&(_, held)| held).sum::<u32>() >= self.permits {
                    return None;
                }
                match place {
                    Ok(place) => state[place].1 += 1,
                    Err(place) => state.insert(place, (op.process, 1)),
                }
            }
            (Action::Release, Ok(place)) if state[place].1 > 1 => state[place].1 -= 1,
            (Action::Release, Ok(place)) => {
                state.remove(place);
            }
            _ => return None,
        }
        Some(state)
    }
}

/// A mutex (one permit) or semaphore that anybody may release.
#[derive(Clone, Copy, Debug)]
pub struct OwnerlessSpec {
    /// How many permits there are.
    pub permits: u32,
}

impl Spec for OwnerlessSpec {
    /// Permits taken.
    type State = u32;

    fn initial(&self) -> u32 {
        0
    }

    fn step(&self, taken: &u32, op: &Op) -> Option<u32> {
        match op.action {
            Action::Acquire if *taken < self.permits => Some(taken + 1),
            Action::Release => taken.checked_sub(1),
            _ => None,
        }
    }

    fn same_effect(&self, a: &Op, b: &Op) -> bool {
        a.action == b.action
    }
}

/// A register with read, write and compare-and-set.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSpec {
    /// What it holds at the beginning.
    pub initial: u32,
    /// True when a failed compare-and-set proves that the register did not hold what it expected (as in
    /// Porcupine's etcd model). False when it says nothing (as in Knossos).
    pub failed_cas_observes: bool,
}

impl Spec for RegisterSpec {
    type State = u32;

    fn initial(&self) -> u32 {
        self.initial
    }

    fn step(&self, state: &u32, op: &Op) -> Option<u32> {
        match op.action {
            Action::Read => (op.arg == UNKNOWN || op.arg == u64::from(*state)).then_some(*state),
            #[allow(clippy::cast_possible_truncation)] // Values are numbered in 32 bits.
            Action::Write => Some(op.arg as u32),
            Action::Cas => {
                let (expected, new) = unpair(op.arg);
                if op.outcome == Outcome::Fail {
                    (expected != *state).then_some(*state)
                } else {
                    (expected == *state).then_some(new)
                }
            }
            _ => None,
        }
    }

    fn observes_failure(&self, op: &Op) -> bool {
        self.failed_cas_observes && op.action == Action::Cas
    }

    fn only_observes(&self, op: &Op) -> bool {
        op.action == Action::Read || op.outcome == Outcome::Fail
    }

    fn same_effect(&self, a: &Op, b: &Op) -> bool {
        (a.action, a.arg) == (b.action, b.arg)
    }
}
