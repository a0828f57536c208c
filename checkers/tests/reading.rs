//! Bad histories: each gives an error that names the line, what was expected, and what to do.

mod common;

use std::fs;

use checkers::history::{Event, Function, History, HistoryWriter, Outcome, Problem, ReadError};

const HEADER: &str = r#"{"e":"header","format":1,"title":"t","arm":"a","trial":1,"seed":1,"backend":"builtin@model","workload":"mutex","lock":"builtin","resource":"","discipline":"ignore","tokens":"record","ttl_ms":2000,"faults":false,"clock_error_ns":0,"at_ns":0}"#;
const CLIENT: &str = r#"{"e":"client","client":1,"host":"c1","node":"n1","at_ns":0}"#;
const ACQUIRE: &str = r#"{"e":"invoke","op":0,"client":1,"f":"acquire","lock":"l","at_ns":5}"#;
const ACQUIRED: &str = r#"{"e":"ok","op":0,"invoke_ns":6,"return_ns":9,"token":1}"#;
const END: &str = r#"{"e":"end","reason":"completed","at_ns":99}"#;

fn read(lines: &[&str]) -> Result<History, ReadError> {
    let text = lines.join("\n") + "\n";
    History::read_from(text.as_bytes(), "history.jsonl")
}

/// The error's text; the partial history must hold what came before the bad line.
fn refuse(lines: &[&str]) -> String {
    let error = read(lines).expect_err("it must be refused");
    if error.line.is_some_and(|line| line > 3) {
        let partial = error.partial.as_ref().expect("what came before");
        assert_eq!(partial.operations.len(), 1);
        assert!(partial.truncated.is_some());
    }
    error.to_string()
}

fn after_acquire(line: &str) -> String {
    refuse(&[HEADER, CLIENT, ACQUIRE, line, END])
}

#[test]
fn bad_lines_are_refused_with_their_place_and_a_remedy() {
    let texts = [
        after_acquire("rubbish"),
        after_acquire("[1,2]"),
        after_acquire(""),
        after_acquire(r#"{"e":"ok","op":0,"invoke_ns":6,"#),
        after_acquire(r#"{"e":"okay","op":0}"#),
        after_acquire(r#"{"op":0,"e":7}"#),
        after_acquire(r#"{"op":0}"#),
        after_acquire(r#"{"e":"ok","op":0,"invoke_ns":6,"return_ns":9,"colour":"red"}"#),
        after_acquire(r#"{"op":0,"e":"ok","invoke_ns":6,"return_ns":9,"colour":"red"}"#),
        after_acquire(r#"{"e":"ok","op":0,"invoke_ns":6}"#),
        after_acquire(r#"{"e":"ok","op":"zero","invoke_ns":6,"return_ns":9}"#),
        after_acquire(r#"{"e":"invoke","op":1,"client":2,"f":"steal","lock":"l","at_ns":5}"#),
        after_acquire(r#"{"e":"ok","op":8,"invoke_ns":6,"return_ns":9}"#),
        after_acquire(r#"{"e":"ok","op":0,"invoke_ns":9,"return_ns":6}"#),
        after_acquire(r#"{"e":"invoke","op":1,"client":1,"f":"release","lock":"l","at_ns":7}"#),
        after_acquire(r#"{"e":"invoke","op":0,"client":2,"f":"release","lock":"l","at_ns":7}"#),
        after_acquire(HEADER),
        refuse(&[HEADER, CLIENT, ACQUIRE, ACQUIRED, ACQUIRED, END]),
        refuse(&[
            HEADER,
            CLIENT,
            ACQUIRE,
            r#"{"e":"info","op":0,"invoke_ns":6,"return_ns":9,"error":"timeout: 3 s"}"#,
            r#"{"e":"invoke","op":1,"client":1,"f":"release","lock":"l","at_ns":12}"#,
        ]),
        refuse(&[CLIENT, HEADER]),
        refuse(&[&HEADER.replace("\"format\":1", "\"format\":2")]),
        refuse(&[&HEADER[..60]]),
    ];
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("bad-lines", texts.join("\n\n"));
    });
}

#[test]
fn bad_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("it can be written");
        History::read(&path).expect_err("it must be refused")
    };
    assert!(matches!(file("empty.jsonl", b"").problem, Problem::Empty));
    assert!(matches!(
        file("empty.jsonl.zst", b"").problem,
        Problem::Empty
    ));
    let plain = file("plain.jsonl.zst", HEADER.as_bytes()).to_string();
    assert!(plain.contains("found 7b 22 65 22"), "{plain}");
    let missing = History::read(&folder.path().join("none.jsonl")).expect_err("there is none");
    assert!(missing.to_string().contains("check the path"), "{missing}");
    let end_only = file("end.jsonl", format!("{END}\n").as_bytes());
    assert!(end_only.to_string().contains("found `end`"), "{end_only}");
}

#[test]
fn a_damaged_file_names_the_damage_and_keeps_what_came_before() {
    let mut writer = HistoryWriter::new(Vec::new()).expect("a compressor");
    writer
        .write(&Event::Header(common::header()))
        .expect("memory takes it");
    for op in 0..20_000 {
        let invoke = common::invoke(op, op as u32, Function::Acquire, "l", op * 7919);
        writer
            .write(&Event::Invoke(invoke))
            .expect("memory takes it");
        if op % 1000 == 0 {
            writer.flush().expect("memory takes it");
        }
    }
    let mut bytes = writer.finish().expect("memory takes it");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    let error = History::read_from(bytes.as_slice(), "history").expect_err("it is damaged");
    // zstd may notice at once, or give rubbish that only the next lines betray.
    assert!(error.line.is_some_and(|line| line > 5_000), "{error}");
    let partial = error.partial.expect("what came before");
    assert!(
        partial.operations.len() > 5_000,
        "{}",
        partial.operations.len()
    );
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_the_memory() {
    let header = format!("{HEADER}\n");
    let endless = std::io::Read::chain(header.as_bytes(), std::io::repeat(b'x'));
    // `repeat` never ends: only the bound makes this return.
    let error = History::read_from(endless, "endless").expect_err("it must be refused");
    assert!(matches!(error.problem, Problem::LineTooLong { .. }));
    assert_eq!(error.line, Some(2));
    assert!(error.to_string().contains("longer than 64 MB"), "{error}");
}

#[test]
fn open_operations_are_unknown_and_missing_ends_are_said() {
    let history = read(&[HEADER, CLIENT, ACQUIRE]).expect("it reads");
    let acquire = &history.operations[0];
    assert_eq!(acquire.outcome, Outcome::Info);
    assert_eq!((acquire.invoke_ns, acquire.return_ns), (5, u64::MAX));
    assert_eq!(acquire.gave_up_ns, None);
    let truncated = history.truncated.expect("it has no end");
    assert!(
        truncated.why.contains("no `end` event"),
        "{}",
        truncated.why
    );
    assert_eq!(truncated.line, 4);
}

#[test]
fn the_last_line_may_lack_its_line_feed() {
    let text = [HEADER, CLIENT, ACQUIRE, ACQUIRED, END].join("\n");
    let history = History::read_from(text.as_bytes(), "history").expect("it reads");
    assert_eq!(history.truncated, None);
    let half = &text[..text.len() - 10];
    let history = History::read_from(half.as_bytes(), "history").expect("it reads");
    assert_eq!(history.truncated.expect("half a line").line, 5);
    assert_eq!(history.operations[0].outcome, Outcome::Ok);
}

#[test]
fn any_order_of_fields_is_read() {
    let acquired = r#"{"return_ns":9,"op":0,"token":1,"e":"ok","invoke_ns":6}"#;
    let ours = read(&[HEADER, CLIENT, ACQUIRE, ACQUIRED, END]).expect("it reads");
    let theirs = read(&[HEADER, CLIENT, ACQUIRE, acquired, END]).expect("it reads");
    assert_eq!(ours, theirs);
    assert_eq!(theirs.operations[0].token, Some(1));
}

#[test]
fn operations_are_found_by_number_even_if_some_are_missing() {
    let later = r#"{"e":"invoke","op":40,"client":1,"f":"release","lock":"l","at_ns":12}"#;
    let history = read(&[HEADER, CLIENT, ACQUIRE, ACQUIRED, later, END]).expect("it reads");
    assert_eq!(history.index_of(0), Some(0));
    assert_eq!(history.index_of(40), Some(1));
    assert_eq!(history.index_of(1), None);
}
