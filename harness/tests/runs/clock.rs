//! Clocks in whole runs, on the model server: receipts, what they do to a lock, and that truth stays true.

use std::process::Command;

use checkers::history::History;
use checkers::term;

use crate::bench::Bench;

/// Holders that renew a lease of one second by their own clocks, and stop when these say that it is over.
const SCENARIO: &str = r#"
title = "clocks"
[cluster]
backend = "builtin"
nodes = 1
[workload]
kind = "mutex"
lock = "builtin"
discipline = "deadline"
clients = 4
workers = 2
locks = 1
ttl = "1s"
hold = "2s"
duration = "9s"
[[fault]]
FAULT
when = { at = "200ms" }
[[arm]]
name = "fault"
expect = { EXPECT }
"#;

fn with(fault: &str, expect: &str) -> String {
    SCENARIO.replace("FAULT", fault).replace("EXPECT", expect)
}

/// The history of the only trial, read and as text.
fn history(bench: &Bench) -> (History, String) {
    let path = bench.latest().join("fault/trial-1/history.jsonl.zst");
    let packed = std::fs::read(&path).unwrap();
    let text = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    (History::read(&path).unwrap(), text)
}

#[test]
fn slow_clocks_of_all_clients_let_two_of_them_hold_one_lock() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"clock-rate\"\ntarget = \"clients\"\nrate = \"0.25x\"";
        let file = bench.write(
            "s.toml",
            &with(
                fault,
                "overlapping_terms = \"> 0\", faults_proven = \"== 1\"",
            ),
        );
        bench.fencepost(&["run", &file, "--seed", "2"]).expect(0);
        let (_, text) = history(&bench);
        for words in [
            "c1: all clocks at 0.25× for",
            "; c2: all clocks at 0.25× for",
            "canary: rate 0.25",
            "sleeps: ",
            "condition variables: ",
        ] {
            assert!(text.contains(words), "no {words:?} in:\n{text}");
        }
    }
}

/// A lease of one second that is not renewed is over after 0.1 s at 10x. If a client's stamps were by its own
/// clock, they would say that it believed for a second.
#[test]
fn stamps_of_a_skewed_client_are_true() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"clock-rate\"\ntarget = \"clients\"\nrate = \"10x\"";
        let text = with(fault, "faults_proven = \"== 1\"")
            .replace("clients = 4", "clients = 4\nkeep_alive = false");
        let file = bench.write("s.toml", &text);
        bench.fencepost(&["run", &file, "--seed", "2"]).expect(0);
        let (history, _) = history(&bench);
        let mut lengths_ms: Vec<u64> = term::terms(&history)
            .iter()
            .filter(|term| term.ended == term::TermEnd::Lost)
            .map(|term| (term.end_ns - term.start_ns) / 1_000_000)
            .collect();
        lengths_ms.sort_unstable();
        let median_ms = lengths_ms.get(lengths_ms.len() / 2);
        assert!(
            median_ms.is_some_and(|ms| (80..400).contains(ms)),
            "{lengths_ms:?}"
        );
    }
}

#[test]
fn where_everything_is_traced_already_no_run_pretends_to_have_a_clock() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let fault = "kind = \"clock-rate\"\ntarget = \"clients\"\nrate = \"2x\"";
    let file = bench.write("s.toml", &with(fault, "faults_proven = \"== 1\""));
    let inner = bench.command(&["run", &file]);
    let output = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=none", "-o", "/dev/null"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(bench.folder())
        .env("CI", "true")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: strace cannot be had: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("cannot be traced") && said.contains("strace -f"),
        "{said}"
    );
}

#[test]
fn mistakes_about_clocks_name_file_and_line() {
    let bench = Bench::own();
    for (fault, says) in [
        (
            "kind = \"clock-rate\"\ntarget = \"client\"",
            "a `rate` such as \"2x\"",
        ),
        (
            "kind = \"clock-rate\"\ntarget = \"client\"\nrate = \"20x\"",
            "from \"0.1x\" to \"10x\"",
        ),
        (
            "kind = \"clock-rate\"\ntarget = \"client\"\nrate = \"2x\"\nshape = \"ramp\"",
            "add period",
        ),
        (
            "kind = \"clock-offset\"\ntarget = \"leaders\"\nby = \"1h\"",
            "leader",
        ),
        ("kind = \"clock-jump\"\ntarget = \"clients\"", "by"),
    ] {
        let file = bench.write("s.toml", &with(fault, "faults_proven = \"> 0\""));
        bench.fencepost(&["run", &file]).expect(2).says(says);
    }
}
