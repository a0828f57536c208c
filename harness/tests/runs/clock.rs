//! Clocks in whole runs, on the model server: receipts, what they do to a lock, and that truth stays true.

use checkers::history::History;
use checkers::term;

use crate::bench::Bench;

/// Its clients hold for two seconds of their own time and renew a lease of one second.
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

/// Two seconds of a client at 10x are 0.2 s. If its stamps were by its own clock they would say two.
#[test]
fn stamps_of_a_skewed_client_are_true() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"clock-rate\"\ntarget = \"clients\"\nrate = \"10x\"";
        let file = bench.write("s.toml", &with(fault, "faults_proven = \"== 1\""));
        bench.fencepost(&["run", &file, "--seed", "2"]).expect(0);
        let (history, _) = history(&bench);
        let mut lengths_ms: Vec<u64> = term::terms(&history)
            .iter()
            .filter(|term| term.ended == term::TermEnd::Released)
            .map(|term| (term.end_ns - term.start_ns) / 1_000_000)
            .collect();
        lengths_ms.sort_unstable();
        let median_ms = lengths_ms[lengths_ms.len() / 2];
        assert!((200..400).contains(&median_ms), "{lengths_ms:?}");
        // One after the other: what they say they held fits into the run.
        let sum_ms: u64 = lengths_ms.iter().sum();
        assert!(lengths_ms.len() > 10 && sum_ms < 12_000, "{lengths_ms:?}");
    }
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
