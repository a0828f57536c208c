//! Foreign histories: every verdict under `shared/data/linearizability`, the formats, and bad input.
//!
//! The data is looked for in `../shared/data` beside the workspace, or where FENCEPOST_SHARED says.

use std::fs;
use std::path::{Path, PathBuf};

use checkers::check::{Report, Verdict};
use checkers::foreign::{Foreign, ForeignError, Format, Options, Shape};
use checkers::judge::{Question, judge};
use checkers::search::wgl::Limits;

fn question(model: &str, initial: Option<&str>) -> Question {
    Question {
        model: model.parse().expect("a model"),
        name: model.to_owned(),
        initial: initial.map(str::to_owned),
        limits: Limits::default(),
    }
}

fn check(path: &Path, model: &str, initial: Option<&str>) -> Report {
    let question = question(model, initial);
    let options = Options::new(question.model.shape());
    let mut foreign = Foreign::read(path, &options).unwrap_or_else(|error| panic!("{error}"));
    judge(&mut foreign, &question)
}

fn text(text: &str, model: &str) -> Report {
    read(text, model, &question(model, None))
}

fn read(text: &str, model: &str, question: &Question) -> Report {
    let options = Options::new(question.model.shape());
    let mut foreign = Foreign::read_from(text.as_bytes(), model, &options)
        .unwrap_or_else(|error| panic!("{error}"));
    judge(&mut foreign, question)
}

/// The data folder; `None`, with a line that says so, when it is not there.
fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("FENCEPOST_SHARED").map_or_else(beside, PathBuf::from);
    let data = shared.join("data/linearizability");
    if !data.is_dir() {
        println!(
            "skipped: there is no {}; set FENCEPOST_SHARED",
            data.display()
        );
        return None;
    }
    Some(data)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_etcd_log_has_its_verdict() {
    let Some(data) = data() else { return };
    let verdicts = fs::read_to_string(data.join("etcd/verdicts.txt")).expect("verdicts");
    let mut judged = 0;
    for line in verdicts.lines() {
        let (name, expected) = line.split_once(' ').expect("name and verdict");
        let expected = if expected == "ok" {
            Verdict::Valid
        } else {
            Verdict::Invalid
        };
        let found = check(&data.join("etcd").join(name), "cas-register", None);
        assert_eq!(found.verdict, expected, "{name}: {found:#?}");
        judged += 1;
    }
    assert!(judged > 40, "only {judged}");
}

#[test]
fn every_knossos_register_has_its_verdict() {
    let Some(data) = data() else { return };
    for (folder, expected) in [("good", Verdict::Valid), ("bad", Verdict::Invalid)] {
        for path in files(&data.join("knossos").join(folder)) {
            let found = check(&path, "cas-register", Some("0"));
            assert_eq!(found.verdict, expected, "{}: {found:#?}", path.display());
        }
    }
}

#[test]
fn knossos_mutex_is_invalid_with_and_without_owner() {
    let Some(data) = data() else { return };
    for model in ["mutex", "owner-mutex"] {
        let found = check(&data.join("knossos/mutex-etcd.edn"), model, None);
        assert_eq!(found.verdict, Verdict::Invalid);
        assert!(
            found.witnesses[0].ops.len() <= 12,
            "{:#?}",
            found.witnesses[0]
        );
    }
}

const TAGGED: &str = r#"; a comment
#jepsen.history.Op{:index 0, :time 10, :type :invoke, :process 0, :f :acquire, :value nil}
#jepsen.history.Op{:index 1, :time 20, :type :info, :process :nemesis, :f :start, :value #object["a.B" 0x1 "}"]}
#jepsen.history.Op{:index 2, :time 30, :type :ok, :process 0, :f :acquire, :value {:fence 3} :extra {"str\"}" \{}}
#jepsen.history.Op{:index 3, :time 40, :type :invoke, :process 1, :f :acquire, :value nil}
#jepsen.history.Op{:index 4, :time 50, :type :ok, :process 1, :f :acquire, :value {:fence 2}}
"#;

#[test]
fn tagged_edn_is_read_and_its_violation_told_with_times_and_lines() {
    let report = text(TAGGED, "owner-mutex");
    assert_eq!(report.verdict, Verdict::Invalid);
    let witness = &report.witnesses[0];
    assert_eq!(witness.ops, [0, 1]);
    let told: Vec<String> = witness
        .lines
        .iter()
        .map(|line| format!("{} {}", line.at_ms, line.text))
        .collect();
    assert_eq!(
        told,
        [
            "0 process 0 op 0, line 2: acquire (token 3) is invoked",
            "0 process 0 op 0, line 2: acquire (token 3) returns ok",
            "0 process 1 op 1, line 5: acquire (token 2) is invoked",
            "0 process 1 op 1, line 5: acquire (token 2) returns ok",
        ]
    );
}

#[test]
fn a_vector_on_one_line_plain_maps_and_other_names() {
    let vector = "[{:process 0, :type :invoke, :f :lock} {:process 0, :type :ok, :f :lock}, {:process 1, :type :invoke, :f :lock} \
                  {:process 0, :type :invoke, :f :unlock}{:process 0, :type :ok, :f :unlock} {:process 1, :type :ok, :f :lock} \
                  {:process 9 :type :invoke :f :ping}]";
    let question = question("owner-mutex", None);
    let mut options = Options::new(Shape::Lock);
    options.mapping = "acquire=lock,release=:unlock,ignore=ping"
        .parse()
        .expect("a mapping");
    let mut foreign =
        Foreign::read_from(vector.as_bytes(), "v", &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(foreign.format, Format::JepsenEdn);
    assert_eq!(foreign.ops.len(), 3);
    assert_eq!(judge(&mut foreign, &question).verdict, Verdict::Valid);
}

#[test]
fn keyed_values_are_judged_key_by_key() {
    // One after another on each key, at once over both.
    let text = "{:process 0, :type :invoke, :f :write, :value [:x 1]}
{:process 0, :type :ok, :f :write, :value [:x 1]}
{:process 0, :type :invoke, :f :read, :value [:y nil]}
{:process 0, :type :ok, :f :read, :value [:y 2]}";
    let question = question("cas-register", None);
    let mut options = Options::new(Shape::Register);
    options.keyed = true;
    let mut foreign =
        Foreign::read_from(text.as_bytes(), "k", &options).unwrap_or_else(|e| panic!("{e}"));
    let report = judge(&mut foreign, &question);
    assert_eq!(report.verdict, Verdict::Invalid);
    assert_eq!(
        report.witnesses[0].headline,
        "`:y`: a value was observed that nobody wrote"
    );
}

#[test]
fn a_lost_update_is_named() {
    let text = r#"{"process":0,"type":"invoke","f":"write","value":1}
{"process":0,"type":"ok","f":"write"}
{"process":0,"type":"invoke","f":"cas","value":[1,2]}
{"process":1,"type":"invoke","f":"cas","value":[1,3]}
{"process":0,"type":"ok","f":"cas"}
{"process":1,"type":"ok","f":"cas"}
"#;
    let report = super_read(text, "cas-register");
    assert_eq!(report.verdict, Verdict::Invalid);
    assert!(
        report.witnesses[0].headline.contains("an update was lost"),
        "{report:#?}"
    );
    assert_eq!(report.witnesses[0].ops, [1, 2]);
}

fn super_read(content: &str, model: &str) -> Report {
    read(content, model, &question(model, None))
}

#[test]
fn sets_tell_lost_stale_never_read_and_duplicated_apart() {
    let op = |process: u32, kind: &str, f: &str, value: &str| {
        format!("{{:process {process}, :type :{kind}, :f :{f}, :value {value}}}\n")
    };
    let add = |element: &str| op(0, "invoke", "add", element) + &op(0, "ok", "add", element);
    let read = |content: &str| op(1, "invoke", "read", "nil") + &op(1, "ok", "read", content);
    // 1 is lost, 2 is stale, 3 is stable, 4 is never read (its add comes last), 5 is unexpected, 3 stands twice.
    let text = add("1") + &add("2") + &read("[1]") + &add("3") + &read("[2 3 3 5]") + &add("4");
    let report = super_read(&text, "set");
    let count = |name: &str| report.metrics[name].value();
    assert_eq!(report.verdict, Verdict::Invalid);
    assert_eq!(count("lost"), 1.0);
    assert_eq!(count("stale"), 1.0);
    assert_eq!(count("stable"), 2.0);
    assert_eq!(count("never_read"), 1.0);
    assert_eq!(count("duplicated"), 1.0);
    assert_eq!(count("unexpected"), 1.0);
    assert!(
        report.witnesses[0].headline.starts_with("element 1 of"),
        "{report:#?}"
    );
    // Without a read nobody knows.
    assert_eq!(super_read(&add("1"), "set").verdict, Verdict::Unknown);
    assert_eq!(
        super_read(&(add("1") + &read("[1]")), "set").verdict,
        Verdict::Valid
    );
}

#[test]
fn a_search_without_memory_is_unknown_and_never_a_guess() {
    let Some(data) = data() else { return };
    let mut asked = question("cas-register", None);
    asked.limits = Limits { cache_bytes: 1000 };
    let options = Options::new(Shape::Register);
    let mut undecided = 0;
    for path in files(&data.join("etcd"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
    {
        let mut foreign = Foreign::read(&path, &options).unwrap_or_else(|error| panic!("{error}"));
        let free = check(&path, "cas-register", None).verdict;
        let bound = judge(&mut foreign, &asked);
        assert!(
            bound.verdict == free || bound.verdict == Verdict::Unknown,
            "{}",
            path.display()
        );
        assert_eq!(
            bound.verdict == Verdict::Unknown,
            bound.unknown_because.is_some()
        );
        undecided += u32::from(bound.verdict == Verdict::Unknown);
    }
    assert!(undecided > 10, "only {undecided}");
}

fn refused(content: &[u8], model: &str) -> ForeignError {
    let question = question(model, None);
    match Foreign::read_from(content, "bad", &Options::new(question.model.shape())) {
        Err(error) => error,
        Ok(_) => panic!(
            "it was accepted: {}",
            String::from_utf8_lossy(&content[..content.len().min(200)])
        ),
    }
}

/// Each must be refused at its line, with what came before, and with words that say what to do.
#[test]
fn bad_input_is_refused_with_its_place() {
    let good = r#"{"process":0,"type":"invoke","f":"acquire","time_ns":5}
"#;
    let cases: &[(&str, &str, u64, usize, &str)] = &[
        (
            "owner-mutex",
            "{\"process\":1,\"type\":\"ok\",\"f\":\"acquire\",\"time_ns\":6}",
            2,
            1,
            "its invoke is missing",
        ),
        (
            "owner-mutex",
            "{\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\",\"time_ns\":6}",
            2,
            1,
            "the one of line 1 is still open",
        ),
        (
            "owner-mutex",
            "{\"process\":1,\"type\":\"invoke\",\"f\":\"acquire\",\"time_ns\":4}",
            2,
            1,
            "out of order",
        ),
        (
            "owner-mutex",
            "{\"process\":1,\"type\":\"invoke\",\"f\":\"acquire\",\"colour\":4}",
            2,
            1,
            "unknown field `colour`",
        ),
        (
            "owner-mutex",
            "{\"process\":1,\"type\":\"invoke\",\"f\":\"grab\"}",
            2,
            1,
            "--map OURS=grab",
        ),
        (
            "owner-mutex",
            "{\"process\":1,\"type\":\"begin\",\"f\":\"acquire\"}",
            2,
            1,
            "one of invoke, ok, fail, info",
        ),
        (
            "owner-mutex",
            "{\"process\":0,\"type\":\"ok\",\"f\":\"release\"}",
            2,
            1,
            "`acquire` is the operation that it has open",
        ),
        (
            "owner-mutex",
            "nonsense\n{}",
            2,
            1,
            "expected one JSON object",
        ),
        (
            "owner-mutex",
            "{\"process\":0,\"type\":\"info\",\"f\":\"acquire\"}\n{\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\"}",
            3,
            1,
            "a process ends there",
        ),
    ];
    for &(model, bad, line, before, words) in cases {
        let error = refused(format!("{good}{bad}\n").as_bytes(), model);
        let text = error.to_string();
        assert_eq!(error.line, Some(line), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(
            error.partial.expect("what came before").ops.len(),
            before,
            "{text}"
        );
    }
}

#[test]
fn bad_edn_is_refused_with_its_place() {
    let good = "{:process 0, :type :invoke, :f :acquire}\n";
    for (bad, words) in [
        ("#foo.Bar{:process 0}", "found tag `#foo.Bar`"),
        ("{:process 0, :type :ok", "does not end"),
        ("{:process 0, :type \"ok", "does not end"),
        ("hello", "an operation is a map"),
        ("{:process 0 :type}", "expected an EDN form"),
        ("{:type :ok}", "a number or a name such as :nemesis"),
        ("{:process 0, :type :ok, :f 3}", "a keyword"),
        ("}", "expected an EDN form"),
        (
            "{:process 0, :index 4, :type :ok, :f :acquire}{:process 0, :index 3, :type :invoke, :f :acquire}",
            "out of order",
        ),
    ] {
        let error = refused(format!("{good}{bad}\n").as_bytes(), "mutex");
        let text = error.to_string();
        assert_eq!(error.line, Some(2), "{text}");
        assert!(text.contains(words), "{bad}: {text}");
        assert_eq!(error.partial.expect("what came before").ops.len(), 1);
    }
    assert!(
        refused(b"<html>", "mutex")
            .to_string()
            .contains("expected a history")
    );
    assert!(refused(b"", "mutex").to_string().contains("empty"));
}

#[test]
fn a_hundred_megabytes_on_one_line() {
    // As many operations on one line are read; one operation of that size is refused.
    let mut vector = b"[".to_vec();
    for process in 0..20_000 {
        vector.extend(format!("{{:process {process}, :type :invoke, :f :acquire}} ").bytes());
    }
    let spaces = 20 << 20;
    vector.extend(std::iter::repeat_n(b' ', spaces));
    vector.push(b']');
    let options = Options::new(Shape::Lock);
    let foreign =
        Foreign::read_from(&vector[..], "long", &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(foreign.ops.len(), 20_000);

    let mut one =
        b"{:process 0, :type :invoke, :f :acquire}\n{:process 0, :type :ok, :f :acquire, :value \""
            .to_vec();
    one.extend(std::iter::repeat_n(b'x', 100 << 20));
    let error = refused(&one, "mutex");
    assert!(error.to_string().contains("longer than 64 MB"), "{error}");
    assert_eq!(error.line, Some(2));
    assert_eq!(error.partial.expect("what came before").ops.len(), 1);

    let mut json =
        b"{\"process\":0,\"type\":\"invoke\",\"f\":\"acquire\"}\n{\"process\":0,\"type\":\""
            .to_vec();
    json.extend(std::iter::repeat_n(b'x', 100 << 20));
    let error = refused(&json, "mutex");
    assert!(error.to_string().contains("longer than 64 MB"), "{error}");
    assert_eq!(error.line, Some(2));
}

#[test]
fn a_truncated_zstd_frame_keeps_what_came_before() {
    let line = "{:process 0, :type :invoke, :f :acquire}\n{:process 0, :type :ok, :f :acquire}\n{:process 0, :type :invoke, :f :release}\n{:process 0, :type :ok, :f :release}\n";
    let text = line.repeat(100_000);
    let packed = zstd::encode_all(text.as_bytes(), 1).expect("it compresses");
    let options = Options::new(Shape::Lock);
    let whole = Foreign::read_from(&packed[..], "z", &options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((whole.ops.len(), whole.truncated), (200_000, None));
    let cut = Foreign::read_from(&packed[..packed.len() / 2], "z", &options)
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(cut.truncated.is_some() && !cut.ops.is_empty() && cut.ops.len() < 200_000);
    let mut damaged = packed.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(0xff);
    let error = refused(&damaged, "mutex");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn an_exported_history_is_judged_as_the_original() {
    use checkers::export::{Audience, edn};
    use checkers::history::History;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
    for path in files(&folder) {
        let original = check(&path, "fenced", None);
        let history = History::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let mut exported = Vec::new();
        edn(&history, Audience::Knossos, None, &mut exported).expect("it writes");
        let question = question("fenced", None);
        let mut foreign = Foreign::read_from(&exported[..], "exported", &Options::new(Shape::Lock))
            .unwrap_or_else(|e| panic!("{e}"));
        let again = judge(&mut foreign, &question);
        assert_eq!(again.verdict, original.verdict, "{}", path.display());
        assert_eq!(again.metrics, original.metrics, "{}", path.display());
        let mut transactions = Vec::new();
        edn(&history, Audience::Elle, None, &mut transactions).expect("it writes");
        for line in String::from_utf8(transactions).expect("text").lines() {
            clojure_reader::edn::read_string(line)
                .unwrap_or_else(|error| panic!("{line}: {error:?}"));
        }
    }
}
