//! From `when` of a `[[fault]]` to its trigger.

use crate::scenario::duration::format_ns;
use crate::scenario::error::Problem;
use crate::scenario::node::Node;
use crate::scenario::plan::{ClusterPlan, WorkloadPlan};
use crate::scenario::read::{Context, Section};
use nemesis::{FaultPlan, Trigger, TriggerEvent};

/// The forms of `when`, each with the keys that go with it.
const WHEN_FORMS: &[(&str, &[&str])] = &[
    ("every", &["first"]),
    ("at", &[]),
    ("weight", &[]),
    ("on", &["after", "probability", "at_most", "spacing"]),
];

/// Reads the table; `None` has been reported.
pub(in crate::scenario) fn read(when: &Section<'_>) -> Option<Trigger> {
    let forms: Vec<_> = WHEN_FORMS
        .iter()
        .filter(|(form, _)| when.written(form).is_some())
        .collect();
    let [(form, _)] = forms.as_slice() else {
        let expected = "exactly one of `every`, `at`, `on` and `weight`";
        let hint = Some("for instance when = { every = \"5s\" }".to_owned());
        match forms.as_slice() {
            [.., (before, _), (last, _)] => {
                when.problem(last, expected, &format!("`{before}` and `{last}`"), hint);
            }
            _ => when.problem_here(expected, "none of them", hint),
        }
        return None;
    };
    for (other, keys) in WHEN_FORMS.iter().filter(|(other, _)| other != form) {
        for key in keys.iter().filter(|key| when.written(key).is_some()) {
            when.problem(
                key,
                &format!("`{key}` only together with `{other}`"),
                &format!("it with `{form}`"),
                None,
            );
        }
    }
    match *form {
        "every" => {
            let every_ns = when.duration_ns("every");
            let first_ns = when.duration_ns("first");
            if when.written("first").is_some() && first_ns.is_none() {
                return None;
            }
            every_ns.map(|every_ns| Trigger::Every {
                every_ns,
                first_ns: first_ns.unwrap_or(every_ns),
            })
        }
        "at" => when.duration_ns("at").map(|at_ns| Trigger::At { at_ns }),
        "weight" => when
            .integer_u32("weight")
            .map(|weight| Trigger::Drawn { weight }),
        _ => read_on(when),
    }
}

fn read_on(when: &Section<'_>) -> Option<Trigger> {
    let event = when.text("on").and_then(|word| TriggerEvent::find(&word));
    // An unreadable value is reported, and the whole then discarded, so its default does no harm.
    let after_ns = when.duration_ns("after").unwrap_or(0);
    let probability = when.number("probability").unwrap_or(1.0);
    let at_most = when.integer_u32("at_most");
    let spacing_ns = when.duration_ns("spacing").unwrap_or(0);
    Some(Trigger::On {
        event: event?,
        after_ns,
        probability,
        at_most,
        spacing_ns,
    })
}

/// Whether a fault strikes without being drawn; reported if it does not. For scenarios without `[nemesis]`.
pub(in crate::scenario) fn needs_no_draw(
    cx: &Context<'_>,
    number: usize,
    node: &Node,
    fault: &FaultPlan,
) -> bool {
    if !matches!(fault.trigger, Trigger::Drawn { .. }) {
        return true;
    }
    let at = node.get("when").and_then(|when| when.get("weight"));
    cx.report(Problem {
        at: at.unwrap_or(node).at.clone(),
        key: format!("fault.{number}.when.weight"),
        expected: "a table [nemesis], which draws the faults that have a weight".to_owned(),
        found: "none".to_owned(),
        hint: Some("add [nemesis] with, for instance, every = \"2s..6s\"".to_owned()),
    });
    false
}

/// Reports triggers that can never fire.
pub(in crate::scenario) fn check(
    when: &Section<'_>,
    trigger: &Trigger,
    cluster: Option<&ClusterPlan>,
    workload: Option<&WorkloadPlan>,
) {
    let first = match trigger {
        Trigger::Every { first_ns, .. } if when.written("first").is_some() => {
            Some(("first", *first_ns))
        }
        Trigger::Every { first_ns, .. } => Some(("every", *first_ns)),
        Trigger::At { at_ns } => Some(("at", *at_ns)),
        Trigger::Drawn { .. } => None,
        Trigger::On { after_ns, .. } => (*after_ns > 0).then_some(("after", *after_ns)),
    };
    if let (Some((key, first_ns)), Some(workload)) = (first, workload)
        && first_ns >= workload.duration_ns
    {
        let expected = format!(
            "a time before the end of the workload, which lasts {}",
            format_ns(workload.duration_ns)
        );
        let hint =
            "the fault would never happen; make it earlier, or workload.duration longer".to_owned();
        when.problem(key, &expected, &format_ns(first_ns), Some(hint));
    }
    let Trigger::On { event, .. } = trigger else {
        return;
    };
    if *event == TriggerEvent::LeaderChanged && cluster.is_some_and(|cluster| cluster.nodes == 1) {
        let hint = "the leader of a single node never changes; raise cluster.nodes".to_owned();
        when.problem(
            "on",
            "an event that can occur",
            &format!("\"{event}\" with one node"),
            Some(hint),
        );
    }
    let writes = |workload: &WorkloadPlan| workload.resource.is_some();
    if let Some(workload) =
        workload.filter(|workload| *event == TriggerEvent::BeforeWrite && !writes(workload))
    {
        let found = format!(
            "\"{event}\" with the workload {}, which never writes",
            workload.kind
        );
        when.problem(
            "on",
            "an event that can occur",
            &found,
            Some("take on = \"acquired\"".to_owned()),
        );
    }
}
