//! Running another program to its end and keeping what it said. Knows nothing about apt.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program that has ended left behind.
pub(super) struct Ran {
    /// Whether it ended with status 0.
    pub(super) succeeded: bool,
    /// Its standard output.
    pub(super) stdout: String,
    /// Its standard output and then its standard error.
    pub(super) all: String,
}

impl Ran {
    /// The last lines it wrote, for an error message.
    pub(super) fn tail(&self) -> String {
        const LINES: usize = 6;
        let lines: Vec<_> = self
            .all
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

/// Runs `program` in `folder`, with messages in English and `search_path` as its `PATH`.
pub(super) fn run<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    folder: &Path,
    search_path: &OsStr,
) -> io::Result<Ran> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .env("PATH", search_path)
        // Messages are told apart by their text.
        .env("LC_ALL", "C")
        .env_remove("LANGUAGE")
        .stdin(Stdio::null())
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    Ok(Ran {
        succeeded: output.status.success(),
        stdout,
        all,
    })
}
