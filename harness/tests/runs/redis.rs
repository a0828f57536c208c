//! Runs on a real Redis with Sentinels, and scenarios that ask it for what cannot be.

use crate::bench::Bench;

const VERSION: &str = "7.0.15";

/// The lock of Redis's own documentation, on a primary with replicas and Sentinels.
#[test]
fn a_paused_holder_loses_writes_unless_they_are_fenced() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    if !Bench::can_have("redis", VERSION) {
        return;
    }
    let file = bench.write(
        "paused.toml",
        r#"
title = "a holder that pauses, under Sentinels, alone and with a counter as its fencing token"
[cluster]
backend = "redis"
nodes = 3
[workload]
kind = "guarded-set"
lock = "redis-lock"
resource = "memory"
clients = 5
ttl = "1s"
hold = "0s..50ms"
think = "50ms..150ms"
duration = "6s"
options = { token = "incr" }
[[fault]]
kind = "pause"
target = "holder"
when = { on = "before-write", at_most = 1, after = "0s" }
lasts = "2500ms"
[[arm]]
name = "unfenced"
expect = { lost_writes = "> 0", overlapping_terms = "> 0" }
[[arm]]
name = "fenced"
set = { "workload.discipline" = "token" }
expect = { lost_writes = "== 0", stale_writes_rejected = "> 0" }
"#,
    );
    bench.fencepost(&["run", &file, "--seed", "3"]).expect(0);
    assert!(bench.trial("unfenced").count("faults_proven") == 1);
}

#[test]
fn what_redis_cannot_be_asked_for_is_said_at_its_line() {
    let bench = Bench::own();
    for (nodes, cluster, lock, ttl, expected) in [
        (
            2,
            "topology = \"independent\"",
            "redlock",
            "2s",
            "an odd number of nodes, 3 at least",
        ),
        (
            1,
            "topology = \"independent\"",
            "redlock",
            "2s",
            "an odd number of nodes, 3 at least",
        ),
        (
            3,
            "topology = \"independent\"",
            "redlock",
            "40ms",
            "a TTL that outlasts",
        ),
        (
            3,
            "topology = \"independent\"",
            "redis-lock",
            "2s",
            "or lock = \"redlock\"",
        ),
        (
            1,
            "topology = \"sentinel\"",
            "redis-lock",
            "2s",
            "at least 2 nodes",
        ),
        (3, "topology = \"single\"", "redis-lock", "2s", "nodes = 1"),
        (
            1,
            "topology = \"single\"",
            "redis-exclusive-lease",
            "1500ms",
            "whole seconds",
        ),
        (
            1,
            "topology = \"single\"",
            "redis-lock",
            "5ms",
            "at least 10ms, the shortest",
        ),
    ] {
        let text = format!(
            "title = \"bad\"\n\
             [cluster]\nbackend = \"redis\"\nnodes = {nodes}\noptions = {{ {cluster} }}\n\
             [workload]\nkind = \"mutex\"\nlock = \"{lock}\"\nclients = 2\nttl = \"{ttl}\"\nduration = \"1s\"\n"
        );
        let file = bench.write("bad.toml", &text);
        let done = bench.fencepost(&["run", &file]).expect(2);
        assert!(
            done.stderr.contains(expected),
            "no {expected:?} in:\n{}",
            done.stderr
        );
        assert!(done.stderr.contains("bad.toml:"), "{}", done.stderr);
    }
}
