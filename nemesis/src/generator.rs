//! The generator: which fault comes next is drawn by weight, again and again, with phases in between in
//! which everything is healed.
//!
//! All of it is drawn in advance and stored with the [`schedule`](crate::schedule), so that it can be read
//! and replayed. What only the run can tell is whether a fault applies at its moment: who holds, who leads,
//! who is down. Therefore each draw is an *order* of all faults, drawn by weight without putting back. The
//! first that applies is taken, which is the same as giving those before it the weight 0 at that moment and
//! drawing again. Clocks and threads have no place in this file.

use serde::{Deserialize, Serialize};

use crate::draw::Draws;
use crate::schedule::{Choice, DrawnFiring, DrawnSchedule, HealPhase};
use crate::{FaultPlan, PlanError, Trigger};

/// The stream of the generator's own draws; those below are the faults'.
const STREAM: u64 = u64::MAX;

/// A trial has at most so many draws; more is taken for a wrong unit.
const MOST_DRAWS: u64 = 10_000;

/// How the faults with [`Trigger::Drawn`] are drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Shortest time from one draw to the next.
    pub every_min_ns: u64,
    /// Longest time from one draw to the next. It becomes longer where the limits below demand it.
    pub every_max_ns: u64,
    /// So many drawn faults may be in force at a time.
    pub at_most_at_once: u32,
    /// Least time from the last change (a drawn fault that began or was healed) to the next that begins.
    pub quiet_ns: u64,
    /// Phases in which everything is healed.
    pub heal: Option<HealRhythm>,
    /// So long before the end of the workload everything is healed for good.
    pub final_heal_ns: u64,
}

/// When phases of healing come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealRhythm {
    /// From the start, and from the start of one phase, to the start of the next.
    pub every_ns: u64,
    /// Length of a phase.
    pub lasts_ns: u64,
}

impl Generator {
    /// Checks that it can draw among these plans in a trial of that length.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub fn check(&self, plans: &[FaultPlan], duration_ns: u64) -> Result<(), PlanError> {
        let wrong = |why: String| Err(PlanError::Generator { why });
        if self.every_min_ns == 0 || self.every_min_ns > self.every_max_ns {
            return wrong(format!(
                "it draws every {} to {} ns; expected a time above zero or a range of them",
                self.every_min_ns, self.every_max_ns
            ));
        }
        if duration_ns / self.every_min_ns > MOST_DRAWS {
            return wrong(format!(
                "every {} ns it would draw more than {MOST_DRAWS} times in {duration_ns} ns; is the \
                 unit right?",
                self.every_min_ns
            ));
        }
        if self.at_most_at_once == 0 {
            return wrong("it allows 0 faults at once; switch the faults off instead".to_owned());
        }
        if let Some(HealRhythm { every_ns, lasts_ns }) = self.heal
            && !(0 < lasts_ns && lasts_ns < every_ns)
        {
            return wrong(format!(
                "its heal phases last {lasts_ns} ns and come every {every_ns} ns; expected phases \
                 above zero with time in between"
            ));
        }
        if self.final_heal_ns >= duration_ns && duration_ns > 0 {
            return wrong(format!(
                "it heals for good {} ns before the end of {duration_ns} ns, so nothing ever strikes",
                self.final_heal_ns
            ));
        }
        let any = plans.iter().any(|plan| weight(plan) > 0);
        if !any {
            return wrong("no fault has a weight above 0; give one to some".to_owned());
        }
        Ok(())
    }

    /// The phases of a trial of that length.
    pub(crate) fn phases(&self, duration_ns: u64) -> HealPhases {
        let last_ns = duration_ns.saturating_sub(self.final_heal_ns);
        let mut phases = Vec::new();
        if let Some(HealRhythm { every_ns, lasts_ns }) = self.heal {
            let mut from_ns = every_ns;
            while from_ns < last_ns {
                let to_ns = from_ns.saturating_add(lasts_ns);
                phases.push(HealPhase { from_ns, to_ns });
                from_ns = from_ns.saturating_add(every_ns);
            }
        }
        if self.final_heal_ns > 0 {
            phases.push(HealPhase {
                from_ns: last_ns,
                to_ns: duration_ns,
            });
        }
        HealPhases(phases)
    }

    /// Draws a trial's faults.
    pub(crate) fn draw(&self, seed: u64, plans: &[FaultPlan], duration_ns: u64) -> DrawnSchedule {
        let phases = self.phases(duration_ns);
        let mut own = Draws::new(seed, STREAM);
        let mut of_faults: Vec<Draws> = (0..plans.len())
            .map(|fault| Draws::new(seed, fault as u64))
            .collect();
        let mut firings = Vec::new();
        let mut line = Timeline::new(self, &phases);
        let mut at_ns = 0_u64;
        loop {
            let gap_ns = own.between(self.every_min_ns, self.every_max_ns);
            at_ns = line.earliest(at_ns.saturating_add(gap_ns), duration_ns);
            if at_ns >= duration_ns {
                break;
            }
            let order = order(plans, &mut own);
            let choices: Vec<Choice> = order
                .into_iter()
                .map(|fault| {
                    let draws = &mut of_faults[fault];
                    let lasts = plans[fault].lasts.as_ref();
                    Choice {
                        fault,
                        lasts_ns: lasts.map(|lasts| lasts.draw(draws)),
                        pick: draws.pick(),
                    }
                })
                .collect();
            line.begin(at_ns, choices.first().and_then(|first| first.lasts_ns));
            firings.push(DrawnFiring { at_ns, choices });
        }
        DrawnSchedule {
            at_most_at_once: self.at_most_at_once,
            quiet_ns: self.quiet_ns,
            firings,
        }
    }
}

/// A fault's weight; 0 when it is not drawn.
fn weight(plan: &FaultPlan) -> u64 {
    match plan.trigger {
        Trigger::Drawn { weight } => u64::from(weight),
        _ => 0,
    }
}

/// All faults with a weight in an order drawn by weight, without putting back.
fn order(plans: &[FaultPlan], draws: &mut Draws) -> Vec<usize> {
    let weights = plans.iter().map(weight).enumerate();
    let mut left: Vec<(usize, u64)> = weights.filter(|(_, weight)| *weight > 0).collect();
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let total: u64 = left.iter().map(|(_, weight)| weight).sum();
        let mut mark = draws.between(0, total - 1);
        let drawn = left.iter().position(|(_, weight)| {
            let hit = mark < *weight;
            mark = mark.saturating_sub(*weight);
            hit
        });
        let (fault, _) = left.remove(drawn.expect("the mark is below the sum of the weights"));
        order.push(fault);
    }
    order
}

/// What would be in force when, if always the first choice applied. The engine keeps the same limits on
/// what really happens; keeping them here too makes the planned times those that a run comes to.
struct Timeline<'a> {
    generator: &'a Generator,
    phases: &'a HealPhases,
    /// Beginnings and ends.
    changes: Vec<u64>,
    ends: Vec<u64>,
}

impl<'a> Timeline<'a> {
    fn new(generator: &'a Generator, phases: &'a HealPhases) -> Self {
        Self {
            generator,
            phases,
            changes: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn begin(&mut self, at_ns: u64, lasts_ns: Option<u64>) {
        let by_itself = lasts_ns.map_or(u64::MAX, |lasts_ns| at_ns.saturating_add(lasts_ns));
        let healed_ns = self.phases.next_from(at_ns).unwrap_or(u64::MAX);
        let end_ns = by_itself.min(healed_ns);
        self.ends.retain(|end_ns| *end_ns > at_ns);
        self.ends.push(end_ns);
        self.changes.extend([at_ns, end_ns]);
    }

    /// The first moment from `at_ns` on at which a fault may begin; `limit_ns` or later if there is none.
    fn earliest(&self, mut at_ns: u64, limit_ns: u64) -> u64 {
        let most = usize::try_from(self.generator.at_most_at_once).unwrap_or(usize::MAX);
        while at_ns < limit_ns {
            let in_force = self.ends.iter().filter(|end_ns| **end_ns > at_ns);
            let changed_ns = self.changes.iter().filter(|ns| **ns <= at_ns).max();
            let quiet_ns = changed_ns.map_or(0, |ns| ns.saturating_add(self.generator.quiet_ns));
            if let Some(phase) = self.phases.around(at_ns) {
                // The generator's time stands still in a phase.
                at_ns = at_ns.saturating_add(phase.to_ns - phase.from_ns);
            } else if in_force.clone().count() >= most {
                at_ns = in_force.min().copied().unwrap_or(limit_ns);
            } else if at_ns < quiet_ns {
                at_ns = quiet_ns;
            } else {
                return at_ns;
            }
        }
        limit_ns
    }
}

/// The phases of a trial, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealPhases(pub(crate) Vec<HealPhase>);

impl HealPhases {
    /// The phase that covers this moment.
    pub(crate) fn around(&self, at_ns: u64) -> Option<&HealPhase> {
        let mut phases = self.0.iter();
        phases.find(|phase| (phase.from_ns..phase.to_ns).contains(&at_ns))
    }

    /// The start of the next phase after this moment.
    pub(crate) fn next_from(&self, at_ns: u64) -> Option<u64> {
        let starts = self.0.iter().map(|phase| phase.from_ns);
        starts.filter(|from_ns| *from_ns > at_ns).min()
    }

    /// This moment, or the end of the phases that cover it.
    pub(crate) fn out_of(&self, mut at_ns: u64) -> u64 {
        while let Some(phase) = self.around(at_ns) {
            at_ns = phase.to_ns;
        }
        at_ns
    }
}
