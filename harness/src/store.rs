//! Where a run is kept: one folder a run, one below it a trial. Every stage reads files that an earlier one wrote.
//!
//! ```text
//! results/20261129T180000Z-quickstart-s42/
//!   plan.json  environment.json  verdict.json
//!   unfenced/trial-1/  plan.json  history.jsonl.zst  verdict.json  logs/
//! ```
//! It must not know what is in the files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// File names inside a run's or a trial's folder.
pub mod names {
    /// What is to be run.
    pub const PLAN: &str = "plan.json";
    /// Everything that happened in a trial.
    pub const HISTORY: &str = "history.jsonl.zst";
    /// What the checks and expectations concluded.
    pub const VERDICT: &str = "verdict.json";
    /// The machine and the versions.
    pub const ENVIRONMENT: &str = "environment.json";
    /// Output and exact command lines of nodes and workers.
    pub const LOGS: &str = "logs";
}

/// Something in the results folder cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {what} {}: {error}{}", .path.display(), hint(.error))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: expected {expected}, found something else: {error}\n  was it written by another version of fencepost?", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What the parser said.
        error: serde_json::Error,
    },
    /// The folder is no run.
    #[error("{}: expected the folder of a run or of a trial (with a plan.json), found none\n  runs are kept under results/, one folder each", .0.display())]
    NoRun(PathBuf),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "\n  choose another folder with --results DIR, or make this one writable"
        }
        io::ErrorKind::StorageFull => {
            "\n  the disk is full: free some space, or choose another folder with --results DIR"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "\n  the file system is read-only: choose another folder with --results DIR"
        }
        _ => "",
    }
}

/// Creates the folder of a new run below `results` and points `results/latest` at it.
///
/// # Errors
/// When the folder cannot be created or written to.
pub fn create_run(results: &Path, scenario: &str, seed: u64) -> Result<PathBuf, StoreError> {
    fs::create_dir_all(results)
        .map_err(|error| io_error("create the results folder", results, error))?;
    let stamp = humantime::format_rfc3339_seconds(SystemTime::now())
        .to_string()
        .replace([':', '-'], "");
    let name = format!("{stamp}-{}-s{seed}", slug(scenario));
    for attempt in 1..=1000 {
        let folder = results.join(if attempt == 1 {
            name.clone()
        } else {
            format!("{name}-{attempt}")
        });
        match fs::create_dir(&folder) {
            Ok(()) => {
                let folder = folder
                    .canonicalize()
                    .map_err(|error| io_error("resolve", &folder, error))?;
                point_latest(results, &folder);
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error("create", &folder, error)),
        }
    }
    Err(io_error(
        "create",
        &results.join(name),
        io::ErrorKind::AlreadyExists.into(),
    ))
}

/// A convenience that may fail: another run may be doing the same at this moment.
fn point_latest(results: &Path, folder: &Path) {
    let Some(name) = folder.file_name() else {
        return;
    };
    let link = results.join("latest");
    let temporary = results.join(format!(".latest-{}", std::process::id()));
    if std::os::unix::fs::symlink(name, &temporary).is_ok()
        && fs::rename(&temporary, &link).is_err()
    {
        let _ = fs::remove_file(&temporary);
    }
}

/// Creates the folder of one trial, with its folder for logs.
///
/// # Errors
/// When it cannot be created.
pub fn create_trial(run: &Path, arm: &str, trial: u32) -> Result<PathBuf, StoreError> {
    let folder = trial_folder(run, arm, trial);
    let logs = folder.join(names::LOGS);
    fs::create_dir_all(&logs).map_err(|error| io_error("create", &logs, error))?;
    Ok(folder)
}

/// The folder of one trial.
#[must_use]
pub fn trial_folder(run: &Path, arm: &str, trial: u32) -> PathBuf {
    run.join(slug(arm)).join(format!("trial-{trial}"))
}

/// Writes a JSON file as a whole: a reader sees the old one or the new one.
///
/// # Errors
/// When it cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let bytes = to_json(value).map_err(|error| StoreError::Content {
        path: path.to_owned(),
        expected: "something that JSON can hold",
        error,
    })?;
    let temporary = path.with_extension("tmp");
    let written = fs::File::create(&temporary).and_then(|mut file| file.write_all(&bytes));
    written
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|error| io_error("write", path, error))
}

/// The bytes that [`write_json`] writes.
///
/// # Errors
/// When the value has no JSON form.
pub fn to_json(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a JSON file; `expected` says what it should hold.
///
/// # Errors
/// When it cannot be read or holds something else.
pub fn read_json<T: DeserializeOwned>(
    path: &Path,
    expected: &'static str,
) -> Result<T, StoreError> {
    let bytes = fs::read(path).map_err(|error| io_error("read", path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::Content {
        path: path.to_owned(),
        expected,
        error,
    })
}

fn io_error(what: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Io {
        what,
        path: path.to_owned(),
        error,
    }
}

/// A name as a file name: lower case, words joined by hyphens.
#[must_use]
pub fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.chars().flat_map(char::to_lowercase) {
        if character.is_ascii_alphanumeric() || character == '.' {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() {
        "unnamed".to_owned()
    } else {
        slug.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_safe_file_names() {
        for (name, expected) in [
            ("no fault", "no-fault"),
            ("etcd 3.4.23", "etcd-3.4.23"),
            ("../..", "unnamed"),
            ("Ünï / x", "n-x"),
        ] {
            assert_eq!(slug(name), expected, "{name}");
        }
    }

    #[test]
    fn two_runs_of_one_second_get_two_folders_and_latest_is_the_second() {
        let results = tempfile::tempdir().unwrap();
        let first = create_run(results.path(), "quickstart", 1).unwrap();
        let second = create_run(results.path(), "quickstart", 1).unwrap();
        assert_ne!(first, second);
        assert_eq!(
            results.path().join("latest").canonicalize().unwrap(),
            second
        );
    }

    #[test]
    fn a_results_path_that_is_a_file_is_a_clear_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = create_run(file.path(), "x", 1).unwrap_err().to_string();
        assert!(
            error.contains("cannot create the results folder"),
            "{error}"
        );
    }
}
