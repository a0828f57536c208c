//! Tests of whole scenarios. What is local to one file is tested in that file.

mod mistakes;
mod options;
mod plans;

use std::ops::RangeInclusive;

use nemesis::{ParamKind, ParamSpec, Params, Target};
use workloads::discipline::Discipline;

use super::*;

/// The example of the design: the text most cases below change in one place.
const EXAMPLE: &str = r#"title  = "etcd: a lock alone loses writes when its holder pauses"
claims = [10, 11]
issue  = "etcd-io/etcd#11457"

[cluster]
backend  = "etcd"
version  = "3.5.16"
nodes    = 3

[workload]
kind     = "guarded-set"      # acquire, read, hold, write back with one element more, release
lock     = "etcd-v3lock"
resource = "memory"           # perfect shared state, as in the Jepsen test
clients  = 5
ttl      = "2s"
hold     = "0s..2s"
duration = "60s"

[[fault]]
kind   = "pause"
target = "holder"
when   = { every = "5s" }
lasts  = "4s"

[[arm]]
name   = "unfenced"
expect = { lost_writes = "> 0", overlapping_terms = "> 0" }

[[arm]]
name   = "fenced"
set    = { "workload.discipline" = "token" }
expect = { lost_writes = "== 0", stale_writes_rejected = "> 0" }

[[arm]]
name   = "no fault"
set    = { "faults" = false }
expect = { lost_writes = "== 0", overlapping_terms = "== 0" }
"#;

/// Parameters of the made-up fault `weather`, one of each kind.
const PARAMS: &[ParamSpec] = &[
    param("loss", ParamKind::Share, None),
    param("delay", ParamKind::Duration, None),
    param("rate", ParamKind::Rate, None),
    param(
        "shape",
        ParamKind::Word(&["ring", "halves"]),
        Some("\"ring\""),
    ),
    param("both_ways", ParamKind::Flag, Some("true")),
    param("port", ParamKind::Text, None),
];

const fn param(name: &'static str, kind: ParamKind, default: Option<&'static str>) -> ParamSpec {
    ParamSpec {
        name,
        kind,
        default,
        summary: "A parameter of the tests.",
    }
}

fn no_delay_alone(_: &Target, params: &Params) -> Result<(), String> {
    match (params.duration_ns("delay"), params.share("loss")) {
        (Some(_), None) => Err("`loss` beside `delay`".to_owned()),
        _ => Ok(()),
    }
}

/// Registries of a made-up size, with the names that the example uses.
fn known() -> Known {
    let words = |list: &[&str]| {
        list.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let backend = |name: &str,
                   versions: &[&str],
                   ttl_ms: fn(&ClusterPlan) -> RangeInclusive<u64>,
                   nodes: &[u32],
                   bugs: &[&str]| KnownBackend {
        name: name.to_owned(),
        versions: words(versions),
        default_version: versions
            .last()
            .map(|last| (*last).to_owned())
            .unwrap_or_default(),
        ttl_ms,
        helpers: |_| 0,
        options: &[],
        check: |_| Ok(()),
        nodes: nodes.to_vec(),
        bugs: words(bugs),
    };
    let lock = |name: &str, backend: &str, disciplines: &[&str]| KnownLock {
        name: name.to_owned(),
        backend: backend.to_owned(),
        disciplines: words(disciplines),
        options: &[],
        check: |_| Ok(()),
    };
    let fault = |name: &str, needs_lasts, targets: &[&str]| KnownFault {
        name: name.to_owned(),
        needs_lasts,
        targets: words(targets),
        params: &[],
        layer: nemesis::fault::Layer::Network,
        check: nemesis::fault::no_check,
    };
    let metric = |(name, check): (&str, &str)| KnownMetric {
        name: name.to_owned(),
        check: check.to_owned(),
    };
    let resource = |name: &str, backend: Option<&str>, checks_tokens| KnownResource {
        name: name.to_owned(),
        backend: backend.map(str::to_owned),
        checks_tokens,
        guards_writes: backend.is_some(),
    };
    let workload = |name: &str, needs_resource| KnownWorkload {
        name: name.to_owned(),
        needs_resource,
    };
    Known {
        backends: vec![
            KnownBackend {
                options: options::OF_ETCD,
                check: options::no_quiet_disk,
                helpers: |plan| if plan.nodes == 5 { 2 } else { 0 },
                ..backend(
                    "etcd",
                    &["3.4.23", "3.5.16"],
                    |plan| plan.tuning.election_ms.unwrap_or(500) * 2..=3_600_000,
                    &[1, 3, 5],
                    &[],
                )
            },
            backend(
                "builtin",
                &["model"],
                |_| 50..=u64::MAX,
                &[1],
                &["double-grant", "early-expiry"],
            ),
        ],
        locks: vec![
            KnownLock {
                options: options::OF_V3LOCK,
                check: options::no_long_delay,
                ..lock(
                    "etcd-v3lock",
                    "etcd",
                    &["ignore", "deadline", "token", "txn"],
                )
            },
            lock("builtin-lease", "builtin", Discipline::NAMES),
        ],
        resources: vec![
            resource("memory", None, true),
            resource("etcd", Some("etcd"), false),
        ],
        workloads: vec![workload("guarded-set", true), workload("mutex", false)],
        faults: vec![
            fault(
                "pause",
                true,
                &[
                    "holder",
                    "waiter",
                    "client",
                    "leader",
                    "follower",
                    "node:NAME",
                    "client:NAME",
                    "one",
                    "minority",
                    "all",
                ],
            ),
            fault(
                "crash",
                false,
                &[
                    "leader",
                    "follower",
                    "node:NAME",
                    "client:NAME",
                    "one",
                    "minority",
                    "majority",
                    "all",
                ],
            ),
            KnownFault {
                params: PARAMS,
                check: no_delay_alone,
                ..fault("weather", false, &["leader", "holder"])
            },
        ],
        metrics: [
            ("terms", "terms"),
            ("overlapping_terms", "terms"),
            ("lost_writes", "lost-writes"),
            ("stale_writes_accepted", "fencing"),
            ("stale_writes_rejected", "fencing"),
            ("faults_proven", "stats"),
        ]
        .map(metric)
        .to_vec(),
    }
}

fn parse(text: &str) -> Result<Scenario, Vec<ScenarioError>> {
    Scenario::parse("bad.toml", text, &known())
}

/// The example, which is in order.
fn example() -> Scenario {
    parse(EXAMPLE).unwrap_or_else(|errors| panic!("{}", render(&errors)))
}

/// The example with one piece of its text replaced.
fn with(old: &str, new: &str) -> String {
    assert_eq!(
        EXAMPLE.matches(old).count(),
        1,
        "{old:?} must stand once in the example"
    );
    EXAMPLE.replacen(old, new, 1)
}

fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
