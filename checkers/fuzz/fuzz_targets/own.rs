//! fencepost's own reader, both ways, and every check on what it read.
#![no_main]

use checkers::check::run_all;
use checkers::foreign::{Foreign, Options, Shape};
use checkers::history::History;

const HEADER: &[u8] = br#"{"e":"header","format":1,"title":"t","arm":"a","trial":1,"seed":1,"backend":"b","workload":"guarded-set","lock":"l","resource":"memory","discipline":"ignore","tokens":"record","ttl_ms":2000,"faults":true,"clock_error_ns":0,"at_ns":0}
"#;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let file = [HEADER, data].concat();
    let history = match History::read_from(&file[..], "fuzz") {
        Ok(history) => history,
        Err(error) => match error.partial {
            Some(partial) => *partial,
            None => return,
        },
    };
    for report in run_all(&history) {
        assert!(report.unknown_because.is_some() == (report.verdict == checkers::check::Verdict::Unknown));
    }
    let _ = Foreign::read_from(&file[..], "fuzz", &Options::new(Shape::Lock));
});
