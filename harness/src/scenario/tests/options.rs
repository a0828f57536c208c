//! Options of backends and locks, and hosts beside the nodes.

use workloads::lock::LockAsk;
use workloads::option::{OptionKind, OptionSpec};

use super::*;

const DISK: OptionSpec = OptionSpec {
    name: "disk",
    kind: OptionKind::Word(&["quiet", "loud"]),
    default: "loud",
    about: "A disk.",
};
const DELAY: OptionSpec = OptionSpec {
    name: "delay",
    kind: OptionKind::Millis {
        min: 0,
        max: 60_000,
    },
    default: "15000",
    about: "A delay.",
};
const COUNT: OptionSpec = OptionSpec {
    name: "count",
    kind: OptionKind::Integer { min: 1, max: 5 },
    default: "3",
    about: "A count.",
};
const SURE: OptionSpec = OptionSpec {
    name: "sure",
    kind: OptionKind::Flag,
    default: "false",
    about: "A flag.",
};

pub(super) const OF_ETCD: &[OptionSpec] = &[DISK];
pub(super) const OF_V3LOCK: &[OptionSpec] = &[DELAY, COUNT, SURE];

pub(super) fn no_quiet_disk(plan: &ClusterPlan) -> Result<(), String> {
    match plan.options.text(&DISK) {
        "quiet" if plan.nodes == 1 => Err("a loud disk for a cluster of one".to_owned()),
        _ => Ok(()),
    }
}

pub(super) fn no_long_delay(ask: &LockAsk<'_>) -> Result<(), String> {
    let delay_ms = ask.options.number(&DELAY);
    if delay_ms > 10 * ask.ttl_ms && ask.cluster.text(&DISK) == "quiet" {
        return Err("a delay below ten leases on a quiet disk".to_owned());
    }
    Ok(())
}

const NODES: &str = "nodes    = 3";
const CLIENTS: &str = "clients  = 5";

#[test]
fn options_have_their_defaults_or_what_is_written() {
    let plain = example();
    let arm = &plain.arms[0];
    assert_eq!(arm.cluster.options.text(&DISK), "loud");
    assert_eq!(
        arm.workload.options.0.len(),
        3,
        "{:?}",
        arm.workload.options
    );
    assert_eq!(arm.workload.options.number(&DELAY), 15_000);

    let text = with(
        CLIENTS,
        "clients  = 5\noptions  = { delay = \"1.5s\", count = 5, sure = true }",
    );
    let written = parse(&text).unwrap_or_else(|errors| panic!("{}", render(&errors)));
    let options = &written.arms[0].workload.options;
    assert_eq!(options.number(&DELAY), 1_500);
    assert_eq!(options.number(&COUNT), 5);
    assert!(options.flag(&SURE));

    let set = flags(&[
        ("workload.options.count", "2"),
        ("cluster.options.disk", "quiet"),
    ]);
    let resolved = written.resolve(&set, 1, None).expect("in order");
    let arm = &resolved.arms[0];
    assert_eq!(arm.workload.options.number(&COUNT), 2);
    assert_eq!(arm.cluster.options.text(&DISK), "quiet");
}

#[test]
fn wrong_options_are_named_with_their_lines() {
    let cases = [
        (CLIENTS, "clients = 5\noptions = { dealy = \"1s\" }"),
        (CLIENTS, "clients = 5\noptions = { delay = \"2m\" }"),
        (CLIENTS, "clients = 5\noptions = { delay = 5 }"),
        (CLIENTS, "clients = 5\noptions = { count = 6 }"),
        (CLIENTS, "clients = 5\noptions = { sure = \"yes\" }"),
        (NODES, "nodes = 3\noptions = { disk = \"quite\" }"),
        (NODES, "nodes = 1\noptions = { disk = \"quiet\" }"),
        (NODES, "nodes = 3\noptions = 3"),
        ("target = \"holder\"", "target = \"node:s1\""),
    ];
    let shown: Vec<String> = cases
        .iter()
        .map(|(old, new)| {
            let errors = parse(&with(old, new)).expect_err(new);
            format!("{new}\n{}", render(&errors))
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn what_options_mean_together_is_checked() {
    let text = with(NODES, "nodes = 3\noptions = { disk = \"quiet\" }");
    let set = flags(&[("workload.options.delay", "30s")]);
    let errors = parse(&text).expect("in order").resolve(&set, 1, None);
    let text = render(&errors.expect_err("a long delay"));
    assert!(text.contains("ten leases on a quiet disk"), "{text}");
    let unknown = flags(&[("workload.options.dleay", "30s")]);
    let errors = example()
        .resolve(&unknown, 1, None)
        .expect_err("no such option");
    assert!(
        render(&errors).contains("count, delay, sure"),
        "{}",
        render(&errors)
    );
}

#[test]
fn helpers_can_be_named_where_there_are_any() {
    let text = with(NODES, "nodes    = 5").replace("\"holder\"", "\"node:s2\"");
    let scenario = parse(&text).unwrap_or_else(|errors| panic!("{}", render(&errors)));
    assert_eq!(
        scenario.arms[0].faults[0].target,
        Target::Node("s2".to_owned())
    );
    let text = text.replace("node:s2", "node:s3");
    let errors = render(&parse(&text).expect_err("there are two"));
    assert!(errors.contains("node:s1 to node:s2"), "{errors}");
}
