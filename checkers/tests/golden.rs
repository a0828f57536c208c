//! Golden histories: short and literal, each illegal one named for its anomaly.
//!
//! The snapshots hold what every check but `stats` says about each; `stats` is held once.

use std::fs;
use std::path::{Path, PathBuf};

use checkers::check::{Class, Report, Verdict, run_all};
use checkers::history::History;

fn histories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

fn read(path: &Path) -> History {
    History::read(path).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_golden_history_is_judged_as_before() {
    for path in histories() {
        let history = read(&path);
        let mut reports = run_all(&history);
        if name(&path) != "correct-hand-over" {
            reports.retain(|report| report.check != "stats");
        }
        let mut text = serde_json::to_string_pretty(&reports).expect("reports serialise");
        if let Some(truncated) = &history.truncated {
            text = format!(
                "truncated at line {}: {}\n{text}",
                truncated.line, truncated.why
            );
        }
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(name(&path), text);
        });
    }
}

/// Which check must find which anomaly, whatever the snapshots say.
#[test]
fn every_anomaly_is_caught_by_the_check_meant_for_it() {
    for path in histories() {
        let name = name(&path);
        let guilty: &[&str] = match name.as_str() {
            "correct-hand-over" | "heeded-loss" | "holder-crashed" | "holder-retired" => &[],
            "lost-update-by-paused-holder" | "truncated-after-lost-update" => {
                &["terms", "lost-writes", "fencing", "mutex"]
            }
            "lost-update-without-accesses" => &["terms", "lost-writes", "mutex"],
            "lost-update-by-double-grant" => &["terms", "lost-writes", "mutex", "lease"],
            "stale-write-rejected" => &["terms", "mutex"],
            "double-grant" | "early-expiry" => &["terms", "mutex", "lease"],
            "expired-grant"
            | "expired-grant-after-a-pause-in-the-queue"
            | "expired-grant-found-after-a-pause" => &["terms"],
            "stale-write-accepted" | "stale-write-accepted-though-enforced" => {
                &["terms", "fencing", "mutex"]
            }
            "repeated-token" => &["fencing", "mutex"],
            "token-out-of-order" => &["fencing", "mutex", "lease"],
            "lost-without-clobberer" | "write-outside-term" => &["lost-writes"],
            "late-write" => &["lost-writes", "fencing"],
            "stale-read" => &["register"],
            "write-forgotten-by-a-lying-disk" | "write-forgotten-by-an-honest-disk" => {
                &["lost-writes", "register"]
            }
            other => panic!("say here which checks must find {other}"),
        };
        let found: Vec<String> = run_all(&read(&path))
            .into_iter()
            .filter(|report| report.verdict == Verdict::Invalid)
            .map(|report| report.check)
            .collect();
        assert_eq!(found, guilty, "{name}");
    }
}

/// The disk is answerable for what it promised; without a lie, nobody but the store is.
#[test]
fn a_store_is_not_to_blame_for_what_its_disk_promised() {
    for (name, class) in [
        ("write-forgotten-by-a-lying-disk", Some(Class::FaultsDoing)),
        (
            "write-forgotten-by-an-honest-disk",
            Some(Class::ServerFault),
        ),
    ] {
        let file = format!("tests/histories/{name}.jsonl");
        let history = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        let reports = run_all(&history);
        let of = |check: &str| reports.iter().find(|report| report.check == check);
        assert_eq!(of("register").expect("it applies").class, class, "{name}");
        let lost = of("lost-writes").expect("it applies");
        let lie = lost.witnesses[0]
            .headline
            .contains("the store forgot it when n1");
        assert_eq!(lie, class == Some(Class::FaultsDoing), "{lost:?}");
    }
}

#[test]
fn reports_are_the_same_when_recomputed_and_after_storing() {
    for path in histories() {
        let history = read(&path);
        let text = serde_json::to_string_pretty(&run_all(&history)).expect("reports serialise");
        let again = serde_json::to_string_pretty(&run_all(&read(&path))).expect("they do");
        assert_eq!(text, again);
        let stored: Vec<Report> = serde_json::from_str(&text).expect("reports deserialise");
        assert_eq!(
            serde_json::to_string_pretty(&stored).expect("they do"),
            text
        );
    }
}
