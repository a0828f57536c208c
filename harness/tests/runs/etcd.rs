//! Runs on a real etcd.

use crate::bench::{Bench, scenario};

#[test]
fn quickstart_loses_writes_without_fencing_and_none_with_it() {
    for bench in Bench::sandboxed() {
        let Some(binary) = bench.etcd("3.5.16") else {
            return;
        };
        let done = bench
            .fencepost(&[
                "run",
                &scenario("quickstart.toml"),
                "--seed",
                "1",
                "--binary",
                &binary,
            ])
            .expect(0);
        let (unfenced, fenced, control) = (
            bench.trial("unfenced"),
            bench.trial("fenced"),
            bench.trial("no fault"),
        );
        assert!(unfenced.count("lost_writes") > 0 && unfenced.count("faults_proven") > 0);
        assert!(fenced.count("lost_writes") == 0 && fenced.count("stale_writes_rejected") > 0);
        assert!(control.count("lost_writes") == 0 && control.count("overlapping_terms") == 0);
        // The story names the pause, the lease's end and the write that clobbered.
        for words in [
            "pause of c",
            "was lifted, proven",
            "overw",
            "inherent hazard of leases",
            "--seed 1",
        ] {
            assert!(
                done.stdout.contains(words),
                "no {words:?} in:\n{}",
                done.stdout
            );
        }
    }
}

#[test]
fn an_old_etcd_hands_out_a_lock_whose_lease_is_gone() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    if bench.etcd("3.4.23").is_none() || bench.etcd("3.5.16").is_none() {
        return;
    }
    let file = scenario("etcd/expired-while-queued.toml");
    bench
        .fencepost(&[
            "run", &file, "--seed", "1", "--arm", "3.4.23", "--arm", "3.5.16",
        ])
        .expect(0);
    assert!(bench.trial("3.4.23").count("expired_grants") > 0);
    assert_eq!(bench.trial("3.5.16").count("expired_grants"), 0);
    assert!(bench.trial("3.5.16").count("acquires_refused") > 0);
}

#[test]
fn the_client_recipe_and_the_guarded_transaction_hold() {
    for bench in Bench::sandboxed() {
        let Some(binary) = bench.etcd("3.5.16") else {
            return;
        };
        let file = bench.write(
            "txn.toml",
            r#"
title = "the value lives in etcd and each write depends on the lock's key"
[cluster]
backend = "etcd"
nodes = 3
[workload]
kind = "guarded-set"
lock = "etcd-mutex"
resource = "etcd"
clients = 3
ttl = "1s"
hold = "0s..20ms"
duration = "5s"
[[fault]]
kind = "pause"
target = "holder"
when = { on = "before-write", at_most = 1, after = "0s" }
lasts = "2500ms"
[[arm]]
name = "unguarded"
expect = { lost_writes = "> 0", overlapping_terms = "> 0" }
[[arm]]
name = "guarded"
set = { "workload.discipline" = "txn" }
expect = { lost_writes = "== 0" }
[[arm]]
name = "session"
set = { "workload.discipline" = "session", "workload.resource" = "memory" }
expect = { lost_writes = ">= 0", overlapping_terms = ">= 0" }
"#,
        );
        bench
            .fencepost(&["run", &file, "--seed", "4", "--binary", &binary])
            .expect(0);
        assert!(
            bench.trial("guarded").count("write_fail") > 0,
            "the transaction refused nobody"
        );
    }
}
