//! What can go wrong while getting a binary, and what the user can do about it. Text only.

use std::io;
use std::path::{Path, PathBuf};

use super::catalogue::{Backend, Debian, Release};

/// Why no binary can be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The fields are named for what the message shows.
pub enum ProvisionError {
    /// The text is not of the form `BACKEND[@VERSION]`.
    #[error(
        "cannot read \"{text}\": {problem}; \
         expected BACKEND or BACKEND@VERSION, for example etcd@3.5.16"
    )]
    BadWanted { text: String, problem: String },

    /// The catalogue has no such backend.
    #[error("unknown backend \"{name}\"{hint}; known are: {known}")]
    UnknownBackend {
        name: String,
        hint: String,
        known: String,
    },

    /// The catalogue has no such version, and no binary of it was given or is on `PATH`.
    #[error(
        "unknown version {version} of {backend}{hint}; known are: {known}. \
         To use a binary of your own: --binary {backend}=PATH"
    )]
    UnknownVersion {
        backend: &'static str,
        version: String,
        hint: String,
        known: String,
    },

    /// The binary given by the user cannot be used.
    #[error("--binary {backend}={}: {problem}", path.display())]
    GivenUnusable {
        backend: &'static str,
        path: PathBuf,
        problem: String,
    },

    /// The binary given by the user is of another version than the one asked for.
    #[error(
        "--binary {backend}={}: expected version {wanted}, but it reports {reported}; \
         ask for {backend}@{reported}, or give a binary of version {wanted}",
        path.display()
    )]
    GivenMismatch {
        backend: &'static str,
        path: PathBuf,
        wanted: String,
        reported: String,
    },

    /// A Java server is wanted, and there is nothing to run it with.
    #[error("{backend} needs Java {expected}: {found}, and: {error}")]
    NoJava {
        backend: &'static str,
        expected: String,
        found: String,
        error: Box<ProvisionError>,
    },

    /// The path of the running program is not known.
    #[error("cannot tell where the fencepost binary itself is (is /proc mounted?): {error}")]
    NoOwnPath { error: io::Error },

    /// The environment names no place for a cache.
    #[error(
        "there is no place for fetched binaries: \
         set FENCEPOST_CACHE (or XDG_CACHE_HOME, or HOME) to a folder that you may write to"
    )]
    NoCacheDir,

    /// Fetching was tried and failed.
    #[error(
        "cannot fetch {backend} {version} ({package}): {fault}\n{}{remedy}",
        fault.advice()
    )]
    Fetch {
        backend: &'static str,
        version: &'static str,
        package: String,
        fault: Box<FetchFault>,
        remedy: String,
    },
}

impl ProvisionError {
    /// Whether the request itself was wrong (exit code 2), and not the machine (exit code 3).
    pub fn is_usage(&self) -> bool {
        use ProvisionError::*;
        match self {
            BadWanted { .. } | UnknownBackend { .. } | UnknownVersion { .. } => true,
            GivenUnusable { .. } | GivenMismatch { .. } => true,
            NoOwnPath { .. } | NoCacheDir | NoJava { .. } | Fetch { .. } => false,
        }
    }

    pub(super) fn fetch(
        backend: &Backend,
        release: &Release,
        debian: &Debian,
        fault: FetchFault,
    ) -> Self {
        let name = backend.name;
        let yourself = match backend
            .probe
            .as_ref()
            .and_then(|probe| probe.programs.first())
        {
            Some(program) => format!(
                "install {program} {} yourself (in Debian {}: package {}) so that `{program}` is on PATH, or ",
                release.version, debian.suite, debian.packages[0]
            ),
            None => String::new(),
        };
        let remedy = format!("Or do without fetching: {yourself}pass --binary {name}=PATH.");
        ProvisionError::Fetch {
            backend: backend.name,
            version: release.version,
            package: debian.to_string(),
            fault: Box::new(fault),
            remedy,
        }
    }
}

/// What exactly failed in a fetch.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The fields are named for what the message shows.
pub enum FetchFault {
    /// A file of the cache cannot be read or written.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        error: io::Error,
    },

    /// The disk with the cache is full.
    #[error("no space left for {} ({said})", path.display())]
    DiskFull { path: PathBuf, said: String },

    /// A program that fetching needs is not installed.
    #[error("`{tool}` is not on PATH, and Debian packages are fetched with it")]
    NoTool { tool: &'static str },

    /// The machine's apt knows no Debian mirror.
    #[error("this machine's apt has no mirror of Debian's main archive configured; it has {found}")]
    NoMirror { found: String },

    /// There is no keyring to verify downloads with.
    #[error("Debian's archive keyring was not found in {dirs}, so downloads cannot be verified")]
    NoKeyring { dirs: String },

    /// The keyring does not know the key that the suite is signed with.
    #[error(
        "the signature of suite {suite} cannot be verified; apt says:\n{}",
        quoted(tail)
    )]
    KeyRefused { suite: String, tail: String },

    /// The mirror cannot be reached.
    #[error(
        "the machine's Debian mirror cannot be reached; apt says:\n{}",
        quoted(tail)
    )]
    NoNetwork { tail: String },

    /// The mirror does not carry the suite.
    #[error(
        "the machine's Debian mirror does not have suite {suite}; apt says:\n{}",
        quoted(tail)
    )]
    SuiteAbsent { suite: String, tail: String },

    /// The suite has the package in other versions only, or not at all.
    #[error("suite {suite} should have {package} {wanted}, but it has {has}")]
    VersionAbsent {
        package: String,
        suite: String,
        wanted: String,
        has: String,
    },

    /// What arrived is not what the mirror's index says.
    #[error("the download is broken; {by} says:\n{}", quoted(tail))]
    BrokenDownload { by: &'static str, tail: String },

    /// An apt program failed for a reason not told apart.
    #[error("{step} failed; it says:\n{}", quoted(tail))]
    Apt { step: &'static str, tail: String },

    /// What was unpacked does not hold a server that runs here.
    #[error("the package's {} is not {wanted}: {problem}", path.display())]
    WrongBinary {
        path: PathBuf,
        wanted: &'static str,
        problem: String,
    },

    /// The cache's path cannot be written into an apt configuration or a library path.
    #[error("apt cannot work in {}: the path has a quote, a backslash or a colon, or is no UTF-8", path.display())]
    AwkwardPath { path: PathBuf },
}

impl FetchFault {
    /// An I/O error at `path`; a full disk gets its own variant.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchFault {
        let path = path.to_path_buf();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FetchFault::DiskFull {
                path,
                said: error.to_string(),
            },
            _ => FetchFault::Io { doing, path, error },
        }
    }

    /// What to do about it: one sentence and a space, or nothing.
    fn advice(&self) -> &'static str {
        match self {
            FetchFault::Io { .. } | FetchFault::AwkwardPath { .. } => {
                "Set FENCEPOST_CACHE to a folder that you may write to. "
            }
            FetchFault::DiskFull { .. } => {
                "Free about 200 MB there, or set FENCEPOST_CACHE to a folder on another disk. "
            }
            FetchFault::NoTool { .. } => {
                "On Debian, install the packages apt and dpkg; elsewhere, fetching is not possible. "
            }
            FetchFault::NoMirror { .. } => {
                "On Debian, add the main archive to /etc/apt/sources.list; elsewhere, fetching is \
                 not possible. "
            }
            FetchFault::NoKeyring { .. } => "Install the package debian-archive-keyring. ",
            FetchFault::KeyRefused { .. } => "Upgrade the package debian-archive-keyring. ",
            FetchFault::NoNetwork { .. } => {
                "Check the network and apt's proxy settings, then try again. "
            }
            FetchFault::SuiteAbsent { .. } => {
                "The suite may have moved to Debian's archive of old releases: add a source line \
                 for it there to /etc/apt/sources.list. "
            }
            FetchFault::VersionAbsent { .. } => "Take another version (`fencepost backends`). ",
            FetchFault::BrokenDownload { .. } => {
                "Try again; nothing of this attempt was kept. If it stays so, the mirror or a \
                 proxy before it is at fault. "
            }
            FetchFault::WrongBinary { .. } => "Take another version (`fencepost backends`). ",
            FetchFault::Apt { .. } => "",
        }
    }
}

fn quoted(tail: &str) -> String {
    if tail.is_empty() {
        return "    (nothing)".into();
    }
    tail.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}
