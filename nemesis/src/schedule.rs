//! The schedule: everything about the faults that is left to chance, drawn from the seed in advance.
//!
//! It is stored in `plan.json`, so that a trial can be repeated with the same draws. What is not in
//! here, because no seed can settle it: when the events come that some faults wait for, and who holds
//! or leads at that time. Clocks and threads have no place in this file.

use serde::{Deserialize, Serialize};

use crate::draw::Draws;
use crate::{FaultPlan, Generator, PlanError, Trigger};

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

/// One of the faults that a draw of the generator can come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Which fault, by its position in the list of plans.
    pub fault: usize,
    /// How long it lasts, but not beyond the next heal phase or the end; `None` means until then.
    pub lasts_ns: Option<u64>,
    /// Decides wherever the target leaves a choice.
    pub pick: u64,
}

/// One draw of the generator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnFiring {
    /// When, after the start of the workload. Later if the limits demand it.
    pub at_ns: u64,
    /// The faults in the order drawn: the first that applies at that moment strikes.
    pub choices: Vec<Choice>,
}

/// All draws of the generator, with the limits that hold while they are carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnSchedule {
    /// So many drawn faults may be in force at a time.
    pub at_most_at_once: u32,
    /// Least time from the last change to the next drawn fault.
    pub quiet_ns: u64,
    /// The draws, in the order of their times.
    pub firings: Vec<DrawnFiring>,
}

/// A phase in which everything is healed and nothing strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealPhase {
    /// Its start, after the start of the workload.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
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
    /// Draws of the generator, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<DrawnSchedule>,
    /// Phases in which everything is healed, sorted by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heal: Vec<HealPhase>,
}

impl Schedule {
    /// Draws the schedule of a trial whose faults all have triggers of their own.
    ///
    /// # Errors
    /// As for [`Self::draw_with`].
    pub fn draw(seed: u64, plans: &[FaultPlan], duration_ns: u64) -> Result<Self, PlanError> {
        Self::draw_with(seed, plans, None, duration_ns)
    }

    /// Draws the schedule of a trial. The same arguments give the same schedule on every machine, and
    /// each fault draws from its own ChaCha8 stream, numbered by its position: a fault that is added
    /// at the end of the list does not change the others.
    ///
    /// # Errors
    /// The first plan that cannot be carried out, or what is wrong with the generator.
    pub fn draw_with(
        seed: u64,
        plans: &[FaultPlan],
        generator: Option<&Generator>,
        duration_ns: u64,
    ) -> Result<Self, PlanError> {
        let mut schedule = Self {
            seed,
            duration_ns,
            timed: Vec::new(),
            on_event: Vec::new(),
            drawn: None,
            heal: Vec::new(),
        };
        for (fault, plan) in plans.iter().enumerate() {
            plan.check(fault + 1, duration_ns)?;
            if generator.is_none() && matches!(plan.trigger, Trigger::Drawn { .. }) {
                return Err(PlanError::Generator {
                    why: format!("fault {} is to be drawn, and nothing draws it", fault + 1),
                });
            }
            let mut draws = Draws::new(seed, fault as u64);
            schedule.draw_fault(fault, plan, &mut draws);
        }
        schedule
            .timed
            .sort_by_key(|firing| (firing.at_ns, firing.fault));
        if let Some(generator) = generator {
            generator.check(plans, duration_ns)?;
            schedule.drawn = Some(generator.draw(seed, plans, duration_ns));
            let phases = generator.phases(duration_ns);
            let strikes = |firing: &TimedFiring| phases.around(firing.at_ns).is_none();
            schedule.timed.retain(strikes);
            schedule.heal = phases.0;
        }
        Ok(schedule)
    }

    /// Whether it can have been drawn from these plans.
    ///
    /// # Errors
    /// What does not fit.
    pub fn belongs_to(&self, plans: &[FaultPlan]) -> Result<(), String> {
        let drawn = self.drawn.iter().flat_map(|drawn| &drawn.firings);
        let choices = drawn.flat_map(|firing| &firing.choices);
        let mut faults = (self.timed.iter().map(|firing| firing.fault))
            .chain(choices.map(|choice| choice.fault));
        if let Some(fault) = faults.find(|fault| *fault >= plans.len()) {
            return Err(format!(
                "it has a firing of fault {}, but there are {}",
                fault + 1,
                plans.len()
            ));
        }
        let waits = |fault: usize| {
            let plan = plans.get(fault);
            plan.is_some_and(|plan| matches!(plan.trigger, Trigger::On { .. }))
        };
        let idle = |draws: &&EventDraws| !waits(draws.fault) || draws.draws.is_empty();
        if let Some(draws) = self.on_event.iter().find(idle) {
            return Err(format!(
                "it has draws for events of fault {}, which waits for none, or it has none for them",
                draws.fault + 1
            ));
        }
        if let Some(drawn) = &self.drawn {
            if drawn.at_most_at_once == 0 {
                return Err("it lets no drawn fault be in force".to_owned());
            }
            if drawn.firings.iter().any(|firing| firing.choices.is_empty()) {
                return Err("it has a draw that came to no fault".to_owned());
            }
        }
        Ok(())
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
            Trigger::At { .. } | Trigger::Drawn { .. } => {}
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
