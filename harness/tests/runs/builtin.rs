//! Runs on the model server: they need no download, and prove that each check can fail.

use crate::bench::{Bench, scenario};

#[test]
fn every_bug_is_caught_by_its_check_and_a_recheck_is_identical() {
    for bench in Bench::sandboxed() {
        let file = scenario("builtin/bugs-are-caught.toml");
        let done = bench.fencepost(&["run", &file, "--seed", "11"]).expect(0);
        assert!(
            done.stdout.contains("is a model"),
            "a model must say so:\n{}",
            done.stdout
        );
        assert_eq!(bench.trial("correct").count("overlapping_terms"), 0);
        for (arm, check) in [
            ("double grant", "terms"),
            ("early expiry", "terms"),
            ("forgets on restart", "terms"),
        ] {
            let trial = bench.trial(arm);
            let report = trial
                .reports
                .iter()
                .find(|report| report.check == check)
                .unwrap();
            assert_eq!(
                report.class,
                Some(checkers::check::Class::ServerFault),
                "{arm}: {report:?}"
            );
        }
        let recheck = bench.fencepost(&["check", "results/latest"]).expect(0);
        assert!(
            recheck.stdout.contains("byte for byte"),
            "{}",
            recheck.stdout
        );
        let trial = bench
            .fencepost(&["check", "results/latest/double-grant/trial-1"])
            .expect(0);
        assert!(trial.stdout.contains("byte for byte"), "{}", trial.stdout);
        // A bug that nobody expects fails the arm.
        let args = [
            "run",
            &file,
            "--seed",
            "11",
            "--arm",
            "correct",
            "--set",
            "cluster.bug=repeated-token",
        ];
        let done = bench.fencepost(&args).expect(1);
        assert!(
            done.stdout.contains("tokens_repeated == 0, found"),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn a_damaged_history_is_checked_up_to_the_damage() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let file = scenario("builtin/bugs-are-caught.toml");
    bench
        .fencepost(&["run", &file, "--seed", "3", "--arm", "correct"])
        .expect(0);
    let history = bench.latest().join("correct/trial-1/history.jsonl.zst");
    let whole = std::fs::read(&history).unwrap();

    std::fs::write(&history, &whole[..whole.len() / 2]).unwrap();
    let cut = bench.fencepost(&["check", "results/latest"]).expect(4);
    assert!(cut.stdout.contains("cut short at line"), "{}", cut.stdout);

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0xff;
    std::fs::write(&history, &damaged).unwrap();
    let done = bench.fencepost(&["check", "results/latest"]).expect(4);
    assert!(done.stdout.contains("history"), "{}", done.stdout);

    std::fs::write(&history, b"not a history").unwrap();
    let done = bench.fencepost(&["check", "results/latest"]).expect(4);
    assert!(done.stdout.contains("cannot be read"), "{}", done.stdout);

    std::fs::write(&history, &whole).unwrap();
    let done = bench.fencepost(&["check", "results/latest"]).expect(0);
    assert!(done.stdout.contains("byte for byte"), "{}", done.stdout);
}

#[test]
fn a_fault_that_was_skipped_while_another_was_proven_decides_nothing() {
    let Some(bench) = Bench::sandboxed().pop() else {
        return;
    };
    let file = bench.write(
        "s.toml",
        r#"
title = "two pauses of one client at a time"
[cluster]
backend = "builtin"
nodes = 1
[workload]
kind = "mutex"
lock = "builtin"
clients = 2
ttl = "1s"
hold = "10ms"
duration = "2s"
[[fault]]
kind = "pause"
target = "client:c1"
when = { at = "500ms" }
lasts = "1s"
[[fault]]
kind = "pause"
target = "client:c1"
when = { at = "1s" }
lasts = "100ms"
[[arm]]
name = "twice"
expect = { faults_proven = "> 0" }
"#,
    );
    let done = bench.fencepost(&["run", &file, "--seed", "1"]).expect(4);
    assert_eq!(bench.trial("twice").count("faults_proven"), 1);
    let said = "expected the fault pause of client:c1 at least 2 times, found 1 proven by a receipt: \
                c1 is already under fault 1 (pause)";
    assert!(done.stdout.contains(said), "{}", done.stdout);
}

#[test]
fn a_fault_without_a_receipt_and_a_workload_that_barely_ran_are_inconclusive() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let file = bench.write(
        "s.toml",
        r#"
title = "a fault that never finds its target"
[cluster]
backend = "builtin"
nodes = 1
[workload]
kind = "mutex"
lock = "builtin"
clients = 1
ttl = "1s"
hold = "10ms"
duration = "2s"
[[fault]]
kind = "pause"
target = "holder"
when = { on = "acquired", after = "500ms", at_most = 2 }
lasts = "100ms"
[[arm]]
name = "unproven"
expect = { overlapping_terms = "== 0" }
"#,
    );
    let done = bench.fencepost(&["run", &file, "--seed", "1"]);
    let proven = bench.trial("unproven").count("faults_proven");
    // The holder has long let go when the pause comes; should another hold just then, it is proven.
    let done = done.expect(if proven == 0 { 4 } else { 0 });
    assert_eq!(
        done.stdout.contains("no fault is proven by its receipt"),
        proven == 0,
        "{}",
        done.stdout
    );

    let done = bench
        .fencepost(&[
            "run",
            &file,
            "--set",
            "faults=false",
            "--set",
            "workload.min_terms=100000",
        ])
        .expect(4);
    assert!(
        done.stdout.contains("the scenario needs 100000"),
        "{}",
        done.stdout
    );
}
