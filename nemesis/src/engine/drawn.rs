//! The generator's draws as they are carried out: which is next, and from when on it may strike.
//!
//! Pure bookkeeping: no clock, no thread, no lock.

use std::collections::VecDeque;

use crate::FiringId;
use crate::generator::HealPhases;
use crate::schedule::{DrawnFiring, DrawnSchedule};

/// What is left of the draws, and what limits them.
pub(super) struct Drawn {
    /// The next first; truth times.
    waiting: VecDeque<DrawnFiring>,
    at_most_at_once: u32,
    quiet_ns: u64,
    /// Drawn faults in force, with the one that is being injected.
    in_force: u32,
    /// The one that is being injected: until it is, the quiet time has not begun.
    injecting: Option<FiringId>,
    /// When one of them began or ended last.
    changed_ns: Option<u64>,
}

impl Drawn {
    pub(super) fn new(schedule: &DrawnSchedule, start_ns: u64) -> Self {
        let later = |firing: &DrawnFiring| DrawnFiring {
            at_ns: start_ns.saturating_add(firing.at_ns),
            choices: firing.choices.clone(),
        };
        Self {
            waiting: schedule.firings.iter().map(later).collect(),
            at_most_at_once: schedule.at_most_at_once,
            quiet_ns: schedule.quiet_ns,
            in_force: 0,
            injecting: None,
            changed_ns: None,
        }
    }

    /// From when on the next may strike. `None` when there is none, or as long as too many are in force or one
    /// is being injected.
    pub(super) fn next_ns(&self, phases: &HealPhases) -> Option<u64> {
        if self.in_force >= self.at_most_at_once || self.injecting.is_some() {
            return None;
        }
        let quiet_until = |changed_ns: u64| changed_ns.saturating_add(self.quiet_ns);
        let due_ns = self.waiting.front()?.at_ns;
        let may_ns = self.changed_ns.map_or(0, quiet_until);
        Some(phases.out_of(due_ns.max(may_ns)))
    }

    /// Takes the next; it counts as in force until [`ended`](Self::ended).
    pub(super) fn take(&mut self, id: FiringId) -> Option<DrawnFiring> {
        let firing = self.waiting.pop_front()?;
        self.in_force += 1;
        self.injecting = Some(id);
        Some(firing)
    }

    /// The one that was taken is in force since then: the quiet time counts from here.
    pub(super) fn began(&mut self, since_ns: u64) {
        self.injecting = None;
        self.changed_ns = self.changed_ns.max(Some(since_ns));
    }

    /// One that was taken is over, or came to nothing.
    pub(super) fn ended(&mut self, id: FiringId, now_ns: u64) {
        self.injecting = self.injecting.filter(|injecting| *injecting != id);
        self.in_force = self.in_force.saturating_sub(1);
        self.changed_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::HealPhase;

    fn drawn(times: &[u64], at_most_at_once: u32, quiet_ns: u64) -> Drawn {
        let firings = times.iter().map(|at_ns| DrawnFiring {
            at_ns: *at_ns,
            choices: Vec::new(),
        });
        let schedule = DrawnSchedule {
            at_most_at_once,
            quiet_ns,
            firings: firings.collect(),
        };
        Drawn::new(&schedule, 1000)
    }

    #[test]
    fn a_draw_waits_while_too_many_are_in_force_and_for_the_quiet_time() {
        let none = HealPhases::default();
        let mut one = drawn(&[10, 20, 90], 1, 5);
        assert_eq!(one.next_ns(&none), Some(1010));
        one.take(1).expect("the first");
        one.began(1011);
        assert_eq!(one.next_ns(&none), None);
        one.ended(1, 1040);
        assert_eq!(one.next_ns(&none), Some(1045));
        one.take(2).expect("the second");
        // It came to nothing.
        one.ended(2, 1046);
        assert_eq!(one.next_ns(&none), Some(1090));
        one.take(3).expect("the third");
        one.ended(3, 1091);
        assert_eq!(one.next_ns(&none), None);
    }

    #[test]
    fn two_may_be_in_force_together_but_begin_apart() {
        let none = HealPhases::default();
        let mut two = drawn(&[10, 10, 10], 2, 5);
        two.take(1).expect("the first");
        assert_eq!(two.next_ns(&none), None, "it is being injected");
        two.began(1012);
        assert_eq!(two.next_ns(&none), Some(1017));
        two.take(2).expect("the second");
        two.ended(1, 1020);
        assert_eq!(two.next_ns(&none), None, "the second is being injected");
        two.began(1021);
        assert_eq!(two.next_ns(&none), Some(1026));
        two.take(3).expect("the third");
        two.began(1027);
        assert_eq!(two.next_ns(&none), None);
    }

    #[test]
    fn nothing_strikes_in_a_heal_phase() {
        let phases = HealPhases(vec![HealPhase {
            from_ns: 1020,
            to_ns: 1030,
        }]);
        let mut one = drawn(&[10, 19], 1, 5);
        one.take(1).expect("the first");
        one.ended(1, 1018);
        assert_eq!(one.next_ns(&phases), Some(1030));
    }
}
