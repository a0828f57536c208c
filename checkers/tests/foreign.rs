//! Foreign histories: every verdict under `shared/data/linearizability`, the formats, and bad input.
//!
//! The data is looked for in `../shared/data` beside the workspace, or where FENCEPOST_SHARED says.

use std::fs;
use std::path::{Path, PathBuf};

use checkers::check::{Report, Verdict};
use checkers::foreign::{Foreign, Format, Options};
use checkers::judge::{Question, judge};
use checkers::search::wgl::Limits;

fn question(model: &str, initial: Option<&str>) -> Question {
    Question {
        model: model.parse().expect("a model"),
        name: model.to_owned(),
        initial: initial.map(str::to_owned),
        limits: Limits::default(),
    }
}

fn check(path: &Path, model: &str, initial: Option<&str>) -> Report {
    let question = question(model, initial);
    let options = Options::new(question.model.shape());
    let mut foreign = Foreign::read(path, &options).unwrap_or_else(|error| panic!("{error}"));
    judge(&mut foreign, &question)
}

fn text(text: &str, model: &str) -> Report {
    read(text, model, &question(model, None))
}

fn read(text: &str, model: &str, question: &Question) -> Report {
    let options = Options::new(question.model.shape());
    let mut foreign = Foreign::read_from(text.as_bytes(), model, &options)
        .unwrap_or_else(|error| panic!("{error}"));
    judge(&mut foreign, question)
}

/// The data folder; `None`, with a line that says so, when it is not there.
fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("FENCEPOST_SHARED").map_or_else(beside, PathBuf::from);
    let data = shared.join("data/linearizability");
    if !data.is_dir() {
        println!(
            "skipped: there is no {}; set FENCEPOST_SHARED",
            data.display()
        );
        return None;
    }
    Some(data)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_etcd_log_has_its_verdict() {
    let Some(data) = data() else { return };
    let verdicts = fs::read_to_string(data.join("etcd/verdicts.txt")).expect("verdicts");
    let mut judged = 0;
    for line in verdicts.lines() {
        let (name, expected) = line.split_once(' ').expect("name and verdict");
        let expected = if expected == "ok" {
            Verdict::Valid
        } else {
            Verdict::Invalid
        };
        let found = check(&data.join("etcd").join(name), "cas-register", None);
        assert_eq!(found.verdict, expected, "{name}: {found:#?}");
        judged += 1;
    }
    assert!(judged > 40, "only {judged}");
}

#[test]
fn every_knossos_register_has_its_verdict() {
    let Some(data) = data() else { return };
    for (folder, expected) in [("good", Verdict::Valid), ("bad", Verdict::Invalid)] {
        for path in files(&data.join("knossos").join(folder)) {
            let found = check(&path, "cas-register", Some("0"));
            assert_eq!(found.verdict, expected, "{}: {found:#?}", path.display());
        }
    }
}

#[test]
fn knossos_mutex_is_invalid_with_and_without_owner() {
    let Some(data) = data() else { return };
    for model in ["mutex", "owner-mutex"] {
        let found = check(&data.join("knossos/mutex-etcd.edn"), model, None);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert!(
            found.witnesses[0].ops.len() <= 12,
            "{:#?}",
            found.witnesses[0]
        );
    }
}
