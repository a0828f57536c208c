//! Disks and power in whole runs, and what a machine must have for them.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, collect};
use crate::kill::Leftovers;

/// The model server writes its state and renames it into place, but never syncs it.
const SCENARIO: &str = r#"
title = "disks"
[cluster]
backend = "BACKEND"
nodes = NODES
[workload]
kind = "guarded-set"
lock = "LOCK"
resource = "memory"
discipline = "deadline"
clients = 6
workers = 2
locks = 3
ttl = "1s"
hold = "0s..200ms"
duration = "6s"
acquire_timeout = "4s"
request_timeout = "500ms"
FAULTS
[[arm]]
name = "fault"
expect = { EXPECT }
"#;

/// A scenario on the model server.
fn on_model(faults: &str, expect: &str) -> String {
    scenario(("builtin", "1", "builtin"), faults, expect)
}

/// A scenario on three nodes of etcd.
fn on_etcd(faults: &str, expect: &str) -> String {
    scenario(("etcd", "3", "etcd-v3lock"), faults, expect)
}

fn scenario((backend, nodes, lock): (&str, &str, &str), faults: &str, expect: &str) -> String {
    SCENARIO
        .replace("BACKEND", backend)
        .replace("NODES", nodes)
        .replace("LOCK", lock)
        .replace("FAULTS", faults)
        .replace("EXPECT", expect)
}

/// The history of the only trial, as text.
fn history(bench: &Bench) -> String {
    let packed = fs::read(bench.latest().join("fault/trial-1/history.jsonl.zst")).unwrap();
    String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap()
}

/// What the doctor says of a fault as this bench's user.
fn available(bench: &Bench, fault: &str) -> bool {
    let done = bench.fencepost(&["doctor", "--json"]).expect(0);
    let diagnosis: harness::doctor::Diagnosis = serde_json::from_str(&done.stdout).unwrap();
    let found = diagnosis.faults.iter().find(|found| found.name == fault);
    found.unwrap().available
}

#[test]
fn the_doctor_tells_of_every_fault_and_what_to_do_about_what_is_missing() {
    for bench in Bench::sandboxed() {
        let done = bench.fencepost(&["doctor", "--json"]).expect(0);
        let diagnosis: harness::doctor::Diagnosis = serde_json::from_str(&done.stdout).unwrap();
        let names: Vec<&str> = diagnosis
            .faults
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let known: Vec<&str> = nemesis::FAULTS.iter().map(|one| one.name).collect();
        assert_eq!(names, known);
        assert!(diagnosis.operations.len() > 5, "{diagnosis:?}");
        for found in diagnosis.operations.iter().filter(|one| !one.works) {
            assert!(
                found.errno.is_some() && found.detail.len() > 20,
                "{found:?}"
            );
        }
        for found in diagnosis.faults.iter().filter(|one| !one.available) {
            assert!(found.mechanisms.iter().any(|one| !one.works), "{found:?}");
        }
        let done = bench.fencepost(&["doctor"]).expect(0);
        assert!(
            done.stdout.contains("Runs are possible."),
            "{}",
            done.stdout
        );
    }
}

#[test]
fn a_crash_keeps_what_was_written_and_a_loss_of_power_what_was_synced() {
    for bench in Bench::sandboxed() {
        let fault = |kind: &str| {
            format!(
                "[[fault]]\nkind = \"{kind}\"\ntarget = \"one\"\nwhen = {{ at = \"3s\" }}\nlasts = \"300ms\""
            )
        };
        let file = bench.write(
            "crash.toml",
            &on_model(&fault("crash"), "tokens_repeated = \"== 0\""),
        );
        bench.fencepost(&["run", &file, "--seed", "3"]).expect(0);
        let lost = on_model(
            &fault("power-loss"),
            "tokens_repeated = \"> 0\", lease_violations = \">= 0\"",
        );
        let file = bench.write("power.toml", &lost);
        let done = bench.fencepost(&["run", &file, "--seed", "3"]);
        if !available(&bench, "power-loss") {
            done.expect(3).says("/dev/fuse").says("chmod 666");
            continue;
        }
        done.expect(0);
        let history = history(&bench);
        for words in [
            "connections; ",
            "unsynced bytes in",
            "name changes lost",
            "on again after",
        ] {
            assert!(history.contains(words), "no {words:?} in:\n{history}");
        }
    }
}

#[test]
fn a_stuck_disk_that_nobody_writes_to_proves_nothing() {
    for bench in Bench::sandboxed() {
        let fault =
            "[[fault]]\nkind = \"disk\"\ntarget = \"one\"\nwhen = { at = \"1s\" }\nlasts = \"1s\"";
        let file = bench.write("s.toml", &on_model(fault, "lost_writes = \"== 0\""));
        bench.fencepost(&["run", &file, "--seed", "3"]).expect(4);
        assert!(history(&bench).contains("NOT PROVEN: no sync ran into it"));
    }
}

#[test]
fn a_server_that_ends_of_a_broken_disk_is_started_again() {
    for bench in Bench::sandboxed() {
        let Some(binary) = bench.etcd("3.5.16") else {
            return;
        };
        let fault = "[[fault]]\nkind = \"disk\"\nwhat = \"eio\"\ntarget = \"follower\"\nwhen = { at = \"1s\" }\nlasts = \"1s\"";
        let file = bench.write("s.toml", &on_etcd(fault, "lost_writes = \"== 0\""));
        bench
            .fencepost(&["run", &file, "--seed", "3", "--binary", &binary])
            .expect(0);
        let history = history(&bench);
        for words in [
            "syncs fail with EIO",
            " failed",
            "its application ended of it and was started again",
        ] {
            assert!(history.contains(words), "no {words:?} in:\n{history}");
        }
    }
}

#[test]
fn a_run_killed_while_syncs_are_held_hosts_frozen_and_disks_mounted_leaves_nothing() {
    for bench in Bench::sandboxed() {
        let Some(binary) = bench.etcd("3.5.16") else {
            return;
        };
        let mut faults = "[[fault]]\nkind = \"disk\"\ntarget = \"all\"\nwhen = { at = \"500ms\" }\nlasts = \"20s\"\n\
            [[fault]]\nkind = \"pause\"\ntarget = \"node:n1\"\nwhen = { at = \"900ms\" }\nlasts = \"20s\"\n"
            .to_owned();
        if available(&bench, "power-loss") {
            faults.push_str("[[fault]]\nkind = \"power-loss\"\ntarget = \"node:n2\"\nwhen = { at = \"1300ms\" }\nlasts = \"20s\"\n");
        }
        let file = bench.write("s.toml", &on_etcd(&faults, "lost_writes = \">= 0\""));
        let file = fs::read_to_string(&file)
            .unwrap()
            .replace("\"6s\"", "\"30s\"");
        let file = bench.write("s.toml", &file);
        let before = Leftovers::now();
        let run = bench.start(&["run", &file, "--seed", "3", "--binary", &binary]);
        let started = Instant::now();
        let trial = bench.latest().join("fault/trial-1");
        std::thread::sleep(Duration::from_secs(8));
        kill(
            Pid::from_raw(i32::try_from(run.id()).unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        let killed = Instant::now();
        let done = collect(run);
        assert!(
            done.stderr.contains("[disk n1 n2 n3] · [pause n1]"),
            "after {:?}:\n{}{}",
            started.elapsed(),
            done.stdout,
            done.stderr
        );
        while !(bench.processes().is_empty() && before.is_all()) {
            let left = (bench.processes(), Leftovers::now());
            assert!(
                killed.elapsed() < Duration::from_secs(5),
                "left {left:?}, before {before:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        println!(
            "gone {:.0} ms after the kill",
            killed.elapsed().as_secs_f64() * 1e3
        );
        let check = bench.fencepost(&["check", &trial.display().to_string()]);
        assert!(matches!(check.code, Some(0 | 1 | 4)), "{check:?}");
    }
}
