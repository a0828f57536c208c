//! The cache of fetched binaries: `CACHE/BACKEND/VERSION/{manifest.json, files/…}`.
//!
//! An entry is built in a folder beside its final place, flushed, and moved there by one rename
//! while a lock is held, so that an entry which is there is whole: neither a killed fetch nor two
//! at once can leave a half one. This file does not know how files are fetched.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::catalogue::{Backend, Debian, Release};
use super::error::FetchFault;
use super::{Launch, Located, Source};

/// The version of the manifest's layout. An entry with another one is fetched anew.
const FORMAT: u32 = 1;

/// Where the cache is, by the environment: fencepost's own variable, then the XDG Base Directory
/// Specification (which says that relative paths are to be ignored), then the home folder.
pub(super) fn dir_from_env(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let var = |name| {
        var(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(own) = var("FENCEPOST_CACHE") {
        return std::path::absolute(own).ok();
    }
    let xdg = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
    xdg.filter(|dir| dir.is_absolute())
        .map(|dir| dir.join("fencepost"))
}

/// A package that an entry was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    /// The full Debian version.
    pub(super) version: String,
}

impl fmt::Display for Package {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, self.version)
    }
}

/// What an entry says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    backend: String,
    version: String,
    /// How the files came here.
    came_by: String,
    suite: String,
    packages: Vec<Package>,
    /// The server binary, relative to the entry's `files` folder.
    binary: PathBuf,
    binary_bytes: u64,
    binary_sha256: String,
}

impl Manifest {
    pub(super) fn describe(
        backend: &Backend,
        release: &Release,
        debian: &Debian,
        packages: Vec<Package>,
        binary: &Path,
    ) -> Result<Self, FetchFault> {
        let mut file = File::open(binary).map_err(FetchFault::io("read", binary))?;
        let mut hash = Sha256::new();
        let binary_bytes =
            io::copy(&mut file, &mut hash).map_err(FetchFault::io("read", binary))?;
        Ok(Manifest {
            format: FORMAT,
            backend: backend.name.into(),
            version: release.version.into(),
            came_by: "apt-get download".into(),
            suite: debian.suite.into(),
            packages,
            binary: debian.binary.into(),
            binary_bytes,
            binary_sha256: hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        })
    }

    /// The packages and their suite, in words.
    pub(super) fn origin(&self) -> String {
        let packages: Vec<_> = self.packages.iter().map(Package::to_string).collect();
        format!("Debian {}: {}", self.suite, packages.join(", "))
    }

    /// The first package and its suite, in words.
    pub(super) fn short_origin(&self) -> String {
        let first = self.packages.first().map(Package::to_string);
        format!("Debian {}: {}", self.suite, first.unwrap_or_default())
    }
}

/// A whole entry.
pub(super) struct Entry {
    pub(super) manifest: Manifest,
    /// The absolute path of the server binary.
    pub(super) binary: PathBuf,
    /// The folder of the unpacked packages.
    pub(super) files: PathBuf,
}

impl Entry {
    pub(super) fn located(
        self,
        backend: &Backend,
        release: &Release,
        launch: Launch,
        source: Source,
    ) -> Located {
        Located {
            launch,
            backend: backend.name.into(),
            version: release.version.into(),
            detail: format!(
                "{}, sha256 {}",
                self.manifest.origin(),
                self.manifest.binary_sha256
            ),
            path: self.binary,
            source,
        }
    }
}

/// The place of one version in the cache.
pub(super) struct Slot {
    backend_dir: PathBuf,
    version: String,
}

/// Held while an entry is made; released when dropped, and by the kernel when its process dies.
pub(super) struct Lock {
    _file: File,
}

impl Slot {
    pub(super) fn new(cache_dir: &Path, backend: &str, version: &str) -> Self {
        Slot {
            backend_dir: cache_dir.join(backend),
            version: version.into(),
        }
    }

    fn dir(&self) -> PathBuf {
        self.backend_dir.join(&self.version)
    }

    /// The entry, if there is a whole one.
    pub(super) fn entry(&self) -> Option<Entry> {
        let text = fs::read(self.dir().join("manifest.json")).ok()?;
        let manifest: Manifest = serde_json::from_slice(&text).ok()?;
        let files = self.dir().join("files");
        let binary = files.join(&manifest.binary);
        let whole = manifest.format == FORMAT
            && manifest.version == self.version
            && binary
                .metadata()
                .is_ok_and(|meta| meta.len() == manifest.binary_bytes);
        whole.then_some(Entry {
            manifest,
            binary,
            files,
        })
    }

    /// Takes the lock of this slot; calls `waiting` once if another process has it.
    pub(super) fn lock(&self, waiting: &dyn Fn()) -> Result<Lock, FetchFault> {
        let dir = &self.backend_dir;
        fs::create_dir_all(dir).map_err(FetchFault::io("create the cache folder", dir))?;
        // The file stays: removing it would let a third process lock a new one meanwhile.
        let path = dir.join(format!(".lock@{}", self.version));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = file.map_err(FetchFault::io("open the lock file", &path))?;
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => waiting(),
            Err(TryLockError::Error(error)) => return Err(FetchFault::io("lock", &path)(error)),
        }
        file.lock().map_err(FetchFault::io("lock", &path))?;
        Ok(Lock { _file: file })
    }

    /// Makes an empty staging folder. The lock must be held: what killed fetches left is removed.
    pub(super) fn stage(&self) -> Result<Staging, FetchFault> {
        let prefix = format!(".fetching@{}@", self.version);
        let dir = &self.backend_dir;
        for left in fs::read_dir(dir)
            .map_err(FetchFault::io("read", dir))?
            .flatten()
        {
            if left.file_name().to_string_lossy().starts_with(&prefix) {
                let path = left.path();
                fs::remove_dir_all(&path).map_err(FetchFault::io("remove", &path))?;
            }
        }
        let path = dir.join(format!("{prefix}{}", std::process::id()));
        let staging = Staging { path };
        for folder in [staging.files_dir(), staging.work_dir()] {
            fs::create_dir_all(&folder).map_err(FetchFault::io("create", &folder))?;
        }
        Ok(staging)
    }
}

/// An entry in the making. Removed when dropped.
pub(super) struct Staging {
    path: PathBuf,
}

impl Staging {
    /// For whatever is needed only while fetching.
    pub(super) fn work_dir(&self) -> PathBuf {
        self.path.join("work")
    }

    /// For the files of the entry.
    pub(super) fn files_dir(&self) -> PathBuf {
        self.path.join("entry/files")
    }

    /// Puts the entry in its place, whole and flushed.
    pub(super) fn publish(self, slot: &Slot, manifest: &Manifest) -> Result<Entry, FetchFault> {
        let (entry, place) = (self.path.join("entry"), slot.dir());
        let file = entry.join("manifest.json");
        let text = serde_json::to_vec_pretty(manifest).expect("a manifest is plain data");
        fs::write(&file, text).map_err(FetchFault::io("write", &file))?;
        flush_tree(&entry)?;
        // What `Slot::entry` did not take for whole is in the way.
        match fs::rename(&place, self.path.join("damaged")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FetchFault::io("move away", &place)(error));
            }
            _ => {}
        }
        fs::rename(&entry, &place).map_err(FetchFault::io("move the new entry to", &place))?;
        flush(&slot.backend_dir)?;
        Ok(Entry {
            binary: place.join("files").join(&manifest.binary),
            files: place.join("files"),
            manifest: manifest.clone(),
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays is removed by the next fetch of the same version.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn flush_tree(path: &Path) -> Result<(), FetchFault> {
    for child in fs::read_dir(path).map_err(FetchFault::io("read", path))? {
        let child = child.map_err(FetchFault::io("read", path))?;
        let kind = child.file_type().map_err(FetchFault::io("read", path))?;
        if kind.is_dir() {
            flush_tree(&child.path())?;
        } else if kind.is_file() {
            flush(&child.path())?;
        }
    }
    flush(path)
}

fn flush(path: &Path) -> Result<(), FetchFault> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(FetchFault::io("flush", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(vars: &[(&str, &str)]) -> Option<PathBuf> {
        dir_from_env(|name| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let all = [
            ("FENCEPOST_CACHE", "/f"),
            ("XDG_CACHE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(dir(&all), Some("/f".into()));
        assert_eq!(dir(&all[1..]), Some("/x/fencepost".into()));
        assert_eq!(dir(&all[2..]), Some("/h/.cache/fencepost".into()));
        assert_eq!(dir(&[]), None);
        assert_eq!(
            dir(&[("FENCEPOST_CACHE", ""), ("HOME", "/h")]),
            dir(&all[2..])
        );
        assert!(dir(&[("FENCEPOST_CACHE", "here")]).unwrap().is_absolute());
        assert_eq!(dir(&[("HOME", "relative")]), None);
    }
}
