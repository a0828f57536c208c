//! The real apt: against mirrors that fail, and against the machine's own. Skipped, with the
//! reason printed, on a machine without apt or a mirror.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use harness::provision::{FetchFault, ProvisionError, Provisioner, Source};

use crate::machine::{Machine, SILENT, wanted};

/// A machine whose apt is the real one, but whose only mirror is `site`.
fn with_real_apt(site: &str) -> Option<Machine> {
    let real = ["apt-get", "apt-cache", "dpkg-deb"].map(|tool| Path::new("/usr/bin").join(tool));
    if !real.iter().all(|tool| tool.exists()) {
        println!("skipped: this machine has no apt");
        return None;
    }
    let machine = Machine::bare();
    let direct = "-o Acquire::http::Proxy=DIRECT -o Acquire::Retries=0";
    let index = format!("echo '{site} bookworm main Debian'");
    let body = format!(
        "PATH=/usr/bin:/bin\ncase \"$*\" in\nindextargets*) {index};;\n\
         *) exec /usr/bin/apt-get \"$@\" {direct};;\nesac"
    );
    machine.tool("apt-get", &body);
    machine.tool(
        "apt-cache",
        "PATH=/usr/bin:/bin exec /usr/bin/apt-cache \"$@\"",
    );
    machine.tool(
        "dpkg-deb",
        "PATH=/usr/bin:/bin exec /usr/bin/dpkg-deb \"$@\"",
    );
    Some(machine)
}

#[test]
fn real_apt_with_a_mirror_that_does_not_answer() {
    let Some(machine) = with_real_apt("http://127.0.0.1:9/debian") else {
        return;
    };
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::NoNetwork { .. }), "{message}");
    assert!(
        message.contains("127.0.0.1"),
        "apt's own words are quoted: {message}"
    );
}

#[test]
fn real_apt_with_a_mirror_that_lacks_the_suite_or_does_not_sign_it() {
    let mirror = tempfile::tempdir().unwrap();
    let site = format!("file:{}", mirror.path().display());
    let Some(machine) = with_real_apt(&site) else {
        return;
    };
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::SuiteAbsent { .. }), "{message}");

    let suite = mirror.path().join("dists/trixie");
    fs::create_dir_all(&suite).unwrap();
    fs::write(suite.join("Release"), "Suite: trixie\nCodename: trixie\n").unwrap();
    let (fault, message) = machine.fault();
    assert!(matches!(fault, FetchFault::KeyRefused { .. }), "{message}");
}

#[test]
fn real_etcd_is_fetched_from_the_machines_mirror() {
    let cache = tempfile::tempdir().unwrap();
    let mut provisioner = Provisioner::from_env();
    provisioner.cache_dir = Some(cache.path().into());
    let started = Instant::now();
    let found = match provisioner.fetch(&wanted("etcd@3.4.23"), &|line| println!("{line}")) {
        Ok(found) => found,
        Err(ProvisionError::Fetch { fault, .. })
            if matches!(
                *fault,
                FetchFault::NoTool { .. }
                    | FetchFault::NoMirror { .. }
                    | FetchFault::NoKeyring { .. }
                    | FetchFault::NoNetwork { .. }
            ) =>
        {
            return println!("skipped: {fault}");
        }
        Err(error) => panic!("{error}"),
    };
    println!(
        "fetched in {:.1} s: {found:?}",
        started.elapsed().as_secs_f64()
    );
    let answer = Command::new(&found.path).arg("--version").output().unwrap();
    assert!(answer.stdout.starts_with(b"etcd Version: 3.4.23\n"));
    // Given back by hand, it is what it says.
    let given = provisioner
        .locate(&wanted("etcd"), Some(&found.path), SILENT)
        .unwrap();
    assert_eq!((given.source, &*given.version), (Source::Given, "3.4.23"));
}
