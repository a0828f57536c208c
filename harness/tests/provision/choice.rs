//! Which binary is taken: given, on `PATH`, fencepost itself, or none.

use std::cell::RefCell;
use std::fs;

use harness::provision::{ProvisionError, Provisioner, Source, State, known_versions};

use crate::machine::{ETCD, Machine, SILENT, wanted, write_script};

#[test]
fn an_unusable_cache() {
    let machine = Machine::with_apt();
    let mut provisioner = machine.provisioner();
    provisioner.cache_dir = Some("/dev/null/cache".into());
    let error = provisioner
        .locate(&wanted("etcd@3.5.16"), None, SILENT)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/dev/null/cache") && error.contains("Set FENCEPOST_CACHE"),
        "{error}"
    );
    provisioner.cache_dir = None;
    let error = provisioner
        .locate(&wanted("etcd@3.5.16"), None, SILENT)
        .unwrap_err();
    assert!(matches!(error, ProvisionError::NoCacheDir));
}

#[test]
fn a_binary_on_path_is_taken_if_its_version_is_exact() {
    let machine = Machine::with_apt();
    write_script(&machine.at("bin/etcd"), &ETCD.replace("3.5.16", "3.4.99"));
    let lines = RefCell::new(Vec::new());
    let progress = |line: &str| lines.borrow_mut().push(line.to_string());
    let found = machine
        .provisioner()
        .locate(&wanted("etcd@3.5.16"), None, &progress)
        .unwrap();
    assert_eq!(found.source, Source::Fetched);
    assert!(
        lines.borrow()[0].ends_with("is 3.4.99, not 3.5.16: not used"),
        "{lines:?}"
    );

    // Exact, though not in the catalogue.
    let found = machine
        .provisioner()
        .locate(&wanted("etcd@3.4.99"), None, SILENT)
        .unwrap();
    assert_eq!(
        (found.source, found.path),
        (Source::Path, machine.at("bin/etcd"))
    );
    let rows = machine.provisioner().list();
    assert!(
        rows.iter()
            .any(|row| row.version == "3.4.99" && row.state == State::OnPath)
    );
}

#[test]
fn a_given_binary_is_checked() {
    let machine = Machine::bare();
    let provisioner = machine.provisioner();
    let path = machine.at("my-etcd");
    let given = |text: &str| provisioner.locate(&wanted(text), Some(&path), SILENT);
    assert!(
        given("etcd@3.5.16")
            .unwrap_err()
            .to_string()
            .contains("no such file")
    );
    fs::write(&path, "").unwrap();
    assert!(
        given("etcd@3.5.16")
            .unwrap_err()
            .to_string()
            .contains("chmod +x")
    );
    fs::remove_file(&path).unwrap();
    write_script(&path, ETCD);
    for text in ["etcd@3.5.16", "etcd"] {
        let found = given(text).unwrap();
        assert_eq!(
            (found.source, &*found.version, &found.path),
            (Source::Given, "3.5.16", &path)
        );
    }
    let error = given("etcd@3.4.23").unwrap_err();
    assert!(
        matches!(&error, ProvisionError::GivenMismatch { reported, .. } if reported == "3.5.16")
    );
    assert!(error.is_usage());
    assert!(
        given("builtin")
            .unwrap_err()
            .to_string()
            .contains("takes no binary")
    );

    let folder = provisioner
        .locate(&wanted("etcd"), Some(machine.dir.path()), SILENT)
        .unwrap_err();
    assert!(folder.to_string().contains("is a folder"), "{folder}");
    write_script(&path, "#!/bin/sh\necho redis v=7\n");
    let other = provisioner
        .locate(&wanted("etcd"), Some(&path), SILENT)
        .unwrap_err()
        .to_string();
    assert!(
        other.contains("etcd Version: VERSION") && other.contains("redis v=7"),
        "{other}"
    );
}

const JAVA: &str = "#!/bin/sh\ncase \"$*\" in\n-version) echo 'openjdk version \"MAJOR.0.1\" 2025-04-15' >&2;;\n\
                    -cp*Version*) echo 3.4.13-6;;\nesac\n";

fn java(major: &str) -> String {
    JAVA.replace("MAJOR", major)
}

#[test]
fn zookeeper_is_started_by_a_java_of_the_right_age() {
    let machine = Machine::bare();
    let jar = machine.at("zookeeper.jar");
    fs::write(&jar, "").unwrap();
    write_script(&machine.at("bin/java"), &java("17"));
    let mut provisioner = machine.provisioner();
    let locate = |provisioner: &Provisioner, text: &str| {
        provisioner.locate(&wanted(text), Some(&jar), SILENT)
    };
    let found = locate(&provisioner, "zookeeper@3.4.13").unwrap();
    let folder = machine.dir.path().display();
    let class_path = format!("{}:{folder}/*:{folder}/lib/*", jar.display());
    let program = machine.at("bin/java").display().to_string();
    assert_eq!(found.launch.words(), [&*program, "-cp", &*class_path]);
    assert_eq!(found.version, "3.4.13");
    let error = locate(&provisioner, "zookeeper@3.9.3").unwrap_err();
    assert!(
        matches!(error, ProvisionError::GivenMismatch { .. }),
        "{error}"
    );

    // Too new, and none can be fetched.
    write_script(&machine.at("bin/java"), &java("24"));
    let error = locate(&provisioner, "zookeeper").unwrap_err();
    assert!(!error.is_usage(), "{error}");
    let message = error.to_string();
    for part in [
        "needs Java 8 to 21",
        "is Java 24.0.1",
        "apt-get",
        "--binary java=PATH",
    ] {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
    // None at all.
    fs::remove_file(machine.at("bin/java")).unwrap();
    let message = locate(&provisioner, "zookeeper").unwrap_err().to_string();
    assert!(message.contains("there is none on PATH"), "{message}");

    // Given by the user.
    let own = machine.at("own-java");
    provisioner.java = Some(own.clone());
    write_script(&own, &java("11"));
    let found = locate(&provisioner, "zookeeper").unwrap();
    assert_eq!(found.launch.program(), own);
    write_script(&own, &java("7"));
    let error = locate(&provisioner, "zookeeper").unwrap_err();
    assert!(
        error.is_usage() && error.to_string().contains("expected Java 8 to 21"),
        "{error}"
    );
}

#[test]
fn valkey_is_a_redis_by_another_name() {
    let machine = Machine::bare();
    let answer = |name: &str| format!("#!/bin/sh\necho '{name} server v=8.1.1 sha=00000000:0'\n");
    write_script(&machine.at("bin/valkey-server"), &answer("Valkey"));
    write_script(&machine.at("bin/redis-server"), &answer("Redis"));
    let locate = |text: &str| machine.provisioner().locate(&wanted(text), None, SILENT);
    let valkey = locate("redis@valkey-8.1.1").unwrap();
    assert_eq!(
        (valkey.source, valkey.path),
        (Source::Path, machine.at("bin/valkey-server"))
    );
    assert_eq!(
        locate("redis@8.1.1").unwrap().path,
        machine.at("bin/redis-server")
    );
}

#[test]
fn the_builtin_backend_is_this_program() {
    let machine = Machine::bare();
    for text in ["builtin", "builtin@model"] {
        let found = machine
            .provisioner()
            .locate(&wanted(text), None, SILENT)
            .unwrap();
        assert_eq!((found.source, &*found.version), (Source::Own, "model"));
        assert_eq!(found.path, std::env::current_exe().unwrap());
    }
    assert_eq!(
        known_versions("etcd").unwrap(),
        ["3.3.25", "3.4.23", "3.5.16", "3.5.30"]
    );
    assert!(
        known_versions("builtim")
            .unwrap_err()
            .to_string()
            .contains("did you mean builtin?")
    );
}
