//! Stored plans run again: the same draws, and what can be wrong with a plan.

use std::fs;

use harness::trial::TrialPlan;

use crate::bench::Bench;
use crate::nemesis::{DRAWN, trial};

/// A short run of a drawn schedule in which everything applies.
fn ran() -> Option<(Bench, TrialPlan)> {
    let bench = Bench::sandboxed().into_iter().next()?;
    let text = DRAWN
        .replace("duration = \"9s\"", "duration = \"5s\"")
        .replace("faults_proven = \"> 4\"", "faults_proven = \"> 0\"");
    let file = bench.write("s.toml", &text);
    let done = bench.fencepost(&["run", &file, "--seed", "4"]).expect(0);
    let says = format!(
        "fencepost run --replay {}",
        bench.latest().canonicalize().unwrap().display()
    );
    assert!(done.stdout.contains(&says), "{}", done.stdout);
    let (plan, _) = trial(&bench);
    Some((bench, plan))
}

#[test]
fn a_stored_plan_runs_again_as_it_was_drawn() {
    let Some((bench, first)) = ran() else { return };
    // A draw that no seed gives: it can only come from the file.
    let mut changed = first.clone();
    let firings = &mut changed.schedule.drawn.as_mut().unwrap().firings;
    firings.truncate(2);
    firings[1].at_ns = 1_234_567_890;
    let folder = bench.latest().canonicalize().unwrap();
    let file = folder.join("fenced/trial-1/plan.json");
    fs::write(&file, serde_json::to_vec(&changed).unwrap()).unwrap();

    for stored in [folder.clone(), folder.join("plan.json"), file.clone()] {
        let stored = stored.display().to_string();
        let done = bench.fencepost(&["run", "--replay", &stored]).expect(0);
        assert!(
            done.stdout
                .contains(&format!("fencepost run --replay {stored}")),
            "{}",
            done.stdout
        );
        let (again, faults) = trial(&bench);
        assert_eq!(again.schedule, changed.schedule);
        assert_eq!((again.seed, &again.arm), (first.seed, &first.arm));
        let requested: Vec<u64> = faults.iter().map(|fault| fault.requested_ns).collect();
        let last_ns = requested.iter().max().unwrap() - requested.iter().min().unwrap();
        let planned_ns = 1_234_567_890 - changed.schedule.drawn.as_ref().unwrap().firings[0].at_ns;
        assert!(
            last_ns >= planned_ns.saturating_sub(500_000_000),
            "{last_ns}"
        );
        assert!(faults.iter().all(|fault| fault.id <= 2), "{faults:?}");
        let check = bench.fencepost(&["check", "results/latest"]).expect(0);
        assert!(check.stdout.contains("byte for byte"), "{}", check.stdout);
    }
}

#[test]
fn what_is_no_plan_or_cannot_be_carried_out_is_said_before_anything_starts() {
    let Some((bench, plan)) = ran() else { return };
    let plan = serde_json::to_value(&plan).unwrap();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = plan.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    let runs = fs::read_dir(bench.folder().join("results"))
        .unwrap()
        .count();
    for (text, says) in [
        ("title = \"a scenario\"".to_owned(), "found no JSON"),
        ("{}".to_owned(), "JSON that states no format"),
        (
            "{\"format\": 1}".to_owned(),
            "without a scenario or a schedule",
        ),
        (with("/format", 7.into()), "found format 7"),
        (
            with("/arm/cluster/backend", "oracle".into()),
            "it has no backend \"oracle\"",
        ),
        (
            with("/arm/workload/lock", "chubby".into()),
            "it has no lock \"chubby\"",
        ),
        (
            with("/arm/faults/0/kind", "meteor".into()),
            "found \"meteor\"",
        ),
        (
            with("/arm/expect/0/metric", "joy".into()),
            "it has no metric \"joy\"",
        ),
        (with("/arm/workload/tokens", "burn".into()), "burn"),
        (
            with("/schedule/drawn/firings/0/choices", serde_json::json!([])),
            "a draw that came to no fault",
        ),
        (
            with("/schedule/drawn/firings/0/choices/0/fault", 9.into()),
            "it has a firing of fault 10, but there are 4",
        ),
    ] {
        let file = bench.write("plan.json", &text);
        bench
            .fencepost(&["run", "--replay", &file])
            .expect(2)
            .says(says)
            .says("plan.json");
    }
    bench
        .fencepost(&["run", "--replay", "nowhere.json"])
        .expect(2)
        .says("nowhere.json");
    let lonely = fs::read_to_string(bench.latest().join("plan.json")).unwrap();
    let lonely = bench.write("run.json", &lonely);
    bench
        .fencepost(&["run", "--replay", &lonely])
        .expect(2)
        .says("at least one trial");
    bench
        .fencepost(&["run", "s.toml", "--replay", &lonely])
        .expect(2)
        .says("cannot be used with");
    bench
        .fencepost(&["run", "--replay", &lonely, "--seed", "3"])
        .expect(2)
        .says("--seed");
    assert_eq!(
        fs::read_dir(bench.folder().join("results"))
            .unwrap()
            .count(),
        runs
    );
}
