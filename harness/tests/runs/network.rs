//! Faults on links in whole runs, on the model server: they need no download.

use std::fs;

use crate::bench::Bench;

const SCENARIO: &str = r#"
title = "links"
[cluster]
backend = "builtin"
nodes = 1
[workload]
kind = "guarded-set"
lock = "builtin"
resource = "memory"
clients = 3
ttl = "500ms"
hold = "10ms..900ms"
duration = "6s"
acquire_timeout = "2s"
request_timeout = "500ms"
[[fault]]
FAULT
when = { every = "2s", first = "500ms" }
lasts = "1200ms"
[[arm]]
name = "fault"
expect = { faults_proven = "> 0" }
"#;

fn with(fault: &str) -> String {
    SCENARIO.replace("FAULT", fault)
}

/// The history of the only trial, as text.
fn history(bench: &Bench) -> String {
    let packed = fs::read(bench.latest().join("fault/trial-1/history.jsonl.zst")).unwrap();
    String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap()
}

#[test]
fn a_holder_cut_off_from_its_server_loses_writes() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"partition\"\ntarget = \"holder\"\nfrom = \"its-node\"";
        // Cut off at its beginning, a hold of more than twice the TTL is overtaken for sure.
        let text = with(fault)
            .replace("10ms..900ms", "1200ms..1500ms")
            .replace(
                "every = \"2s\", first = \"500ms\"",
                "on = \"acquired\", after = \"20ms\", at_most = 2, spacing = \"2s\"",
            );
        let file = bench.write("s.toml", &text);
        bench.fencepost(&["run", &file, "--seed", "5"]).expect(0);
        let trial = bench.trial("fault");
        assert!(trial.count("overlapping_terms") > 0, "{trial:?}");
        let history = history(&bench);
        assert!(
            history.contains("cut off from its-node both ways"),
            "{history}"
        );
    }
}

#[test]
fn a_lossy_slow_link_strikes_frames_and_says_how_late_they_were() {
    for bench in Bench::sandboxed() {
        let fault = "kind = \"link\"\ntarget = \"all\"\nwith = \"clients\"\ndelay = \"20ms\"\njitter = \"5ms\"\nloss = 0.1\ncorrupt = 0.05";
        let file = bench.write("s.toml", &with(fault));
        bench.fencepost(&["run", &file, "--seed", "5"]).expect(0);
        let history = history(&bench);
        for words in ["delayed", "lost", "corrupted", "sent on late by", "(p99)"] {
            assert!(history.contains(words), "no {words:?} in:\n{history}");
        }
    }
}

#[test]
fn a_cut_that_no_frame_ran_into_proves_nothing() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let fault = "kind = \"partition\"\ntarget = \"holder\"\nport = \"9\"";
    let file = bench.write("s.toml", &with(fault));
    bench.fencepost(&["run", &file, "--seed", "5"]).expect(4);
    assert!(history(&bench).contains("NOT PROVEN: no frame was cut"));
}

#[test]
fn a_bridge_without_nft_is_a_set_up_that_fails_with_what_to_do() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let fault = "kind = \"partition\"\ntarget = \"holder\"";
    let file = bench.write("s.toml", &with(fault));
    let output = bench
        .command(&["run", &file, "--set", "cluster.network=bridge"])
        .env("PATH", bench.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("install the package nftables"), "{said}");
}

#[test]
fn a_bridge_with_nft_cuts_too() {
    let Some(bench) = Bench::sandboxed().into_iter().next() else {
        return;
    };
    let nft = std::process::Command::new("nft").arg("--version").output();
    if let Err(error) = nft {
        eprintln!("skipped: nft cannot be had: {error}");
        return;
    }
    let fault = "kind = \"partition\"\ntarget = \"holder\"\nfrom = \"its-node\"";
    let file = bench.write("s.toml", &with(fault));
    let set = [
        "run",
        &file,
        "--seed",
        "5",
        "--set",
        "cluster.network=bridge",
    ];
    bench.fencepost(&set).expect(0);
    assert!(history(&bench).contains("bridge with nftables"));
}

#[test]
fn a_bridge_asked_for_more_than_it_can_do_is_a_mistake_of_that_line() {
    let bench = Bench::own();
    let fault = "kind = \"link\"\ntarget = \"all\"\nwith = \"clients\"\ndelay = \"20ms\"";
    let file = bench.write("s.toml", &with(fault));
    let args = ["run", &file, "--set", "cluster.network=bridge"];
    let done = bench.fencepost(&args).expect(2);
    done.says("s.toml:20")
        .says("`delay` with cluster.network = \"bridge\"")
        .says("take cluster.network");
}

#[test]
fn mistakes_about_links_name_file_and_line() {
    let bench = Bench::own();
    for (fault, says) in [
        (
            "kind = \"partition\"\ntarget = \"leader\"\nfrom = \"node:n7\"",
            "node:n7",
        ),
        (
            "kind = \"partition\"\ntarget = \"leader\"\nfrom = \"nobody\"",
            "its-node",
        ),
        (
            "kind = \"link\"\ntarget = \"leader\"",
            "at least one effect",
        ),
        (
            "kind = \"link\"\ntarget = \"leader\"\ncut = true\nloss = 0.5",
            "leave one of them out",
        ),
        (
            "kind = \"link\"\ntarget = \"leader\"\nlos = 0.5",
            "did you mean `loss`?",
        ),
    ] {
        let file = bench.write("s.toml", &with(fault));
        bench.fencepost(&["run", &file]).expect(2).says(says);
    }
}
