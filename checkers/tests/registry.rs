//! The registry of checks keeps its promises.

mod common;

use std::collections::HashSet;

use checkers::check::{CHECKS, run_all};
use checkers::history::{Event, History};

#[test]
fn names_of_checks_and_figures_are_unique_and_described() {
    let mut checks = HashSet::new();
    let mut figures = HashSet::new();
    for check in CHECKS {
        assert!(checks.insert(check.name), "check {} twice", check.name);
        assert!(!check.summary.is_empty());
        for figure in check.metrics {
            assert!(figures.insert(figure.name), "figure {} twice", figure.name);
            assert!(
                !figure.unit.is_empty() && !figure.summary.is_empty(),
                "{}",
                figure.name
            );
        }
    }
}

#[test]
fn checks_give_only_the_figures_that_they_declare() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/histories");
    let mut given = HashSet::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let history = History::read(&entry.expect("an entry").path()).expect("it reads");
        for report in run_all(&history) {
            let check = CHECKS
                .iter()
                .find(|c| c.name == report.check)
                .expect("registered");
            for name in report.metrics.into_keys() {
                assert!(
                    check.metrics.iter().any(|m| m.name == name),
                    "{name} is not declared"
                );
                given.insert(name);
            }
        }
    }
    for figure in CHECKS.iter().flat_map(|check| check.metrics) {
        // No golden history asks for these; the last four are tested in `availability.rs`.
        let never = [
            "holds_p50_ms",
            "holds_p99_ms",
            "holds_max_ms",
            "grant_after_heal_max_ms",
            "wakes_per_release_mean",
            "wakes_share_mean",
            "wakes_per_acquire_max",
        ];
        assert!(
            given.contains(figure.name) || never.contains(&figure.name),
            "{} never given",
            figure.name
        );
    }
}

#[test]
fn lost_writes_is_left_out_without_a_resource() {
    let mut header = common::header();
    header.resource = String::new();
    let history = History::from_events([Event::Header(header)]).expect("it settles");
    let names: Vec<String> = run_all(&history).into_iter().map(|r| r.check).collect();
    assert_eq!(
        names,
        [
            "terms",
            "fencing",
            "mutex",
            "lease",
            "availability",
            "stats"
        ]
    );
}
