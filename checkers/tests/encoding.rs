//! The hand-written encoder writes what `serde_json` writes, and the reader reads it back.

mod common;

use checkers::history::{Completion, Event, Function, History, HistoryWriter, Invoke, encode};
use proptest::prelude::*;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9/-]{0,12}",
        any::<String>(),
        Just("quote \" backslash \\ line\nfeed \u{1} é 🔒 \u{2028}".to_owned()),
    ]
}

fn any_function() -> impl Strategy<Value = Function> {
    prop::sample::select(vec![
        Function::Acquire,
        Function::Release,
        Function::Read,
        Function::Write,
        Function::Holds,
    ])
}

prop_compose! {
    fn any_invoke()(
        op in any::<u64>(), client in any::<u32>(), f in any_function(), lock in any_text(),
        key in prop::option::of(any_text()), element in any::<Option<u64>>(), at_ns in any::<u64>(),
    ) -> Invoke {
        Invoke { op, client, f, lock, key, element, at_ns }
    }
}

prop_compose! {
    fn any_completion()(
        (op, invoke_ns, return_ns) in any::<(u64, u64, u64)>(),
        (token, version, base) in any::<(Option<u64>, Option<u64>, Option<u64>)>(),
        (dead_on_arrival, holds, renewed_ns) in any::<(bool, Option<bool>, Option<u64>)>(),
        (wakes, error) in (any::<Option<u64>>(), prop::option::of(any_text())),
    ) -> Completion {
        Completion { op, invoke_ns, return_ns, token, dead_on_arrival, wakes, version, base, holds, renewed_ns, error }
    }
}

fn any_hot_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any_invoke().prop_map(Event::Invoke),
        any_completion().prop_map(Event::Ok),
        any_completion().prop_map(Event::Fail),
        any_completion().prop_map(Event::Info),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn hot_lines_are_exactly_those_of_serde_json(event in any_hot_event()) {
        let mut line = Vec::new();
        encode(&event, &mut line).expect("it encodes");
        let mut expected = serde_json::to_vec(&event).expect("it serialises");
        expected.push(b'\n');
        prop_assert_eq!(String::from_utf8(line), String::from_utf8(expected));
    }
}

/// Ten clients that acquire and release, one event after another.
fn busy_history(operations: u64) -> Vec<Event> {
    let mut events = vec![Event::Header(common::header())];
    events.extend((0..10).map(common::client));
    for op in 0..operations {
        let f = [Function::Acquire, Function::Release][(op % 2) as usize];
        let at_ns = 1_000 * op;
        let client = (op / 2 % 10) as u32;
        events.push(Event::Invoke(common::invoke(
            op, client, f, "lock-1", at_ns,
        )));
        let mut completion = common::completion(op, at_ns + 100, at_ns + 900);
        completion.token = (f == Function::Acquire).then_some(op);
        completion.renewed_ns = Some(at_ns);
        events.push(Event::Ok(completion));
    }
    events.push(common::end(1_000 * operations));
    events
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut writer = HistoryWriter::new(Vec::new()).expect("a compressor");
    for event in events {
        writer.write(event).expect("memory takes it");
    }
    writer.finish().expect("memory takes it")
}

#[test]
fn what_was_written_is_read_back() {
    let events = busy_history(5_000);
    let bytes = write(&events);
    let read = History::read_from(bytes.as_slice(), "memory").expect("it reads");
    let settled = History::from_events(events).expect("it settles");
    assert_eq!(read, settled);
    assert_eq!(read.operations.len(), 5_000);
    assert_eq!(read.truncated, None);
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[test]
fn all_that_was_flushed_is_read_back_from_a_killed_recorder() {
    let events = busy_history(300);
    let mut file = Vec::new();
    let mut writer = HistoryWriter::new(&mut file).expect("a compressor");
    for event in &events[..200] {
        writer.write(event).expect("memory takes it");
    }
    writer.flush().expect("memory takes it");
    for event in &events[200..] {
        writer.write(event).expect("memory takes it");
    }
    // The recorder is killed: what was not flushed is gone, and the frame has no end.
    std::mem::forget(writer);
    let read = History::read_from(file.as_slice(), "memory").expect("it reads");
    let invoked = events[..200]
        .iter()
        .filter(|e| matches!(e, Event::Invoke(_)));
    assert_eq!(read.operations.len(), invoked.count());
    let truncated = read.truncated.expect("it says that it was cut");
    assert_eq!(truncated.line, 201);
    assert!(
        truncated.why.contains("stops in the middle"),
        "{}",
        truncated.why
    );
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_there_or_refused_in_words() {
    let bytes = write(&busy_history(40));
    let mut most = 0;
    for length in 1..bytes.len() {
        match History::read_from(&bytes[..length], "memory") {
            Ok(history) => {
                assert!(history.truncated.is_some(), "cut at {length}");
                most = most.max(history.operations.len());
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("header") || text.contains("JSON"),
                    "cut at {length}: {text}"
                );
            }
        }
    }
    assert_eq!(most, 40, "the longest cut lacks only the checksum");
}

/// `cargo test -p checkers --release --test encoding -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a test"]
fn measure_writing_and_reading() {
    let events = busy_history(1_000_000);
    let start = std::time::Instant::now();
    let mut writer = HistoryWriter::new(Vec::new()).expect("a compressor");
    for (count, event) in events.iter().enumerate() {
        writer.write(event).expect("memory takes it");
        // As often as a recorder at 400,000 events a second that flushes four times a second.
        if count % 100_000 == 0 {
            writer.flush().expect("memory takes it");
        }
    }
    let bytes = writer.finish().expect("memory takes it");
    let wrote = start.elapsed();
    let start = std::time::Instant::now();
    let history = History::read_from(bytes.as_slice(), "memory").expect("it reads");
    let read = start.elapsed();
    let start = std::time::Instant::now();
    let reports = checkers::check::run_all(&history);
    println!(
        "{} events: written in {wrote:?} ({:.0}/s, {:.1} bytes an event), read in {read:?}, {} checks in {:?}",
        events.len(),
        events.len() as f64 / wrote.as_secs_f64(),
        bytes.len() as f64 / events.len() as f64,
        reports.len(),
        start.elapsed()
    );
}
