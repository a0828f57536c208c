//! Drawn faults in whole runs, on the model server: they need no download.

use std::collections::BTreeSet;

use checkers::history::{FaultEvent, FaultPhase, History};
use harness::trial::TrialPlan;

use crate::bench::Bench;

/// Clients and the one server suffer, two faults at a time, and all of it is healed each third second.
pub(crate) const DRAWN: &str = r#"
title = "drawn"
[cluster]
backend = "builtin"
nodes = 1
[workload]
kind = "guarded-set"
lock = "builtin"
resource = "memory"
clients = 4
workers = 4
ttl = "500ms"
hold = "10ms..600ms"
duration = "9s"
acquire_timeout = "2s"
request_timeout = "500ms"
discipline = "token"
[nemesis]
every = "100ms..400ms"
at_most_at_once = 2
quiet = "50ms"
heal_every = "3s"
heal_lasts = "1s"
final_heal = "1s"
[[fault]]
kind = "pause"
target = "holder"
when = { weight = 3 }
lasts = "300ms..900ms"
[[fault]]
kind = "partition"
target = "client"
when = { weight = 2 }
lasts = "200ms..1s"
[[fault]]
kind = "crash"
target = "one"
when = { weight = 1 }
lasts = "100ms..300ms"
[[fault]]
kind = "pause"
target = "waiter"
when = { weight = 1 }
lasts = "1s"
[[arm]]
name = "fenced"
expect = { lost_writes = "== 0", stale_writes_accepted = "== 0", faults_proven = "> 4", faults_failed = "== 0" }
"#;

/// The plan and the faults of the only trial.
pub(crate) fn trial(bench: &Bench) -> (TrialPlan, Vec<FaultEvent>) {
    let folder = bench.latest().join("fenced/trial-1");
    let plan = std::fs::read(folder.join("plan.json")).unwrap();
    let history = History::read(&folder.join("history.jsonl.zst")).unwrap();
    (serde_json::from_slice(&plan).unwrap(), history.faults)
}

#[test]
fn drawn_faults_compose_within_their_limits_and_heal_phases_are_quiet() {
    for bench in Bench::sandboxed() {
        let file = bench.write("s.toml", DRAWN);
        bench.fencepost(&["run", &file, "--seed", "4"]).expect(0);
        let (plan, faults) = trial(&bench);
        let begun = |phase| faults.iter().filter(move |fault| fault.phase == phase);
        // Each was asked for at its time or later, in their order: the most punctual one tells when all began.
        let drawn = &plan.schedule.drawn.as_ref().unwrap().firings;
        let start_ns = begun(FaultPhase::Injected)
            .map(|one| one.requested_ns - drawn[one.id as usize - 1].at_ns)
            .min()
            .unwrap();
        let mut in_force = Vec::new();
        let mut asked = Vec::new();
        let mut kinds = BTreeSet::new();
        for one in begun(FaultPhase::Injected) {
            let end = begun(FaultPhase::Healed)
                .find(|end| end.id == one.id)
                .unwrap();
            kinds.insert((one.kind.clone(), one.target.clone()));
            in_force.push((one.at_ns, end.at_ns));
            asked.push(one.requested_ns);
        }
        assert!(kinds.len() >= 3, "{kinds:?}");
        let most = in_force.iter().map(|(at_ns, _)| {
            let holds = |span: &&(u64, u64)| (span.0..span.1).contains(at_ns);
            in_force.iter().filter(holds).count()
        });
        assert_eq!(most.max(), Some(2), "{in_force:?}");
        for phase in &plan.schedule.heal {
            let (from_ns, to_ns) = (start_ns + phase.from_ns, start_ns + phase.to_ns);
            // Healing may take its time, and what was asked for just before; asking may not. The most punctual
            // one may have been late, too.
            let in_phase = |asked_ns: &&u64| (from_ns..to_ns - 20_000_000).contains(*asked_ns);
            assert_eq!(asked.iter().find(in_phase), None);
            let over_ns = from_ns + 500_000_000;
            let reaches = |span: &&(u64, u64)| span.0 < from_ns && span.1 > over_ns;
            assert_eq!(in_force.iter().find(reaches), None);
        }
    }
}
