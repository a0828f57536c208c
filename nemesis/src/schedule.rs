//! The schedule: everything about the faults that is left to chance, drawn from the seed in advance.
//!
//! It is stored in `plan.json`, so that a trial can be repeated with the same draws. What is not in
//! here, because no seed can settle it: when the events come that some faults wait for, and who holds
//! or leads at that time. Clocks and threads have no place in this file.

use serde::{Deserialize, Serialize};

use crate::draw::Draws;
use crate::{FaultPlan, PlanError, Trigger};

/// Draws made in advance for each fault that waits for an event.
pub const EVENT_DRAWS: usize = 256;

/// One firing by the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFiring {
    /// Which fault, by its position in the list of plans.
    pub fault: usize,
    /// When, after the start of the workload.
    pub at_ns: u64,
    /// How long it lasts; `None` means until the end of the trial.
    pub lasts_ns: Option<u64>,
    /// Decides wherever the target leaves a choice.
    pub pick: u64,
}

/// What happens at one occurrence of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDraw {
    /// Whether the fault strikes at all.
    pub fires: bool,
    /// How long after the event.
    pub delay_ns: u64,
    /// How long it lasts; `None` means until the end of the trial.
    pub lasts_ns: Option<u64>,
    /// Decides wherever the target leaves a choice.
    pub pick: u64,
}

/// The draws of one fault that waits for an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDraws {
    /// Which fault, by its position in the list of plans.
    pub fault: usize,
    /// [`EVENT_DRAWS`] draws, used in order, from the first again after the last. An event that is
    /// passed over (too close to the one that fired last, or enough have fired) uses none.
    pub draws: Vec<EventDraw>,
}

/// All draws of one trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// Length of the workload: no fault strikes at or after it.
    pub duration_ns: u64,
    /// Firings by the clock, sorted by time and then by fault.
    pub timed: Vec<TimedFiring>,
    /// Draws for the faults that wait for an event, sorted by fault.
    pub on_event: Vec<EventDraws>,
}

impl Schedule {
    /// Draws the schedule of a trial. The same arguments give the same schedule on every machine, and
    /// each fault draws from its own ChaCha8 stream, numbered by its position: a fault that is added
    /// at the end of the list does not change the others.
    ///
    /// # Errors
    /// The first plan that cannot be carried out.
    pub fn draw(seed: u64, plans: &[FaultPlan], duration_ns: u64) -> Result<Self, PlanError> {
        let mut schedule = Self {
            seed,
            duration_ns,
            timed: Vec::new(),
            on_event: Vec::new(),
        };
        for (fault, plan) in plans.iter().enumerate() {
            plan.check(fault + 1, duration_ns)?;
            let mut draws = Draws::new(seed, fault as u64);
            schedule.draw_fault(fault, plan, &mut draws);
        }
        schedule
            .timed
            .sort_by_key(|firing| (firing.at_ns, firing.fault));
        Ok(schedule)
    }

    /// Adds the draws of one fault.
    fn draw_fault(&mut self, fault: usize, plan: &FaultPlan, draws: &mut Draws) {
        let mut timed = |at_ns, draws: &mut Draws| {
            self.timed.push(TimedFiring {
                fault,
                at_ns,
                lasts_ns: plan.lasts.as_ref().map(|lasts| lasts.draw(draws)),
                pick: draws.pick(),
            });
        };
        match plan.trigger {
            Trigger::Every { every_ns, first_ns } => {
                let mut at_ns = first_ns;
                while at_ns < self.duration_ns {
                    timed(at_ns, draws);
                    at_ns = at_ns.saturating_add(every_ns);
                }
            }
            Trigger::At { at_ns } if at_ns < self.duration_ns => timed(at_ns, draws),
            Trigger::At { .. } => {}
            Trigger::On {
                after_ns,
                probability,
                ..
            } => {
                let draw_one = |_| EventDraw {
                    fires: draws.unit() < probability,
                    delay_ns: after_ns,
                    lasts_ns: plan.lasts.as_ref().map(|lasts| lasts.draw(draws)),
                    pick: draws.pick(),
                };
                let draws = (0..EVENT_DRAWS).map(draw_one).collect();
                self.on_event.push(EventDraws { fault, draws });
            }
        }
    }
}
