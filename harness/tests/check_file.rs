//! `fencepost check FILE` and `fencepost export`: exit codes and words, through the binary.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

const ACQUIRED_TWICE: &str = "{:process 0, :type :invoke, :f :lock}
{:process 0, :type :ok, :f :lock}
{:process 1, :type :invoke, :f :lock}
{:process 1, :type :ok, :f :lock}
";

fn fencepost() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fencepost"))
}

fn file(folder: &tempfile::TempDir, name: &str, content: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).expect("it can be written");
    path
}

/// Exit code, standard output, standard error.
fn check(path: &Path, options: &[&str]) -> (i32, String, String) {
    let output = fencepost()
        .arg("check")
        .arg(path)
        .args(options)
        .output()
        .expect("it runs");
    (
        output.status.code().expect("an exit code"),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let folder = tempfile::tempdir().expect("a folder");
    let twice = file(&folder, "twice.edn", ACQUIRED_TWICE);
    let names = [
        "--model",
        "owner-mutex",
        "--map",
        "acquire=lock,release=unlock",
    ];
    let (code, out, _) = check(&twice, &names);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("two held the lock at once"), "{out}");

    let (code, out, _) = check(&twice, &["--model", "semaphore:2", "--map", "acquire=lock"]);
    assert_eq!(code, 0, "{out}");

    // A set that nobody read: unknown is not valid.
    let unread = "{:process 0, :type :invoke, :f :add, :value 1}";
    let (code, out, _) = check(&file(&folder, "unread.edn", unread), &["--model", "set"]);
    assert_eq!(code, 4, "{out}");

    // A bad line: what came before is judged, and the line is named.
    let bad = file(
        &folder,
        "bad.edn",
        &format!("{ACQUIRED_TWICE}#what.Ever{{}}"),
    );
    let (code, out, err) = check(&bad, &names);
    assert_eq!(code, 2);
    assert!(out.contains("owner-mutex: invalid"), "{out}");
    assert!(
        err.contains("line 5") && err.contains("#what.Ever"),
        "{err}"
    );

    // Usage: no model, an unknown model, an unknown name.
    for (options, words) in [
        (&[][..], "--model"),
        (&["--model", "mutexx"], "no model `mutexx`"),
        (&["--model", "mutex"], "--map OURS=lock"),
        (&["--model", "mutex", "--map", "take=lock"], "is no mapping"),
    ] {
        let (code, _, err) = check(&twice, options);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(words), "{err}");
    }
}

#[test]
fn own_histories_are_checked_and_exported() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../checkers/tests/histories/double-grant.jsonl");
    let (code, out, _) = check(&golden, &["--json"]);
    assert_eq!(code, 1);
    let reports: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(reports[0]["check"], "terms");
    assert_eq!(reports[0]["class"], "server-fault");

    let folder = tempfile::tempdir().expect("a folder");
    let exported = folder.path().join("out.edn");
    fencepost()
        .args(["export", "--edn", "-o"])
        .arg(&exported)
        .arg(&golden)
        .assert()
        .success();
    assert_eq!(check(&exported, &["--model", "owner-mutex"]).0, 1);
}
