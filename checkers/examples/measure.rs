//! Time and peak memory from a history file to the verdict, in a process of its own.
//!
//! `cargo run --release -p checkers --example measure -- write 1000000 20 3 /tmp/h.jsonl.zst` makes a history of
//! that many operations by 20 clients with 3 % unknown outcomes; `… -- check /tmp/h.jsonl.zst owner-mutex`
//! measures. `… -- all FILE` runs every check on it.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use checkers::check::run_all;
use checkers::foreign::{Foreign, Options};
use checkers::history::History;
use checkers::judge::{Question, judge};
use checkers::model::name::ModelName;
use checkers::search::wgl::Limits;

#[path = "../benches/made/mod.rs"]
mod made;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["write", operations, clients, unknown_percent, path] => {
            let shape = made::Shape {
                operations: number(operations),
                clients: number(clients) as u32,
                unknown_percent: number(unknown_percent),
            };
            made::write(&shape, File::create(path).expect("the file can be created"));
        }
        ["check", path, model] => check(Path::new(path), model),
        ["all", path] => all(Path::new(path)),
        _ => eprintln!(
            "usage: measure write OPERATIONS CLIENTS UNKNOWN_PERCENT FILE | check FILE MODEL | all FILE"
        ),
    }
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("expected a number, found `{text}`"))
}

fn check(path: &Path, name: &str) {
    let model: ModelName = name.parse().unwrap_or_else(|error| panic!("{error}"));
    let start = Instant::now();
    let mut foreign =
        Foreign::read(path, &Options::new(model.shape())).unwrap_or_else(|error| panic!("{error}"));
    let read = start.elapsed();
    let question = Question {
        model,
        name: name.to_owned(),
        initial: None,
        limits: Limits::default(),
    };
    let report = judge(&mut foreign, &question);
    let total = start.elapsed();
    println!(
        "{name}: {} operations, {}; read {:.3} s, check {:.3} s, in all {:.3} s; peak {} MB",
        foreign.ops.len(),
        report.verdict,
        read.as_secs_f64(),
        (total - read).as_secs_f64(),
        total.as_secs_f64(),
        peak_mb()
    );
}

fn all(path: &Path) {
    let start = Instant::now();
    let history = History::read(path).unwrap_or_else(|error| panic!("{error}"));
    let read = start.elapsed();
    let reports = run_all(&history);
    println!(
        "{} checks on {} operations: read {:.3} s, in all {:.3} s; peak {} MB",
        reports.len(),
        history.operations.len(),
        read.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        peak_mb()
    );
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}
