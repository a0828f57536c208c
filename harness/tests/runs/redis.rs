//! Runs on a real Redis with Sentinels, and scenarios that ask it for what cannot be.

use harness::evaluate::TrialVerdict;

use crate::bench::Bench;

const VERSION: &str = "7.0.15";

/// A lock that no replica has heard of is granted again after the failover; with WAIT nobody believes in one.
#[test]
fn sentinels_promote_a_replica_that_never_heard_of_the_lock() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    if !Bench::can_have("redis", VERSION) {
        return;
    }
    let file = bench.write(
        "failover.toml",
        r#"
title = "the primary dies while its replicas are cut off"
[cluster]
backend = "redis"
nodes = 3
[workload]
kind = "mutex"
lock = "redis-lock"
clients = 48
workers = 2
locks = 24
ttl = "3s"
hold = "200ms..5s"
duration = "7s"
# Nobody believes for longer than what a replica was told: renewals are not waited for.
keep_alive = false
discipline = "deadline"
request_timeout = "500ms"
acquire_timeout = "5s"
options = { token = "incr" }
[[fault]]
kind = "link"
target = "node:n2"
with = "node:n1"
port = "6379"
cut = true
when = { at = "500ms" }
lasts = "2s"
[[fault]]
kind = "link"
target = "node:n3"
with = "node:n1"
port = "6379"
cut = true
when = { at = "500ms" }
lasts = "2s"
[[fault]]
kind = "crash"
target = "node:n1"
when = { at = "1500ms" }
lasts = "4s"
[[arm]]
name = "alone"
expect = { overlapping_terms = "> 0", lease_violations = ">= 0", tokens_repeated = ">= 0" }
[[arm]]
name = "with WAIT"
set = { "workload.options.wait_replicas" = 1, "workload.options.token" = "none" }
expect = { overlapping_terms = ">= 0", lease_violations = ">= 0" }
"#,
    );
    bench.fencepost(&["run", &file, "--seed", "1"]).expect(0);
    let (alone, with_wait) = (bench.trial("alone"), bench.trial("with WAIT"));
    assert!(alone.count("faults_proven") == 3);
    assert!(with_wait.count("acquires_refused") > 0);
    // The old primary takes itself for one again for a moment when it comes back: a few locks may be granted twice
    // then. What the failover grants again is more.
    let overlaps = |trial: &TrialVerdict| trial.count("overlapping_terms");
    assert!(
        overlaps(&with_wait) < overlaps(&alone),
        "{} with WAIT, {} without",
        overlaps(&with_wait),
        overlaps(&alone)
    );
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
