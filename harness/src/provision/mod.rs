//! Getting server binaries: `backend@version` in, the path of a binary that runs and says so out.
//!
//! Looked up in order: a binary the user gave, the cache, the system's `PATH` when its version is
//! exactly the one wanted, then Debian packages fetched without root. What may be fetched is one
//! constant, [`catalogue::BACKENDS`]; how it is started then, [`Launch`]. A Java server comes with the Java
//! runtime that starts it.
//!
//! This module must not start a server, must not know how a backend is run, and must never name a
//! host: packages come from the mirror that the machine itself is configured with.

mod apt;
mod cache;
pub mod catalogue;
mod complaint;
mod error;
mod fetch;
mod found;
mod hint;
mod java;
mod launch;
mod links;
mod mirror;
mod path;
mod probe;
mod tool;
mod wanted;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use catalogue::{Backend, Origin, Release};

pub use error::{FetchFault, ProvisionError};
pub use found::{Located, Row, Source, State};
pub use hint::closest;
pub use launch::Launch;
pub use wanted::Wanted;

/// Said wherever the backend that needs no binary shows up.
const OWN: &str = "part of fencepost; a model, not a real server";

/// Finds and fetches server binaries. The fields are what it takes from the machine; tests set
/// them to something else.
#[derive(Clone, Debug)]
pub struct Provisioner {
    /// The cache folder; `None` when the environment names no place for one.
    pub cache_dir: Option<PathBuf>,
    /// Where server binaries and `apt-get`, `apt-cache`, `dpkg-deb` are looked for, as in `PATH`.
    pub search_path: OsString,
    /// Folders that may hold Debian's archive keyring.
    pub keyring_dirs: Vec<PathBuf>,
    /// The Java runtime that the user gave for Java servers; else one is found or fetched.
    pub java: Option<PathBuf>,
}

impl Provisioner {
    /// A provisioner for this machine: `$FENCEPOST_CACHE`, else `$XDG_CACHE_HOME/fencepost`, else
    /// `~/.cache/fencepost`; `$PATH`; the system's keyrings.
    pub fn from_env() -> Self {
        Provisioner {
            cache_dir: cache::dir_from_env(|name| std::env::var_os(name)),
            search_path: std::env::var_os("PATH")
                .unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
            keyring_dirs: vec![
                "/usr/share/keyrings".into(),
                "/etc/apt/keyrings".into(),
                "/etc/apt/trusted.gpg.d".into(),
            ],
            java: None,
        }
    }

    /// Finds the binary for `wanted`, fetching it if need be. `given` is the path of `--binary`;
    /// `progress` gets one line of text for each step that takes time.
    pub fn locate(
        &self,
        wanted: &Wanted,
        given: Option<&Path>,
        progress: &dyn Fn(&str),
    ) -> Result<Located, ProvisionError> {
        let backend = catalogue::backend(&wanted.backend)?;
        // Sought first: without it a Java server is of no use.
        let java = self.java_for(backend, progress)?;
        let java = java.as_ref();
        if let Some(path) = given {
            return given_binary(backend, wanted.version.as_deref(), path, java);
        }
        let version = wanted.version_or_default(backend);
        let release = backend.release(version);
        if let Some(release) = release {
            if let Origin::Own = release.origin {
                return own_binary(backend, release);
            }
            if let Some(found) = self.cached(backend, release, java) {
                return Ok(found);
            }
        }
        for found in self.on_path(backend) {
            if found.version == version {
                return Ok(found);
            }
            let (path, has) = (found.path.display(), &found.version);
            progress(&format!("{path} is {has}, not {version}: not used"));
        }
        match release {
            Some(release) => self.fetch_release(backend, release, java, progress),
            None => Err(backend.unknown_version(version)),
        }
    }

    /// Makes sure that `wanted` is in the cache, whatever `PATH` may have.
    pub fn fetch(
        &self,
        wanted: &Wanted,
        progress: &dyn Fn(&str),
    ) -> Result<Located, ProvisionError> {
        let backend = catalogue::backend(&wanted.backend)?;
        let version = wanted.version_or_default(backend);
        let release = (backend.release(version)).ok_or_else(|| backend.unknown_version(version))?;
        if let Origin::Own = release.origin {
            return own_binary(backend, release);
        }
        let java = self.java_for(backend, progress)?;
        match self.cached(backend, release, java.as_ref()) {
            Some(found) => Ok(found),
            None => self.fetch_release(backend, release, java.as_ref(), progress),
        }
    }

    /// Every known version and where it stands on this machine, as `fencepost backends` shows it.
    /// A version that only `PATH` has gets a line too.
    pub fn list(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for backend in catalogue::BACKENDS {
            let mut on_path = self.on_path(backend);
            for release in backend.releases {
                let here = on_path.iter().position(|found| release.is(&found.version));
                let here = here.map(|nth| on_path.swap_remove(nth));
                rows.push(self.row(backend, release, here));
            }
            for found in on_path {
                let state = State::OnPath;
                rows.push(row_of(
                    backend,
                    &found.version,
                    state,
                    found.detail,
                    Some(found.path),
                ));
            }
        }
        rows
    }

    fn row(&self, backend: &Backend, release: &Release, on_path: Option<Located>) -> Row {
        let debian = match &release.origin {
            Origin::Own => {
                let path = std::env::current_exe().ok();
                return row_of(backend, release.version, State::Own, OWN.into(), path);
            }
            Origin::Debian(debian) => debian,
        };
        let entry = self.slot(backend, release).and_then(|slot| slot.entry());
        let (state, origin, path) = match (entry, on_path) {
            (Some(entry), _) => {
                let origin = entry.manifest.short_origin();
                (State::Cached, origin, Some(entry.binary))
            }
            (None, Some(found)) => (State::OnPath, found.detail, Some(found.path)),
            (None, None) => (State::Fetchable, debian.to_string(), None),
        };
        row_of(backend, release.version, state, origin, path)
    }

    fn slot(&self, backend: &Backend, release: &Release) -> Option<cache::Slot> {
        let cache_dir = self.cache_dir.as_deref()?;
        Some(cache::Slot::new(cache_dir, backend.name, release.version))
    }

    /// What the cache has of `release`, if it is whole.
    fn cached(
        &self,
        backend: &Backend,
        release: &Release,
        java: Option<&Launch>,
    ) -> Option<Located> {
        in_slot(&self.slot(backend, release)?, backend, release, java)
    }

    /// The binaries of `backend` on the search path that report a version.
    fn on_path(&self, backend: &Backend) -> Vec<Located> {
        let Some(probe) = &backend.probe else {
            return Vec::new();
        };
        let found = probe.programs.iter().filter_map(|program| {
            let path = path::find(program, &self.search_path)?;
            let launch = Launch::of_path(backend, &path, None).ok()?;
            Some(Located {
                backend: backend.name.into(),
                version: probe::version_of(&launch, probe).ok()?,
                detail: format!("on PATH: {}", path.display()),
                launch,
                path,
                source: Source::Path,
            })
        });
        found.collect()
    }
}

/// What `slot` has of `release`, if it is whole and can be started.
fn in_slot(
    slot: &cache::Slot,
    backend: &Backend,
    release: &Release,
    java: Option<&Launch>,
) -> Option<Located> {
    let Origin::Debian(debian) = &release.origin else {
        return None;
    };
    let entry = slot.entry()?;
    let launch = Launch::of_packages(backend, debian, &entry.files, java).ok()?;
    Some(entry.located(backend, release, launch, Source::Cache))
}

/// The versions of `backend` that fencepost knows how to get, oldest first.
pub fn known_versions(backend: &str) -> Result<Vec<&'static str>, ProvisionError> {
    Ok(catalogue::backend(backend)?
        .releases
        .iter()
        .map(|release| release.version)
        .collect())
}

fn row_of(
    backend: &Backend,
    version: &str,
    state: State,
    origin: String,
    path: Option<PathBuf>,
) -> Row {
    let size_bytes = path
        .as_deref()
        .and_then(|path| path.metadata().ok())
        .map(|meta| meta.len());
    Row {
        backend: backend.name.into(),
        version: version.into(),
        state,
        origin,
        path,
        size_bytes,
    }
}

fn own_binary(backend: &Backend, release: &Release) -> Result<Located, ProvisionError> {
    let path = std::env::current_exe().map_err(|error| ProvisionError::NoOwnPath { error })?;
    Ok(Located {
        backend: backend.name.into(),
        version: release.version.into(),
        launch: Launch::direct(&path),
        path,
        source: Source::Own,
        detail: OWN.into(),
    })
}

/// The binary at `path`, which the user gave; `wanted` is the version it has to be of.
fn given_binary(
    backend: &Backend,
    wanted: Option<&str>,
    path: &Path,
    java: Option<&Launch>,
) -> Result<Located, ProvisionError> {
    let unusable = |problem: String| ProvisionError::GivenUnusable {
        backend: backend.name,
        path: path.to_path_buf(),
        problem,
    };
    let Some(probe) = &backend.probe else {
        return Err(unusable(format!(
            "{} is part of fencepost, it takes no binary",
            backend.name
        )));
    };
    // Servers are started in a sandbox with a working directory of its own.
    let absolute = std::path::absolute(path).map_err(|error| unusable(error.to_string()))?;
    let launch = Launch::of_path(backend, &absolute, java).map_err(unusable)?;
    let reported = probe::version_of(&launch, probe).map_err(unusable)?;
    if let Some(version) = wanted.filter(|version| **version != *reported) {
        return Err(ProvisionError::GivenMismatch {
            backend: backend.name,
            path: path.to_path_buf(),
            wanted: version.into(),
            reported,
        });
    }
    Ok(Located {
        backend: backend.name.into(),
        version: reported,
        launch,
        path: absolute,
        source: Source::Given,
        detail: "given with --binary".into(),
    })
}
