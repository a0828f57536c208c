//! What a run's figures depend on besides its plan: machine, kernel, versions. Stored as `environment.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::provision::Located;

/// The commit that this binary was built from, as far as the build could tell.
pub const COMMIT: &str = env!("FENCEPOST_COMMIT");

/// The machine and the versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of fencepost.
    pub fencepost: String,
    /// [`COMMIT`].
    pub commit: String,
    /// Kernel name, release and machine.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// True as root: then faults that need it are available.
    pub root: bool,
    /// When the run began, in UTC.
    pub began: String,
    /// The servers, by `backend@version`.
    pub servers: BTreeMap<String, Located>,
}

impl Environment {
    /// Looks around.
    #[must_use]
    pub fn now(servers: &[Located]) -> Self {
        let name = nix::sys::utsname::uname();
        let word = |word: &std::ffi::OsStr| word.to_string_lossy().into_owned();
        let kernel = name.map(|name| {
            format!(
                "{} {} {}",
                word(name.sysname()),
                word(name.release()),
                word(name.machine())
            )
        });
        Self {
            fencepost: env!("CARGO_PKG_VERSION").to_owned(),
            commit: COMMIT.to_owned(),
            kernel: kernel.unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            cpu_model: field("/proc/cpuinfo", "model name"),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .trim_end_matches(" kB")
                .parse()
                .map_or(0, |kib: u64| kib / 1024),
            root: nix::unistd::geteuid().is_root(),
            began: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            servers: servers
                .iter()
                .map(|one| (format!("{}@{}", one.backend, one.version), one.clone()))
                .collect(),
        }
    }
}

/// The value of the first line `name: value` of a file; empty where there is none.
fn field(path: &str, name: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value = |line: &str| {
        line.strip_prefix(name)?
            .trim_start()
            .strip_prefix(':')
            .map(|value| value.trim().to_owned())
    };
    text.lines().find_map(value).unwrap_or_default()
}
