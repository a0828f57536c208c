//! Which binary is taken: given, on `PATH`, fencepost itself, or none.

use std::cell::RefCell;
use std::fs;

use harness::provision::{ProvisionError, Source, State, known_versions};

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
