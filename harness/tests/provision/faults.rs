//! Fetching, when it works and in each way that it can fail.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use harness::provision::{FetchFault, Source, State};

use crate::machine::{ETCD, INDEX, Machine, wanted};

#[test]
fn fetched_once_and_then_cached() {
    let machine = Machine::with_apt();
    let lines = RefCell::new(Vec::new());
    let progress = |line: &str| lines.borrow_mut().push(line.to_string());
    let found = machine
        .provisioner()
        .locate(&wanted("etcd@3.5.16"), None, &progress)
        .unwrap();
    assert_eq!(found.source, Source::Fetched);
    assert_eq!(
        found.path,
        machine.at("cache/etcd/3.5.16/files/usr/bin/etcd")
    );
    assert!(
        found.detail.contains("etcd-server 3.5.16-4"),
        "{}",
        found.detail
    );
    assert_eq!(
        lines.borrow()[0],
        "fetching etcd 3.5.16 (Debian package etcd-server, trixie) …"
    );
    assert_eq!(machine.cached(), ["3.5.16"], "the staging folder is gone");

    let again = machine.locate().unwrap();
    assert_eq!(
        (again.source, again.path),
        (Source::Cache, found.path.clone())
    );
    assert_eq!(machine.updates(), 1);
    let row = &machine
        .provisioner()
        .list()
        .into_iter()
        .find(|row| row.version == "3.5.16")
        .unwrap();
    assert_eq!(
        (row.state, row.size_bytes),
        (State::Cached, Some(ETCD.len() as u64))
    );

    // An entry that has lost a part is fetched anew.
    fs::write(&found.path, "#!").unwrap();
    assert_eq!(machine.locate().unwrap().source, Source::Fetched);
    assert_eq!(machine.cached(), ["3.5.16"]);
    fs::remove_file(machine.at("cache/etcd/3.5.16/manifest.json")).unwrap();
    assert_eq!(machine.locate().unwrap().source, Source::Fetched);
}

#[test]
fn apt_is_asked_for_the_suite_with_the_machines_mirror_and_keyring() {
    let machine = Machine::with_apt();
    let keep = format!(
        "cat ../sources.list ../apt.conf > '{}'",
        machine.at("seen").display()
    );
    machine.apt_get(INDEX, &keep, "echo deb > etcd-server_3.5.16-4_amd64.deb");
    machine.locate().unwrap();
    let seen = fs::read_to_string(machine.at("seen")).unwrap();
    let key = machine.at("keys/debian-archive-keyring.gpg");
    let source = format!(
        "deb [signed-by={}] http://mirror.invalid/debian trixie main\n",
        key.display()
    );
    assert!(seen.starts_with(&source), "{seen}");
    assert!(seen.contains("Dir::State::status \"/dev/null\";"), "{seen}");
}

#[test]
fn no_apt() {
    let (fault, message) = Machine::bare().fault();
    assert!(
        matches!(fault, FetchFault::NoTool { tool: "apt-get" }),
        "{message}"
    );
    let machine = Machine::with_apt();
    fs::remove_file(machine.at("bin/dpkg-deb")).unwrap();
    let (fault, message) = machine.fault();
    assert!(
        matches!(fault, FetchFault::NoTool { tool: "dpkg-deb" }),
        "{message}"
    );
}

#[test]
fn no_debian_mirror() {
    let machine = Machine::with_apt();
    machine.apt_get(
        "echo 'http://mirror.invalid/ubuntu jammy main Ubuntu'",
        "true",
        "true",
    );
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::NoMirror { .. }), "{message}");
    assert!(message.contains("only: jammy"), "{message}");
    assert_eq!(machine.updates(), 0);
}

#[test]
fn no_keyring() {
    let machine = Machine::with_apt();
    fs::remove_file(machine.at("keys/debian-archive-keyring.gpg")).unwrap();
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::NoKeyring { .. }), "{message}");
    assert!(
        message.contains("Install the package debian-archive-keyring"),
        "{message}"
    );
}

#[test]
fn disk_full_while_apt_or_dpkg_writes() {
    let machine = Machine::with_apt();
    let full = "echo 'E: Write error - write (28: No space left on device)' >&2; exit 100";
    machine.apt_get(INDEX, full, "true");
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::DiskFull { .. }), "{message}");
    assert!(
        message.contains("FENCEPOST_CACHE") && message.contains("write (28"),
        "{message}"
    );

    let machine = Machine::with_apt();
    machine.tool(
        "dpkg-deb",
        "echo 'tar: etcd: Cannot write: No space left on device' >&2; exit 2",
    );
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::DiskFull { .. }), "{message}");
}

#[test]
fn broken_download() {
    let machine = Machine::with_apt();
    let mismatch = "echo 'E: Failed to fetch etcd-server.deb  Hash Sum mismatch' >&2; exit 100";
    machine.apt_get(INDEX, "true", mismatch);
    let (fault, message) = machine.fault();
    assert!(
        matches!(fault, FetchFault::BrokenDownload { by: "apt-get", .. }),
        "{message}"
    );
    assert!(
        message.contains("Hash Sum mismatch") && message.contains("Try again"),
        "{message}"
    );

    // A file that is no package, given to the real dpkg-deb where there is one.
    let machine = Machine::with_apt();
    if !Path::new("/usr/bin/dpkg-deb").exists() {
        return println!("skipped in part: this machine has no dpkg-deb");
    }
    machine.tool("dpkg-deb", "exec /usr/bin/dpkg-deb \"$@\"");
    let (fault, message) = machine.fault();
    assert!(
        matches!(fault, FetchFault::BrokenDownload { by: "dpkg-deb", .. }),
        "{message}"
    );
}

#[test]
fn the_suite_has_moved_on() {
    let machine = Machine::with_apt();
    machine.madison("etcd-server | 3.5.31-1 | http://mirror.invalid/debian trixie/main");
    let (fault, message) = machine.fault();
    assert!(
        matches!(fault, FetchFault::VersionAbsent { .. }),
        "{message}"
    );
    assert!(
        message.contains("should have etcd-server 3.5.16, but it has 3.5.31-1"),
        "{message}"
    );
}

#[test]
fn a_package_with_another_server_in_it() {
    let machine = Machine::with_apt();
    let other = "mkdir -p \"$3/usr/bin\"\nprintf '#!/bin/sh\\necho etcd Version: 3.5.99\\n' > \"$3/usr/bin/etcd\"\nchmod 755 \"$3/usr/bin/etcd\"";
    machine.tool("dpkg-deb", other);
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::WrongBinary { .. }), "{message}");
    assert!(message.contains("3.5.99"), "{message}");
}
