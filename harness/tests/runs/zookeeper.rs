//! A run on a real ZooKeeper ensemble, and mistakes that only it can have.

use crate::bench::Bench;

const VERSION: &str = "3.9.3";

const SCENARIO: &str = r#"
title = "the value lives in ZooKeeper and each write depends on the lock's node"
[cluster]
backend = "zookeeper"
version = "3.9.3"
nodes = 3
[workload]
kind = "guarded-set"
lock = "zookeeper-lock"
resource = "zookeeper"
clients = 4
ttl = "1s"
hold = "0s..20ms"
duration = "6s"
[[fault]]
kind = "pause"
target = "holder"
when = { on = "before-write", at_most = 1, after = "0s" }
lasts = "3s"
[[arm]]
name = "unguarded"
expect = { lost_writes = "> 0", overlapping_terms = "> 0" }
[[arm]]
name = "guarded"
set = { "workload.discipline" = "txn" }
expect = { lost_writes = "== 0", wakes_per_release_mean = "> 0" }
"#;

#[test]
fn a_paused_holder_loses_writes_unless_they_are_guarded() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    if !Bench::can_have("zookeeper", VERSION) {
        return;
    }
    let file = bench.write("zookeeper.toml", SCENARIO);
    bench.fencepost(&["run", &file, "--seed", "3"]).expect(0);
    assert!(
        bench.trial("guarded").count("write_fail") > 0,
        "the multi refused nobody"
    );
}

#[test]
fn what_zookeeper_cannot_do_is_refused_with_its_line() {
    let bench = Bench::own();
    for (change, says) in [
        (
            ("ttl = \"1s\"", "ttl = \"999ms\""),
            ["zookeeper.toml:12", "at least 1s"],
        ),
        (
            ("ttl = \"1s\"", "ttl = \"11s\""),
            ["zookeeper.toml:12", "at most 10s"],
        ),
        (
            ("nodes = 3", "nodes = 2"),
            ["zookeeper.toml:6", "1, 3 or 5"],
        ),
        (
            (
                "clients = 4",
                "options = { waiters = \"hred\" }\nclients = 4",
            ),
            ["zookeeper.toml:11", "herd"],
        ),
        (
            (
                "clients = 4",
                "options = { ordering = \"session-first\" }\nclients = 4",
            ),
            ["zookeeper.toml:9", "node_names"],
        ),
        (
            (
                "nodes = 3",
                "nodes = 3\ntuning = { heartbeat = \"500ms\", election = \"600ms\" }",
            ),
            ["zookeeper.toml", "at least two of"],
        ),
    ] {
        let file = bench.write("zookeeper.toml", &SCENARIO.replace(change.0, change.1));
        let mut done = bench.fencepost(&["run", &file]).expect(2);
        for text in says {
            done = done.says(text);
        }
    }
}
