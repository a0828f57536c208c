//! Runs on a real Consul.

use crate::bench::Bench;

/// A holder of a session of 1 s (which Consul ends after 2 s) is stopped for longer and for less than that.
#[test]
fn a_paused_holder_overwrites_unless_consul_checks_its_session() {
    for bench in Bench::sandboxed() {
        let Some(binary) = bench.server("consul", "1.8.7") else {
            return;
        };
        let file = bench.write(
            "consul.toml",
            r#"
title = "the value lives in Consul and each write depends on the lock's session"
[cluster]
backend = "consul"
nodes = 3
[workload]
kind = "guarded-set"
lock = "consul-lock"
resource = "consul"
clients = 3
ttl = "1s"
hold = "0s..20ms"
duration = "5s"
min_terms = 1
options = { lock-delay = "0s" }
[[fault]]
kind = "pause"
target = "holder"
when = { on = "before-write", at_most = 1 }
lasts = "3500ms"
[[arm]]
name = "unguarded"
expect = { lost_writes = "> 0", overlapping_terms = "> 0", early_expiries = "== 0" }
[[arm]]
name = "guarded"
set = { "workload.discipline" = "txn" }
expect = { lost_writes = "== 0", overlapping_terms = "> 0" }
[[arm]]
name = "lock-delay"
set = { "workload.options.lock-delay" = "15s", "workload.acquire_timeout" = "2s" }
expect = { lost_writes = "== 0", overlapping_terms = "== 0", faults_proven = "== 1" }
"#,
        );
        bench
            .fencepost(&["run", &file, "--seed", "4", "--binary", &binary])
            .expect(0);
        assert!(
            bench.trial("guarded").count("write_fail") > 0,
            "the transaction refused nobody"
        );
        assert!(bench.trial("unguarded").count("expiries_observed") > 0);
    }
}

const GOOD: &str = r#"
title = "t"
[cluster]
backend = "consul"
nodes = 3
[workload]
kind = "mutex"
lock = "consul-lock"
clients = 2
ttl = "2s"
duration = "1s"
options = { lock-delay = "60s" }
"#;

/// Before anything is fetched or started.
#[test]
fn what_consul_does_not_grant_is_an_error_at_its_line() {
    for (right, wrong, words) in [
        (
            "ttl = \"2s\"",
            "ttl = \"999ms\"",
            ["s.toml:10", "at least 1s"],
        ),
        (
            "ttl = \"2s\"",
            "ttl = \"25h\"",
            ["s.toml:10", "at most 1440m"],
        ),
        (
            "lock-delay = \"60s\"",
            "lock-delay = \"61s\"",
            ["s.toml:12", "from 0s to 1m"],
        ),
        (
            "lock-delay = \"60s\"",
            "token = \"session\"",
            ["s.toml:12", "\"modify-index\" or \"lock-index\""],
        ),
        ("nodes = 3", "nodes = 4", ["s.toml:5", "1, 3 or 5"]),
        (
            "nodes = 3",
            "nodes = 3\ntuning = { election = \"1s\" }",
            ["s.toml:3", "raft-multiplier"],
        ),
    ] {
        let bench = Bench::own();
        let file = bench.write("s.toml", &GOOD.replace(right, wrong));
        let mut done = bench.fencepost(&["run", &file]).expect(2);
        for text in words {
            done = done.says(text);
        }
    }
}
