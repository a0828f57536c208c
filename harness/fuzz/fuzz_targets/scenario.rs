//! A scenario file of any content is read or refused with errors that can be printed; it never panics.
//! One that is read resolves, or is refused, the same way twice.
#![no_main]

use harness::known::known;
use harness::scenario::{Scenario, render};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Scenario::parse("fuzz.toml", text, &known()) {
        Err(errors) => assert!(!render(&errors).is_empty()),
        Ok(scenario) => {
            let resolved = scenario.resolve(&[], 1, None);
            assert_eq!(resolved.is_ok(), scenario.resolve(&[], 1, None).is_ok());
            if let Ok(resolved) = resolved {
                let json = serde_json::to_string(&resolved).expect("a plan has a JSON form");
                let back: harness::scenario::Resolved = serde_json::from_str(&json).expect("and back");
                assert_eq!(back, resolved);
            }
        }
    }
});
