//! A place to run the binary in: a copy of it, a folder for results, a user.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use harness::evaluate::{RunVerdict, TrialVerdict};
use harness::provision::{Located, Provisioner, Wanted};
use nix::unistd::geteuid;

/// A user's bench.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    binary: PathBuf,
    as_nobody: bool,
    /// Runs measure time: one test at a time has the machine.
    _turn: Option<Rc<MutexGuard<'static, ()>>>,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) status: std::process::ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    /// A bench of this process's own user.
    pub(crate) fn own() -> Self {
        Self::new(false)
    }

    /// A bench a user that can run a sandbox here; says why one is left out.
    pub(crate) fn sandboxed() -> Vec<Self> {
        let users: &[bool] = if geteuid().is_root() {
            &[false, true]
        } else {
            &[false]
        };
        static TURN: Mutex<()> = Mutex::new(());
        // A test that failed while it had its turn says nothing about the others.
        let turn = Rc::new(TURN.lock().unwrap_or_else(PoisonError::into_inner));
        let bench = |as_nobody: &bool| Self {
            _turn: Some(Rc::clone(&turn)),
            ..Self::new(*as_nobody)
        };
        users.iter().map(bench).filter(sandbox_works).collect()
    }

    fn new(as_nobody: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let binary = folder.path().join("fencepost");
        // By another process: while this one writes, a test beside it may fork and keep the file busy.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_fencepost"))
            .arg(&binary)
            .status()
            .unwrap();
        assert!(copied.success());
        Self {
            folder,
            binary,
            as_nobody,
            _turn: None,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn user(&self) -> &'static str {
        if self.as_nobody {
            "as an ordinary user"
        } else {
            "as this user"
        }
    }

    /// The binary as this user, in the bench's folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&self.binary);
            command
        } else {
            Command::new(&self.binary)
        };
        command
            .args(args)
            .current_dir(self.folder())
            .env("CI", "true")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn fencepost(&self, args: &[&str]) -> Done {
        let output = self.command(args).output().unwrap();
        Done {
            code: output.status.code(),
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts it and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Writes a file in the bench's folder that every user can read and execute.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder().join(name);
        let shell = Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn();
        let mut shell = shell.unwrap();
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), text.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        path.display().to_string()
    }

    pub(crate) fn latest(&self) -> PathBuf {
        self.folder().join("results/latest")
    }

    pub(crate) fn verdict(&self) -> RunVerdict {
        let text = fs::read(self.latest().join("verdict.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The verdict of an arm's first trial.
    pub(crate) fn trial(&self, arm: &str) -> TrialVerdict {
        let verdict = self.verdict();
        let arm = verdict
            .arms
            .iter()
            .find(|one| one.arm == arm)
            .unwrap_or_else(|| panic!("no arm {arm}"));
        arm.trials[0].clone()
    }

    /// Whether a server can be had by the user that runs the tests; says why not.
    pub(crate) fn can_have(backend: &str, version: &str) -> bool {
        located(backend, version).is_some()
    }

    /// An etcd binary that this bench's user can execute, as `--binary` takes it; `None` where it cannot be had.
    pub(crate) fn etcd(&self, version: &str) -> Option<String> {
        self.server("etcd", version)
    }

    /// The same for a server that is one binary.
    pub(crate) fn server(&self, backend: &str, version: &str) -> Option<String> {
        let located = located(backend, version)?;
        let copy = self.folder().join(format!("{backend}-{version}"));
        if !copy.exists() {
            assert!(
                Command::new("cp")
                    .arg(&located.path)
                    .arg(&copy)
                    .status()
                    .unwrap()
                    .success()
            );
        }
        Some(format!("{backend}={}", copy.display()))
    }
}

/// The server that the user who runs the tests has, or gets; says why not.
fn located(backend: &str, version: &str) -> Option<Located> {
    let wanted = Wanted::new(backend, Some(version)).unwrap();
    let located = Provisioner::from_env().locate(&wanted, None, &|line| eprintln!("{line}"));
    located
        .inspect_err(|error| eprintln!("skipped: {backend} {version} cannot be had: {error}"))
        .ok()
}

impl Done {
    /// Fails the test with everything that was printed unless the exit code is this one.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{}\nstdout:\n{}\nstderr:\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fails the test unless the text was printed to standard error.
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "expected {text:?} in:\n{}",
            self.stderr
        );
        self
    }
}

/// Collects a started command.
pub(crate) fn collect(mut child: Child) -> Done {
    let status = child.wait().unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut stdout)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    Done {
        code: status.code(),
        status,
        stdout,
        stderr,
    }
}

/// The scenario file of this repository.
pub(crate) fn scenario(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../scenarios")
        .join(name);
    path.canonicalize().unwrap_or(path).display().to_string()
}

fn sandbox_works(bench: &Bench) -> bool {
    static WHY_NOT: [OnceLock<Option<String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let why_not = WHY_NOT[usize::from(bench.as_nobody)].get_or_init(|| {
        let tried = bench
            .command(&["sandbox-selftest", "run", "1", "0"])
            .output()
            .ok()?;
        (!tried.status.success()).then(|| String::from_utf8_lossy(&tried.stderr).into_owned())
    });
    if let Some(why) = why_not {
        eprintln!("skipped {}: no sandbox here: {}", bench.user(), why.trim());
    }
    why_not.is_none()
}

/// Every process that executes this file, by the name of what it executes.
pub(crate) fn processes_of(binary: &Path) -> Vec<i32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let executes =
        |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == binary);
    pids.filter(executes).collect()
}

impl Bench {
    /// Processes of this bench's own copy of the binary.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_of(&self.binary)
    }
}

/// An environment variable's value, for tests that are scaled by hand.
pub(crate) fn variable(name: &str, default: u32) -> u32 {
    std::env::var_os(name)
        .and_then(|value: OsString| value.to_str()?.parse().ok())
        .unwrap_or(default)
}
