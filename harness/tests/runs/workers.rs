//! Workers that do not keep to the protocol: they end themselves, not the run, and are quoted.

use crate::bench::Bench;

const SCENARIO: &str = r#"
title = "t"
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
"#;

const READY: &str = r#"#!/bin/sh
echo '{"hello":{"protocol":1,"worker":"a shell script"}}'
read -r setup
echo '{"ready":true}'
"#;

fn run(bench: &Bench, worker: &str) -> crate::bench::Done {
    let file = bench.write("s.toml", SCENARIO);
    let worker = bench.write("worker", worker);
    bench.fencepost(&["run", &file, "--worker", &worker, "--seed", "1"])
}

#[test]
fn rubbish_is_quoted_and_the_run_is_inconclusive() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let done = run(
        &bench,
        &format!("{READY}read -r step\necho 'what is a lock?'\nexec sleep 60\n"),
    )
    .expect(4);
    done.says("c1 wrote a line that is not of the worker protocol")
        .says("what is a lock?");
    let done = run(
        &bench,
        &format!(
            "{READY}read -r step\necho '{{\"op\":99,\"type\":\"ok\",\"invoke_ns\":1,\"return_ns\":2}}'\nexec sleep 60\n"
        ),
    );
    done.expect(4)
        .says("operation 99 is not open in this worker");
    assert_eq!(bench.processes(), Vec::<i32>::new());
}

#[test]
fn a_closed_pipe_and_silence_are_inconclusive() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    run(&bench, &format!("{READY}exit 0\n"))
        .expect(4)
        .says("closed its output");
    let done = run(&bench, &format!("{READY}exec cat > /dev/null\n")).expect(4);
    assert!(
        done.stdout.contains("only 0 terms were completed"),
        "{}",
        done.stdout
    );
}

#[test]
fn a_worker_that_cannot_be_set_up_fails_the_set_up() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    run(
        &bench,
        "#!/bin/sh\necho '{\"hello\":{\"protocol\":9,\"worker\":\"x\"}}'\nexec sleep 60\n",
    )
    .expect(3)
    .says("speaks protocol 9");
    let refuses = "#!/bin/sh\necho '{\"hello\":{\"protocol\":1,\"worker\":\"x\"}}'\nread -r setup\necho '{\"refused\":\"no such lock\"}'\nexec sleep 60\n";
    run(&bench, refuses)
        .expect(3)
        .says("refused its set-up: no such lock");
    run(&bench, "#!/bin/sh\nexec sleep 60\n")
        .expect(3)
        .says("did not say hello within 10s");
}
