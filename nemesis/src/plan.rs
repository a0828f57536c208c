//! A fault as planned: which, on whom, when, for how long; and whether that makes sense.

use serde::{Deserialize, Serialize};

use crate::fault::{self, FAULTS, FaultSpec};
use crate::{Lasts, Params, Target, Trigger};

/// One `[[fault]]` of a scenario, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// Registry name of the fault, for instance `pause`.
    pub kind: String,
    /// Whom it strikes.
    pub target: Target,
    /// When it strikes.
    pub trigger: Trigger,
    /// How long it lasts; without it, until the end of the trial (where the fault allows that).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<Lasts>,
    /// What else the fault was given.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No fault has that name.
    #[error(
        "fault {number}: expected the name of a fault, found \"{found}\"; write one of {}",
        known()
    )]
    UnknownKind {
        /// Position among the faults, from 1.
        number: usize,
        /// What was found.
        found: String,
    },
    /// The fault cannot strike that target.
    #[error(
        "fault {number} ({kind}): it cannot strike \"{target}\"; write one of {}",
        accepted.join(", ")
    )]
    WrongTarget {
        /// Position among the faults, from 1.
        number: usize,
        /// Registry name of the fault.
        kind: String,
        /// The target that was asked for.
        target: Target,
        /// The forms that it accepts.
        accepted: &'static [&'static str],
    },
    /// A figure is missing or impossible.
    #[error("fault {number} ({kind}): {why}")]
    BadFigure {
        /// Position among the faults, from 1.
        number: usize,
        /// Registry name of the fault.
        kind: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// Faults cannot be drawn.
    #[error("the generator of faults: {why}")]
    Generator {
        /// What is wrong and what to do.
        why: String,
    },
}

/// The names in the registry, for messages.
fn known() -> String {
    let names: Vec<&str> = FAULTS.iter().map(|spec| spec.name).collect();
    names.join(", ")
}

/// A trial has at most so many firings by the clock a fault; more is taken for a wrong unit.
pub const MOST_TIMED_FIRINGS: u64 = 100_000;

impl FaultPlan {
    /// Checks that this plan can be carried out in a trial of that length.
    ///
    /// # Errors
    /// Says which fault (counted from 1) and what to write instead.
    pub fn check(&self, number: usize, duration_ns: u64) -> Result<&'static FaultSpec, PlanError> {
        let spec = fault::find(&self.kind).ok_or_else(|| PlanError::UnknownKind {
            number,
            found: self.kind.clone(),
        })?;
        if !spec.accepts(&self.target) {
            return Err(PlanError::WrongTarget {
                number,
                kind: self.kind.clone(),
                target: self.target.clone(),
                accepted: spec.targets,
            });
        }
        self.check_figures(spec, duration_ns)
            .map_err(|why| PlanError::BadFigure {
                number,
                kind: self.kind.clone(),
                why,
            })?;
        Ok(spec)
    }

    /// Says what is wrong with the figures, if anything is.
    fn check_figures(&self, spec: &FaultSpec, duration_ns: u64) -> Result<(), String> {
        match &self.lasts {
            Some(lasts) => lasts.check()?,
            None if spec.needs_lasts => {
                return Err("how long it lasts is missing; add `lasts`".to_owned());
            }
            None => {}
        }
        self.params.check(spec.params)?;
        (spec.check)(&self.target, &self.params).map_err(|why| format!("expected {why}"))?;
        match self.trigger {
            Trigger::Every { every_ns: 0, .. } => {
                Err("it fires every 0 ns; give `every` a length".to_owned())
            }
            Trigger::Every { every_ns, first_ns }
                if duration_ns.saturating_sub(first_ns) / every_ns > MOST_TIMED_FIRINGS =>
            {
                Err(format!(
                    "every {every_ns} ns would fire more than {MOST_TIMED_FIRINGS} times in \
                     {duration_ns} ns; is the unit right?"
                ))
            }
            Trigger::On { probability, .. } if !(0.0..=1.0).contains(&probability) => Err(format!(
                "its probability is {probability}; expected a number from 0 to 1"
            )),
            Trigger::On {
                at_most: Some(0), ..
            } => Err("it fires at most 0 times; remove the fault instead".to_owned()),
            _ => Ok(()),
        }
    }
}
