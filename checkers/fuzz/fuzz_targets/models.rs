//! Every lock model against brute force, on histories that the fuzzer draws.
#![no_main]

use checkers::model::Model;
use checkers::model::op::Op;
use checkers::model::owner::OwnerLock;
use checkers::search::exhaustive::linearizable;
use checkers::search::spec::{OwnerLockSpec, OwnerlessSpec, SemaphoreSpec, Spec};
use checkers::search::wgl::{self, Limits};

#[path = "../../tests/common/random.rs"]
mod random;

use random::{Bytes, Kind, Seeded, history};

fn agree<S: Spec>(spec: &S, model: Model, ops: &[Op]) {
    let expected = linearizable(spec, ops);
    assert_eq!(model.decide_one(ops, Limits::default()).is_valid(), expected, "{model:?} {ops:#?}");
    assert_eq!(wgl::decide(spec, ops, Limits::default()).is_valid(), expected, "search {model:?} {ops:#?}");
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let number = u32::from(choice >> 4) % 3 + 1;
    let kind = Kind::Lock { depth: number.into(), room: 1 + (choice >> 6) as usize };
    let ops = history(kind, 12, &mut Bytes(rest, Seeded(1)));
    match choice % 4 {
        0 | 1 => {
            let lock = OwnerLock { cap: number, fenced: choice % 4 == 1 };
            agree(&OwnerLockSpec(lock), Model::Owner(lock), &ops);
        }
        2 => agree(&SemaphoreSpec { permits: number }, Model::Semaphore { permits: number }, &ops),
        _ => agree(&OwnerlessSpec { permits: number }, Model::Ownerless { permits: number }, &ops),
    }
});
