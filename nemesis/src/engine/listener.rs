//! A fault that waits for an event: which occurrences make it fire.
//!
//! Pure bookkeeping: no clock, no thread, no lock.

use crate::generator::HealPhases;
use crate::schedule::{EventDraw, EventDraws};
use crate::{FaultPlan, Trigger, TriggerEvent};

/// One fault that waits for an event.
pub(super) struct Listener {
    /// Position of its plan.
    pub(super) fault: usize,
    /// What it waits for.
    pub(super) event: TriggerEvent,
    at_most: Option<u32>,
    spacing_ns: u64,
    draws: Vec<EventDraw>,
    /// Draws used so far.
    used: usize,
    /// Firings so far, without those that found nobody.
    fired: u32,
    /// When it fired last.
    last_ns: Option<u64>,
}

impl Listener {
    /// `None` when the plan waits for no event, or has no draws.
    pub(super) fn new(plan: &FaultPlan, draws: &EventDraws) -> Option<Self> {
        let Trigger::On {
            event,
            at_most,
            spacing_ns,
            ..
        } = plan.trigger
        else {
            return None;
        };
        (!draws.draws.is_empty()).then(|| Self {
            fault: draws.fault,
            event,
            at_most,
            spacing_ns,
            draws: draws.draws.clone(),
            used: 0,
            fired: 0,
            last_ns: None,
        })
    }

    /// Hears of an occurrence, and returns the draw to carry out if it makes the fault fire. An
    /// occurrence that is passed over, for instance since everything is being healed, uses no draw.
    pub(super) fn hear(
        &mut self,
        at_ns: u64,
        end_ns: u64,
        phases: &HealPhases,
    ) -> Option<EventDraw> {
        let enough = self.at_most.is_some_and(|most| self.fired >= most);
        let too_close = self
            .last_ns
            .is_some_and(|last_ns| at_ns < last_ns.saturating_add(self.spacing_ns));
        if enough || too_close {
            return None;
        }
        let draw = &self.draws[self.used % self.draws.len()];
        let strikes_ns = at_ns.saturating_add(draw.delay_ns);
        if strikes_ns >= end_ns || phases.around(strikes_ns).is_some() {
            return None;
        }
        self.used += 1;
        if !draw.fires {
            return None;
        }
        self.fired += 1;
        self.last_ns = Some(at_ns);
        Some(draw.clone())
    }

    /// Takes back a firing that found nobody to strike.
    pub(super) fn forgive(&mut self) {
        self.fired = self.fired.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Params, Target};

    fn listener(fires: &[bool], at_most: Option<u32>, spacing_ns: u64) -> Listener {
        let plan = FaultPlan {
            kind: "pause".to_owned(),
            target: Target::Holder,
            trigger: Trigger::On {
                event: TriggerEvent::Acquired,
                after_ns: 0,
                probability: 0.5,
                at_most,
                spacing_ns,
            },
            lasts: None,
            params: Params::default(),
        };
        let draws = fires.iter().enumerate().map(|(index, &fires)| EventDraw {
            fires,
            delay_ns: 5,
            lasts_ns: None,
            pick: index as u64,
        });
        let draws = EventDraws {
            fault: 0,
            draws: draws.collect(),
        };
        Listener::new(&plan, &draws).expect("it waits for an event")
    }

    /// Times from `times` at which it fired, with the draw used.
    fn heard(listener: &mut Listener, times: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let fired = times.into_iter().filter_map(|at_ns| {
            Some((
                at_ns,
                listener.hear(at_ns, 1000, &HealPhases::default())?.pick,
            ))
        });
        fired.collect()
    }

    #[test]
    fn draws_are_used_in_order_and_again_from_the_first() {
        let mut one = listener(&[true, false, true], None, 0);
        assert_eq!(
            heard(&mut one, 0..7),
            [(0, 0), (2, 2), (3, 0), (5, 2), (6, 0)]
        );
    }

    #[test]
    fn spacing_passes_events_over_without_a_draw() {
        let mut one = listener(&[true, false, true, true], None, 10);
        assert_eq!(
            heard(&mut one, [0, 9, 10, 11, 20, 21, 30]),
            [(0, 0), (11, 2), (21, 3)]
        );
    }

    #[test]
    fn at_most_counts_firings_but_not_those_that_found_nobody() {
        let mut one = listener(&[true], Some(2), 0);
        assert_eq!(heard(&mut one, 0..5).len(), 2);
        one.forgive();
        assert_eq!(heard(&mut one, 5..9), [(5, 0)]);
    }

    #[test]
    fn nothing_fires_that_would_strike_after_the_end() {
        let mut one = listener(&[true], None, 0);
        assert_eq!(heard(&mut one, [994, 995, 2000]), [(994, 0)]);
    }
}
