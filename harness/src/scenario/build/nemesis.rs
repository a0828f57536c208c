//! From `[nemesis]` to the generator of faults.

use nemesis::{FaultPlan, Generator, HealRhythm, Trigger};

use crate::scenario::duration::format_ns;
use crate::scenario::plan::WorkloadPlan;
use crate::scenario::read::Section;

/// Reads `[nemesis]`, given the faults. Faults and workload are `None` when they have mistakes of their
/// own.
pub(in crate::scenario) fn read(
    section: &Section<'_>,
    faults: Option<&[FaultPlan]>,
    workload: Option<&WorkloadPlan>,
) -> Option<Generator> {
    let every = read_every(section);
    let heal = read_heal(section);
    let generator = Generator {
        at_most_at_once: section.integer_u32("at_most_at_once")?,
        quiet_ns: section.duration_ns("quiet")?,
        final_heal_ns: section.duration_ns("final_heal")?,
        every_min_ns: every?.0,
        every_max_ns: every?.1,
        heal: heal?,
    };
    let weighty = |plan: &FaultPlan| matches!(plan.trigger, Trigger::Drawn { weight: 1.. });
    if faults.is_some_and(|faults| !faults.iter().any(weighty)) {
        section.problem_here(
            "at least one [[fault]] that can be drawn",
            "none with a weight above 0",
            Some("give one when = { weight = 1 }, or leave [nemesis] out".to_owned()),
        );
        return None;
    }
    if let Some(workload) = workload {
        check_times(section, &generator, workload.duration_ns)?;
    }
    Some(generator)
}

/// Shortest and longest time between two draws.
fn read_every(section: &Section<'_>) -> Option<(u64, u64)> {
    let range = section.range("every")?;
    if range.min_ns == 0 {
        let found = section.written("every").map(|node| node.describe());
        let hint = Some("for instance every = \"2s..6s\"".to_owned());
        section.problem(
            "every",
            "a time above zero",
            &found.unwrap_or_default(),
            hint,
        );
        return None;
    }
    Some((range.min_ns, range.max_ns))
}

/// The outer `None` is a mistake, the inner one says that there are no heal phases.
fn read_heal(section: &Section<'_>) -> Option<Option<HealRhythm>> {
    let pair = ["heal_every", "heal_lasts"];
    let [every, lasts] = pair.map(|key| section.written(key).is_some());
    if !every && !lasts {
        return Some(None);
    }
    if every != lasts {
        let (given, missing) = if every {
            (pair[0], pair[1])
        } else {
            (pair[1], pair[0])
        };
        section.problem(
            given,
            "`heal_every` and `heal_lasts`, or neither",
            &format!("no `{missing}`"),
            Some(format!("add {missing} = \"10s\"")),
        );
        return None;
    }
    let (every_ns, lasts_ns) = (
        section.duration_ns("heal_every"),
        section.duration_ns("heal_lasts"),
    );
    let (every_ns, lasts_ns) = (every_ns?, lasts_ns?);
    if lasts_ns >= every_ns {
        let expected = format!("a time shorter than heal_every, {}", format_ns(every_ns));
        let hint = "faults need time between two heal phases".to_owned();
        section.problem("heal_lasts", &expected, &format_ns(lasts_ns), Some(hint));
        return None;
    }
    Some(Some(HealRhythm { every_ns, lasts_ns }))
}

/// Reports times at which nothing ever strikes.
fn check_times(section: &Section<'_>, generator: &Generator, duration_ns: u64) -> Option<()> {
    let end_ns = duration_ns.saturating_sub(generator.final_heal_ns);
    let (key, ns) = if end_ns == 0 {
        ("final_heal", generator.final_heal_ns)
    } else if generator.every_min_ns >= end_ns {
        ("every", generator.every_min_ns)
    } else {
        return Some(());
    };
    let expected = format!(
        "a time that leaves some for faults in a workload of {}",
        format_ns(duration_ns)
    );
    let hint = "make it shorter, or workload.duration longer".to_owned();
    section.problem(key, &expected, &format_ns(ns), Some(hint));
    None
}
