//! Every model against brute force on small random histories: 10⁴ a model in the ordinary run, 10⁶ in
//! the ignored one (`cargo test --release -p checkers --test models -- --ignored`).

#[path = "common/random.rs"]
mod random;

use checkers::model::Model;
use checkers::model::decision::{Decision, Rule};
use checkers::model::op::Op;
use checkers::model::owner::OwnerLock;
use checkers::search::exhaustive::linearizable;
use checkers::search::spec::{OwnerLockSpec, OwnerlessSpec, RegisterSpec, SemaphoreSpec, Spec};
use checkers::search::wgl::{self, Limits};
use random::{Kind, Seeded, history};

const SHORT: u64 = 10_000;
const LONG: u64 = 1_000_000;

/// Compares on `count` histories; both verdicts must be frequent, or the test shows nothing.
fn compare<S: Spec>(
    name: &str,
    count: u64,
    kind: Kind,
    spec: &S,
    decide: impl Fn(&[Op]) -> Decision,
) {
    let mut seen = [0_u64; 2];
    for seed in 0..count {
        let ops = history(kind, 4 + seed % 9, &mut Seeded(seed ^ 0x5eed));
        let expected = linearizable(spec, &ops);
        let found = decide(&ops);
        assert_eq!(
            found.is_valid(),
            expected,
            "{name}, seed {seed}: {found:?}\n{ops:#?}"
        );
        assert!(
            !matches!(found, Decision::Unknown(_)),
            "{name}, seed {seed}"
        );
        if let Decision::Invalid(violation) = &found {
            assert!(!violation.ops.is_empty(), "{name}, seed {seed}: no witness");
            let told: Vec<Op> = ops
                .iter()
                .filter(|op| violation.ops.contains(&op.id))
                .copied()
                .collect();
            // A search that gave up everywhere has no smaller proof to show.
            let proves = violation.rule == Rule::Exhausted || !linearizable(spec, &told);
            assert!(
                proves,
                "{name}, seed {seed}: {violation:?} is none in\n{ops:#?}"
            );
        }
        seen[usize::from(expected)] += 1;
    }
    println!(
        "{name}: {} invalid and {} valid histories agree with brute force",
        seen[0], seen[1]
    );
    assert!(
        seen.iter().all(|&n| n * 30 > count),
        "{name}: lopsided {seen:?}"
    );
}

fn compare_model<S: Spec>(name: &str, count: u64, kind: Kind, spec: &S, model: Model) {
    compare(name, count, kind, spec, |ops| {
        model.decide_one(ops, Limits::default())
    });
    let searched = format!("{name} by search");
    compare(&searched, count / 10, kind, spec, |ops| {
        wgl::decide(spec, ops, Limits::default())
    });
}

fn owner(name: &str, count: u64, cap: u32, fenced: bool) {
    let lock = OwnerLock { cap, fenced };
    let kind = Kind::Lock {
        depth: u64::from(cap),
        room: 1,
    };
    compare_model(name, count, kind, &OwnerLockSpec(lock), Model::Owner(lock));
}

fn ownerless(count: u64, permits: u32) {
    let name = format!("ownerless with {permits}");
    let kind = Kind::Lock {
        depth: 1,
        room: permits as usize,
    };
    compare_model(
        &name,
        count,
        kind,
        &OwnerlessSpec { permits },
        Model::Ownerless { permits },
    );
}

fn semaphore(count: u64, permits: u32) {
    let name = format!("semaphore of {permits}");
    let kind = Kind::Lock {
        depth: 2,
        room: permits as usize,
    };
    compare_model(
        &name,
        count,
        kind,
        &SemaphoreSpec { permits },
        Model::Semaphore { permits },
    );
}

fn register(name: &str, count: u64, kind: Kind, failed_cas_observes: bool) {
    let spec = RegisterSpec {
        initial: 0,
        failed_cas_observes,
    };
    compare_model(name, count, kind, &spec, Model::Register(spec));
}

fn all(count: u64) {
    owner("owner mutex", count, 1, false);
    owner("reentrant 2", count, 2, false);
    owner("reentrant 3", count, 3, false);
    owner("fenced", count, 1, true);
    owner("reentrant fenced 2", count, 2, true);
    owner("reentrant fenced 3", count, 3, true);
    for permits in 1..=3 {
        semaphore(count, permits);
        ownerless(count, permits);
    }
    register("unique register", count, Kind::UniqueRegister, false);
    register("register", count, Kind::Register, false);
    register(
        "register that observes failures",
        count,
        Kind::Register,
        true,
    );
}

#[test]
fn models_agree_with_brute_force() {
    all(SHORT);
}

#[test]
#[ignore = "a minute in release, ten without; run it after a change to a model"]
fn models_agree_with_brute_force_a_million_times() {
    all(LONG);
}
