//! Registers, unique values and others, against brute force, on histories that the fuzzer draws.
#![no_main]

use checkers::model::Model;
use checkers::search::exhaustive::linearizable;
use checkers::search::spec::RegisterSpec;
use checkers::search::wgl::{self, Limits};

#[path = "../../tests/common/random.rs"]
mod random;

use random::{Bytes, Kind, Seeded, history};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let kind = if choice % 2 == 0 { Kind::UniqueRegister } else { Kind::Register };
    let spec = RegisterSpec { initial: 0, failed_cas_observes: choice % 3 == 0 };
    let ops = history(kind, 12, &mut Bytes(rest, Seeded(1)));
    let expected = linearizable(&spec, &ops);
    assert_eq!(Model::Register(spec).decide_one(&ops, Limits::default()).is_valid(), expected, "{ops:#?}");
    assert_eq!(wgl::decide(&spec, &ops, Limits::default()).is_valid(), expected, "search {ops:#?}");
});
