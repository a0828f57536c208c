//! What files that are in order come to.

use nemesis::{FaultPlan, Generator, HealRhythm, Lasts, ParamValue, Params, Target, Trigger};
use proptest::prelude::*;
use workloads::discipline::Discipline;
use workloads::resource::memory::store::TokenPolicy;

use super::*;

fn resolve(text: &str, pairs: &[(&str, &str)]) -> Resolved {
    parse(text)
        .and_then(|scenario| scenario.resolve(&flags(pairs), 7, None))
        .unwrap_or_else(|errors| panic!("{}", render(&errors)))
}

#[test]
fn the_example_resolves() {
    let resolved = resolve(EXAMPLE, &[]);
    assert_eq!((resolved.seed, resolved.trials), (7, 1));
    assert_eq!(resolved.claims, [10, 11]);
    let [unfenced, fenced, no_fault] = resolved.arms.as_slice() else {
        panic!("three arms")
    };

    let cluster = &unfenced.cluster;
    assert_eq!(
        (
            cluster.backend.as_str(),
            cluster.version.as_str(),
            cluster.nodes
        ),
        ("etcd", "3.5.16", 3)
    );
    let workload = &unfenced.workload;
    assert_eq!(
        (workload.clients, workload.workers, workload.locks),
        (5, 5, 1)
    );
    assert_eq!(
        (workload.ttl_ms, workload.duration_ns),
        (2_000, 60_000_000_000)
    );
    assert_eq!(
        workload.hold,
        RangeNs {
            min_ns: 0,
            max_ns: 2_000_000_000
        }
    );
    assert_eq!(
        (workload.acquire_timeout_ns, workload.request_timeout_ns),
        (30_000_000_000, 5_000_000_000)
    );
    assert_eq!(
        (workload.discipline, workload.tokens),
        (Discipline::Ignore, TokenPolicy::Record)
    );
    let pause = FaultPlan {
        kind: "pause".to_owned(),
        target: Target::Holder,
        trigger: Trigger::Every {
            every_ns: 5_000_000_000,
            first_ns: 5_000_000_000,
        },
        lasts: Some(Lasts::Fixed { ns: 4_000_000_000 }),
        params: Params::default(),
    };
    assert_eq!(unfenced.faults, [pause]);
    assert_eq!(unfenced.holds_in, HoldsIn::All);
    let expected: Vec<String> = unfenced.expect.iter().map(Expectation::to_string).collect();
    assert_eq!(expected, ["lost_writes > 0", "overlapping_terms > 0"]);

    assert_eq!(
        (fenced.workload.discipline, fenced.workload.tokens),
        (Discipline::Token, TokenPolicy::Enforce)
    );
    assert_eq!(fenced.faults, unfenced.faults);
    assert!(no_fault.faults.is_empty());
    assert_eq!(no_fault.workload, unfenced.workload);
}

#[test]
fn plans_survive_json() {
    let text = with("\"4s\"", "{ gc = { median = \"200ms\", p99 = \"4s\" } }")
        .replace(
            "{ every = \"5s\" }",
            "{ on = \"acquired\", probability = 0.3, at_most = 4 }",
        )
        .replace("clients  = 5", "clients = 5\nrate = 12.5");
    let resolved = resolve(&text, &[]);
    let json = serde_json::to_string(&resolved).expect("plans are plain data");
    assert_eq!(
        serde_json::from_str::<Resolved>(&json).expect("its own output"),
        resolved
    );
}

#[test]
fn parameters_of_a_fault_are_typed_and_defaulted_and_can_be_set() {
    let weather = "\"weather\"\nloss = 0.25\ndelay = \"50ms\"\nrate = \"125kB/s\"\nport = \"2380\"";
    let text = with("\"pause\"", weather);
    let of = |resolved: &Resolved| resolved.arms[0].faults[0].params.clone();
    let value = |name: &str, value| (name.to_owned(), value);
    let mut expected = Params(
        [
            value("loss", ParamValue::Share(0.25)),
            value("delay", ParamValue::DurationNs(50_000_000)),
            value("rate", ParamValue::BytesPerS(125_000)),
            value("shape", ParamValue::Word("ring".to_owned())),
            value("both_ways", ParamValue::Flag(true)),
            value("port", ParamValue::Text("2380".to_owned())),
        ]
        .into(),
    );
    assert_eq!(of(&resolve(&text, &[])), expected);
    let flags = [
        ("fault.1.loss", "1"),
        ("fault.1.delay", "1s"),
        ("fault.1.both_ways", "false"),
        ("fault.1.port", "2379"),
    ];
    for (name, value) in [
        value("loss", ParamValue::Share(1.0)),
        value("delay", ParamValue::DurationNs(1_000_000_000)),
        value("both_ways", ParamValue::Flag(false)),
        value("port", ParamValue::Text("2379".to_owned())),
    ] {
        expected.0.insert(name, value);
    }
    assert_eq!(of(&resolve(&text, &flags)), expected);
}

#[test]
fn without_arms_there_is_one() {
    let text = EXAMPLE.split("[[arm]]").next().unwrap_or_default();
    let resolved = resolve(text, &[]);
    let [only] = resolved.arms.as_slice() else {
        panic!("one arm")
    };
    assert_eq!(only.name, "default");
    assert!(only.expect.is_empty() && only.faults.len() == 1);
}

#[test]
fn version_and_workers_have_defaults() {
    let text = with("version  = \"3.5.16\"\n", "").replace("clients  = 5", "clients = 500");
    let arm = &resolve(&text, &[]).arms[0];
    assert_eq!(
        (arm.cluster.version.as_str(), arm.workload.workers),
        ("3.5.16", 8)
    );
}

#[test]
fn the_command_line_goes_over_the_arm_and_that_over_the_file() {
    let text = with(
        "{ \"workload.discipline\" = \"token\" }",
        "{ \"workload.ttl\" = \"3s\", workload.clients = 4 }",
    )
    .replace(
        "lost_writes = \"== 0\", stale_writes_rejected = \"> 0\"",
        "lost_writes = \"> 0\"",
    );
    let ttls = |pairs: &[(&str, &str)]| {
        resolve(&text, pairs)
            .arms
            .iter()
            .map(|arm| arm.workload.ttl_ms)
            .collect::<Vec<_>>()
    };
    assert_eq!(ttls(&[]), [2_000, 3_000, 2_000]);
    assert_eq!(ttls(&[("workload.ttl", "5s")]), [5_000, 5_000, 5_000]);
    assert_eq!(
        ttls(&[("workload.ttl", "\"5s\""), ("workload.ttl", "6s")]),
        [6_000, 6_000, 6_000]
    );
    let clients: Vec<u32> = resolve(&text, &[])
        .arms
        .iter()
        .map(|arm| arm.workload.clients)
        .collect();
    assert_eq!(clients, [5, 4, 5]);
}

#[test]
fn overrides_reach_into_faults_and_tables_that_are_not_written() {
    let pairs = [
        ("fault.1.lasts", "1s..2s"),
        ("fault.1.when.every", "7s"),
        ("cluster.tuning.election", "900ms"),
        ("workload.keep_alive", "false"),
    ];
    let resolved = resolve(EXAMPLE, &pairs);
    let arm = &resolved.arms[0];
    assert_eq!(
        arm.cluster.tuning,
        Tuning {
            heartbeat_ms: None,
            election_ms: Some(900)
        }
    );
    assert_eq!(
        arm.faults[0].trigger,
        Trigger::Every {
            every_ns: 7_000_000_000,
            first_ns: 7_000_000_000
        }
    );
    assert_eq!(
        arm.faults[0].lasts,
        Some(Lasts::Uniform {
            min_ns: 1_000_000_000,
            max_ns: 2_000_000_000
        })
    );
    assert!(!arm.workload.keep_alive);
    // The arm without faults has none to change, and that is no mistake.
    assert!(resolved.arms[2].faults.is_empty());
}

#[test]
fn a_gc_distribution_can_be_put_over_a_fixed_time() {
    let resolved = resolve(
        EXAMPLE,
        &[(
            "fault.1.lasts",
            "{ gc = { median = \"200ms\", p99 = \"4s\" } }",
        )],
    );
    let gc = Lasts::Gc {
        median_ns: 200_000_000,
        p99_ns: 4_000_000_000,
    };
    assert_eq!(resolved.arms[0].faults[0].lasts, Some(gc));
}

#[test]
fn faults_with_a_weight_are_drawn_and_an_arm_may_change_that() {
    let text = with("{ every = \"5s\" }", "{ weight = 3 }").replace(
        "[[fault]]",
        "[nemesis]\nevery = \"2s..6s\"\nat_most_at_once = 2\nheal_every = \"20s\"\nheal_lasts = \"5s\"\n\n[[fault]]",
    );
    let resolved = resolve(
        &text,
        &[("nemesis.quiet", "1s"), ("fault.1.when.weight", "7")],
    );
    let [unfenced, _, no_fault] = resolved.arms.as_slice() else {
        panic!("three arms")
    };
    assert_eq!(unfenced.faults[0].trigger, Trigger::Drawn { weight: 7 });
    let expected = Generator {
        every_min_ns: 2_000_000_000,
        every_max_ns: 6_000_000_000,
        at_most_at_once: 2,
        quiet_ns: 1_000_000_000,
        heal: Some(HealRhythm {
            every_ns: 20_000_000_000,
            lasts_ns: 5_000_000_000,
        }),
        final_heal_ns: 0,
    };
    assert_eq!(unfenced.nemesis, Some(expected));
    assert_eq!(no_fault.nemesis, None);
    let json = serde_json::to_string(&resolved).expect("plans are plain data");
    assert_eq!(
        serde_json::from_str::<Resolved>(&json).expect("its own output"),
        resolved
    );
}

#[test]
fn a_crash_may_last_for_good() {
    let text = with("\"pause\"", "\"crash\"")
        .replace("\"holder\"", "\"leader\"")
        .replace("lasts  = \"4s\"", "");
    assert_eq!(resolve(&text, &[]).arms[0].faults[0].lasts, None);
}

#[test]
fn a_model_may_have_a_bug() {
    let text = with(
        "\"etcd\"\nversion  = \"3.5.16\"\nnodes    = 3",
        "\"builtin\"\nnodes = 1\nbug = \"double-grant\"",
    )
    .replace("etcd-v3lock", "builtin-lease");
    assert_eq!(
        resolve(&text, &[]).arms[0].cluster.bug.as_deref(),
        Some("double-grant")
    );
}

#[test]
fn every_example_of_the_reference_is_valid_toml() {
    for key in keys::KEYS
        .iter()
        .filter(|key| !key.example.starts_with('[') || key.name == "claims")
    {
        assert!(
            node::parse_default(key.example, &node::Origin::File(0..0)).is_some(),
            "{}: {}",
            key.name,
            key.example
        );
        if let keys::Absent::Default(text) = key.absent {
            assert!(
                node::parse_default(text, &node::Origin::File(0..0)).is_some(),
                "{}: {text}",
                key.name
            );
        }
    }
}

proptest! {
    /// Cuts, doubles and garbles pieces of the example: there is always an answer, and if it is errors,
    /// each has a place and can be printed.
    #[test]
    fn any_file_gets_an_answer(start in 0_usize..1400, length in 0_usize..60, filling in "[ -~\\n\u{e4}]{0,12}") {
        let clamp = |at: usize| at.min(EXAMPLE.len());
        let text = format!("{}{filling}{}", &EXAMPLE[..clamp(start)], &EXAMPLE[clamp(start + length)..]);
        if let Err(errors) = parse(&text) {
            prop_assert!(!errors.is_empty());
            prop_assert!(!render(&errors).contains("a mistake in fencepost"), "{}\n{text}", render(&errors));
        }
    }

    #[test]
    fn any_override_gets_an_answer(key in "(cluster|workload|fault|fault\\.1|fault\\.1\\.when|x)?\\.?[a-z_.]{0,12}", value in ".{0,16}") {
        if let Err(errors) = example().resolve(&flags(&[(&key, &value)]), 1, None) {
            prop_assert!(!errors.is_empty());
            prop_assert!(!render(&errors).contains("a mistake in fencepost"), "{}", render(&errors));
        }
    }
}
