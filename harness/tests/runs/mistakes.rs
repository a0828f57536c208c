//! Mistakes of the user: each is a clear error with the right exit code, and leaves nothing behind.

use crate::bench::Bench;

const GOOD: &str = r#"
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
duration = "1s"
"#;

fn rejected(change: (&str, &str), says: &[&str]) {
    let bench = Bench::own();
    let file = bench.write("s.toml", &GOOD.replace(change.0, change.1));
    let mut done = bench.fencepost(&["run", &file]).expect(2);
    for text in says {
        done = done.says(text);
    }
    assert!(
        !bench.folder().join("results").exists(),
        "a rejected scenario must not create results"
    );
}

#[test]
fn scenario_files_with_mistakes_name_file_and_line() {
    rejected(("hold =", "hodl ="), &["s.toml:11", "hodl", "hold"]);
    rejected(("ttl = \"1s\"", "ttl = \"5 sec\""), &["s.toml:10", "5 sec"]);
    rejected(
        ("backend = \"builtin\"", "backend = \"etdc\""),
        &["s.toml:4", "etcd"],
    );
    rejected(
        ("nodes = 1", "version = \"9.9\""),
        &["s.toml:5", "9.9", "model"],
    );
    rejected(
        (
            "duration = \"1s\"",
            "duration = \"9s\"\n[[fault]]\nkind = \"pause\"\ntarget = \"node:n7\"\nwhen = { at = \"1s\" }\nlasts = \"1s\"",
        ),
        &["s.toml:15", "node:n7"],
    );
    rejected(
        (
            "duration = \"1s\"",
            "duration = \"1s\"\n[[arm]]\nname = \"a\"\nexpect = { terms = \"> 5, < 3\" }",
        ),
        &["s.toml:15", "> 5, < 3"],
    );
}

#[test]
fn a_missing_scenario_a_bad_flag_and_a_bad_override_are_usage_errors() {
    let bench = Bench::own();
    bench
        .fencepost(&["run", "nowhere.toml"])
        .expect(2)
        .says("nowhere.toml");
    bench.fencepost(&["run"]).expect(2).says("SCENARIO");
    bench.fencepost(&["walk"]).expect(2).says("walk");
    let file = bench.write("s.toml", GOOD);
    bench
        .fencepost(&["run", &file, "--set", "workload.hold"])
        .expect(2)
        .says("NAME=VALUE");
    bench
        .fencepost(&["run", &file, "--set", "workload.hold=soon"])
        .expect(2)
        .says("--set workload.hold=soon");
    bench
        .fencepost(&["run", &file, "--arm", "nobody"])
        .expect(2)
        .says("nobody");
    bench
        .fencepost(&["run", &file, "--backend", "consul"])
        .expect(2)
        .says("consul");
    bench
        .fencepost(&["check", "nowhere"])
        .expect(2)
        .says("nowhere");
    bench
        .fencepost(&["backends", "fetch", "etcd@0.1"])
        .expect(2)
        .says("0.1");
}

#[test]
fn results_that_cannot_be_written_are_a_set_up_error() {
    let bench = Bench::own();
    let file = bench.write("s.toml", GOOD);
    bench.write("file", "not a folder");
    bench
        .fencepost(&["run", &file, "--results", "file"])
        .expect(3)
        .says("cannot create the results folder");
}

#[test]
fn a_server_that_dies_or_never_gets_ready_is_named_with_its_log() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let scenario = GOOD
        .replace(
            "builtin\"\nnodes = 1",
            "etcd\"\nnodes = 1\nready_timeout = \"1500ms\"",
        )
        .replace("builtin", "etcd-mutex");
    let file = bench.write("s.toml", &scenario);
    let server = |rest: &str| {
        format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'etcd Version: 3.5.16'; exit 0; fi\n{rest}\n"
        )
    };
    let dies = bench.write(
        "dies",
        &server("echo 'cannot open the data directory' >&2; exit 7"),
    );
    let done = bench
        .fencepost(&["run", &file, "--binary", &format!("etcd={dies}")])
        .expect(3);
    let done = done
        .says("etcd on n1")
        .says("7")
        .says("cannot open the data directory");
    done.says("commands.txt");
    let silent = bench.write(
        "silent",
        &server("echo 'thinking about it'; exec sleep 100"),
    );
    let done = bench
        .fencepost(&["run", &file, "--binary", &format!("etcd={silent}")])
        .expect(3);
    done.says("does not accept writes")
        .says("n1")
        .says("thinking about it");
    let mismatch = bench.write("old", "#!/bin/sh\necho 'etcd Version: 3.3.25'\n");
    bench
        .fencepost(&["run", &file, "--binary", &format!("etcd={mismatch}")])
        .expect(2)
        .says("3.3.25");
    assert_eq!(bench.processes(), Vec::<i32>::new());
}
