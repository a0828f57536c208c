//! Sweeps: arms that differ in one thing by degrees, and the first of them that was not safe.
//!
//! An arm says which sweep it belongs to and at which point it stands. Points are in the order of the file,
//! from harmless to harmful: what a point means is not known here. Safe and unsafe are the same for every
//! sweep, whatever its arms expect, and a trial that proves nothing proves neither.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::evaluate::{ArmVerdict, Conclusion};
use crate::scenario::{ArmPlan, SweepPoint};

/// What is known of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// Every planned trial proves something, and none showed harm.
    Safe,
    /// In a trial two clients held one lock at once, or an acknowledged write was lost.
    Unsafe,
    /// Neither.
    Unknown,
}

/// One point of a sweep and what it came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// As the scenario has it.
    pub point: String,
    /// The arm that stands there.
    pub arm: String,
    /// What is known of it.
    pub safety: Safety,
    /// Trials that showed harm.
    pub harmed: u32,
    /// Trials that prove something.
    pub conclusive: u32,
}

/// A sweep and what it came to: part of a run's `verdict.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// Its name.
    pub name: String,
    /// The first point that was not safe, if one was not.
    pub first_unsafe: Option<String>,
    /// Its points, in the order of the file.
    pub points: Vec<Point>,
}

/// The sweeps of a run, in the order of the file.
#[must_use]
pub fn of_run(plans: &[ArmPlan], planned: u32, arms: &[ArmVerdict]) -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    for (plan, arm) in plans.iter().zip(arms) {
        let Some(place) = &plan.sweep else { continue };
        let point = Point::of(place, planned, arm);
        let known = sweeps.iter().position(|sweep| sweep.name == place.sweep);
        let index = known.unwrap_or_else(|| {
            sweeps.push(Sweep {
                name: place.sweep.clone(),
                first_unsafe: None,
                points: Vec::new(),
            });
            sweeps.len() - 1
        });
        let sweep = &mut sweeps[index];
        if point.safety == Safety::Unsafe {
            sweep.first_unsafe.get_or_insert(point.point.clone());
        }
        sweep.points.push(point);
    }
    sweeps
}

impl Point {
    fn of(place: &SweepPoint, planned: u32, arm: &ArmVerdict) -> Self {
        let conclusive = || {
            let trials = arm.trials.iter();
            trials.filter(|trial| trial.conclusion != Conclusion::Inconclusive)
        };
        let harm = ["overlapping_terms", "lost_writes"];
        let harmed = conclusive()
            .filter(|trial| harm.iter().any(|metric| trial.count(metric) > 0))
            .count() as u32;
        let conclusive = conclusive().count() as u32;
        Self {
            point: place.point.clone(),
            arm: arm.arm.clone(),
            safety: match harmed {
                1.. => Safety::Unsafe,
                0 if conclusive >= planned => Safety::Safe,
                0 => Safety::Unknown,
            },
            harmed,
            conclusive,
        }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |safety: Safety| {
            let points = self.points.iter().filter(move |one| one.safety == safety);
            let points = points.map(|one| one.point.as_str());
            points.collect::<Vec<_>>().join(", ")
        };
        let first = self.points.iter().find(|one| one.safety == Safety::Unsafe);
        write!(f, "{}: ", self.name)?;
        match first {
            None => f.write_str("no point was unsafe")?,
            Some(Point {
                point,
                harmed,
                conclusive,
                ..
            }) => write!(
                f,
                "first unsafe at {point} (in {harmed} of {conclusive} trials)"
            )?,
        }
        for (safety, words) in [
            (Safety::Safe, "safe at"),
            (Safety::Unsafe, "unsafe at"),
            (Safety::Unknown, "nothing is known at"),
        ] {
            let points = at(safety);
            if !points.is_empty() {
                write!(f, "; {words} {points}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(points: &[(&str, Safety)]) -> Sweep {
        let points = points.iter().map(|(point, safety)| Point {
            point: (*point).to_owned(),
            arm: format!("at {point}"),
            safety: *safety,
            harmed: u32::from(*safety == Safety::Unsafe) * 2,
            conclusive: 3,
        });
        Sweep {
            name: "rate".to_owned(),
            first_unsafe: None,
            points: points.collect(),
        }
    }

    #[test]
    fn the_first_unsafe_point_is_said_with_what_is_known_of_the_others() {
        let mixed = sweep(&[
            ("0.5x", Safety::Safe),
            ("0.4x", Safety::Unknown),
            ("0.3x", Safety::Unsafe),
            ("0.2x", Safety::Unsafe),
        ]);
        assert_eq!(
            mixed.to_string(),
            "rate: first unsafe at 0.3x (in 2 of 3 trials); safe at 0.5x; unsafe at 0.3x, 0.2x; \
             nothing is known at 0.4x"
        );
        let safe = sweep(&[("0.5x", Safety::Safe)]);
        assert_eq!(safe.to_string(), "rate: no point was unsafe; safe at 0.5x");
    }
}
