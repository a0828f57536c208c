//! The real apt: against mirrors that fail, and against the machine's own. Skipped, with the
//! reason printed, on a machine without apt or a mirror.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::provision::{FetchFault, Located, ProvisionError, Provisioner, Source};

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
    let Some(found) = really_fetched(&provisioner, "etcd@3.4.23") else {
        return;
    };
    let answer = Command::new(&found.path).arg("--version").output().unwrap();
    assert!(answer.stdout.starts_with(b"etcd Version: 3.4.23\n"));
    assert_eq!(found.launch.words(), [found.path.to_str().unwrap()]);
    // Given back by hand, it is what it says.
    let given = provisioner
        .locate(&wanted("etcd"), Some(&found.path), SILENT)
        .unwrap();
    assert_eq!((given.source, &*given.version), (Source::Given, "3.4.23"));
}

/// Fetches as a user would; `None` where this machine cannot, with the reason printed.
fn really_fetched(provisioner: &Provisioner, what: &str) -> Option<Located> {
    let started = Instant::now();
    let found = provisioner.fetch(&wanted(what), &|line| println!("{line}"));
    let found = found.map_err(|error| match error {
        ProvisionError::NoJava { error, .. } => *error,
        other => other,
    });
    let found = match found {
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
            println!("skipped: {fault}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    println!(
        "fetched in {:.1} s: {found:?}",
        started.elapsed().as_secs_f64()
    );
    Some(found)
}

#[test]
fn real_redis_runs_on_the_libraries_of_its_own_suite() {
    let cache = tempfile::tempdir().unwrap();
    let mut provisioner = Provisioner::from_env();
    provisioner.cache_dir = Some(cache.path().into());
    let Some(found) = really_fetched(&provisioner, "redis@6.0.16") else {
        return;
    };
    let again = provisioner.locate(&wanted("redis@6.0.16"), None, SILENT);
    let again = again.unwrap();
    assert_eq!(
        (again.source, &again.launch),
        (Source::Cache, &found.launch)
    );
    let mut server = Command::new(found.launch.program())
        .args(&found.launch.words()[1..])
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(cache.path().join("socket"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let mut socket = loop {
        match UnixStream::connect(cache.path().join("socket")) {
            Ok(socket) => break socket,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    socket.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    socket.read_exact(&mut answer).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.id())).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    let files = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let strange: Vec<_> = files
        .filter(|file| file.contains(".so") && !Path::new(file).starts_with(cache.path()))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn real_zookeeper_comes_with_the_java_that_starts_it() {
    let cache = tempfile::tempdir().unwrap();
    let mut provisioner = Provisioner::from_env();
    provisioner.cache_dir = Some(cache.path().into());
    let Some(found) = really_fetched(&provisioner, "zookeeper@3.8.0") else {
        return;
    };
    let words = found.launch.words();
    assert_eq!(words[words.len() - 2], "-cp");
    assert!(words[words.len() - 1].starts_with(found.path.to_str().unwrap()));
    let given = provisioner.locate(&wanted("zookeeper"), Some(&found.path), SILENT);
    let given = given.unwrap();
    assert_eq!((given.source, &*given.version), (Source::Given, "3.8.0"));
}
