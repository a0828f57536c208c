//! A line of a worker is understood or refused with a reason; what is understood survives the trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workloads::worker::protocol::{FromWorker, Said, parse};

fuzz_target!(|line: &[u8]| {
    match parse(line) {
        Err(why) => assert!(!why.is_empty()),
        Ok(Said::Done(outcome, completion)) => {
            let line = serde_json::to_vec(&FromWorker::done(outcome, completion.clone())).expect("a completion has a JSON form");
            assert_eq!(parse(&line), Ok(Said::Done(outcome, completion)));
        }
        Ok(_) => {}
    }
});
