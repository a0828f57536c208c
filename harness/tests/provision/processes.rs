//! Fetches in processes of their own: two at once, and one that is killed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::provision::{Located, Provisioner, Source, State};

use crate::machine::{INDEX, Machine, SILENT, wanted};

/// Not a test of its own: the fetch that others start in a process of its own.
#[test]
#[ignore = "started by other tests, as a process of their own"]
fn child_fetches() {
    let Some(dir) = std::env::var_os("FENCEPOST_TEST_MACHINE").map(PathBuf::from) else {
        return;
    };
    let provisioner = Provisioner {
        cache_dir: Some(dir.join("cache")),
        search_path: dir.join("bin").into(),
        keyring_dirs: vec![dir.join("keys")],
        java: None,
    };
    let found = provisioner
        .locate(&wanted("etcd@3.5.16"), None, SILENT)
        .unwrap();
    let answer = dir.join(format!("answer.{}", std::process::id()));
    fs::write(answer, serde_json::to_vec(&found).unwrap()).unwrap();
}

fn spawn_fetch(machine: &Machine) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "processes::child_fetches"])
        .env("FENCEPOST_TEST_MACHINE", machine.dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_fetch_at_once() {
    let machine = Machine::with_apt();
    machine.apt_get(
        INDEX,
        "sleep 0.5",
        "echo deb > etcd-server_3.5.16-4_amd64.deb",
    );
    let mut children: Vec<_> = (0..2).map(|_| spawn_fetch(&machine)).collect();
    let mut sources: Vec<_> = children
        .iter_mut()
        .map(|child| {
            assert!(child.wait().unwrap().success());
            let answer = fs::read(machine.at(&format!("answer.{}", child.id()))).unwrap();
            serde_json::from_slice::<Located>(&answer).unwrap().source
        })
        .collect();
    sources.sort_by_key(|source| *source == Source::Fetched);
    assert_eq!(sources, [Source::Cache, Source::Fetched]);
    assert_eq!(
        (machine.updates(), machine.cached()),
        (1, vec!["3.5.16".to_string()])
    );
}

#[test]
fn what_a_killed_fetch_leaves_is_not_taken_and_goes() {
    let machine = Machine::with_apt();
    // Hangs in the unpacking, with a part of the binary written.
    let hang = format!(
        "mkdir -p \"$3/usr/bin\"\nprintf '#!' > \"$3/usr/bin/etcd\"\necho $$ > '{0}.new'\n\
         cat '{0}.new' > '{0}'\nexec sleep 60",
        machine.at("pid").display()
    );
    machine.tool("dpkg-deb", &hang);
    let mut child = spawn_fetch(&machine);
    let started = Instant::now();
    let pid = loop {
        let text = fs::read_to_string(machine.at("pid")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            break nix::unistd::Pid::from_raw(pid);
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the fetch never got to unpacking"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();

    let left = machine.cached();
    assert!(
        left.len() == 1 && left[0].starts_with(".fetching@3.5.16@"),
        "{left:?}"
    );
    let rows = machine.provisioner().list();
    assert!(rows.iter().all(|row| row.state != State::Cached));
    let whole = Machine::with_apt();
    fs::rename(whole.at("bin/dpkg-deb"), machine.at("bin/dpkg-deb")).unwrap();
    assert_eq!(machine.locate().unwrap().source, Source::Fetched);
    assert_eq!(machine.cached(), ["3.5.16"]);
}
