//! A register with read, write and compare-and-set: the direct algorithm where values are unique, a
//! search where they repeat.

use super::decision::Decision;
use super::op::{Action, Op};
use super::unique;
use crate::history::Outcome;
use crate::search::spec::RegisterSpec;
use crate::search::wgl::{self, Limits};

/// Decides one register. `ops` are sorted by invoke.
pub(super) fn decide(ops: &[Op], register: RegisterSpec, limits: Limits) -> Decision {
    let observed_failure = |op: &Op| op.outcome == Outcome::Fail && op.action == Action::Cas;
    let direct = !register.failed_cas_observes || !ops.iter().any(observed_failure);
    if direct && let Some(decision) = unique::decide(ops, register.initial) {
        return decision.into();
    }
    wgl::decide(&register, ops, limits)
}
