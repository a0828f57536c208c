//! Getting server binaries: `backend@version` in, the path of a binary that runs and says so out.
//!
//! Looked up in order: a binary the user gave, the cache, the system's `PATH` when its version is
//! exactly the one wanted, then a Debian package fetched without root. What may be fetched is one
//! constant, [`catalogue::BACKENDS`].
//!
//! This module must not start a server, must not know how a backend is run, and must never name a
//! host: packages come from the mirror that the machine itself is configured with.

mod apt;
mod cache;
pub mod catalogue;
mod complaint;
mod error;
mod found;
mod hint;
mod mirror;
mod path;
mod probe;
mod tool;
mod wanted;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use catalogue::{Backend, Debian, Origin, Release};

pub use error::{FetchFault, ProvisionError};
pub use found::{Located, Row, Source, State};
pub use hint::closest;
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
        if let Some(path) = given {
            return given_binary(backend, wanted, path);
        }
        let version = wanted.version_or_default(backend);
        let release = backend.release(version);
        if let Some(release) = release {
            if let Origin::Own = release.origin {
                return own_binary(backend, release);
            }
            if let Some(entry) = self.cached(backend, release) {
                return Ok(entry.located(backend, release, Source::Cache));
            }
        }
        if let Some(found) = self.on_path(backend) {
            if found.version == version {
                return Ok(found);
            }
            let (path, has) = (found.path.display(), &found.version);
            progress(&format!("{path} is {has}, not {version}: not used"));
        }
        match release {
            Some(release) => self.fetch_release(backend, release, progress),
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
        match (&release.origin, self.cached(backend, release)) {
            (Origin::Own, _) => own_binary(backend, release),
            (_, Some(entry)) => Ok(entry.located(backend, release, Source::Cache)),
            (_, None) => self.fetch_release(backend, release, progress),
        }
    }

    /// Every known version and where it stands on this machine, as `fencepost backends` shows it.
    /// A version that only `PATH` has gets a line too.
    pub fn list(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for backend in catalogue::BACKENDS {
            let mut on_path = self.on_path(backend);
            for release in backend.releases {
                let here = on_path.take_if(|found| found.version == release.version);
                rows.push(self.row(backend, release, here));
            }
            if let Some(found) = on_path {
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
        let (state, origin, path) = match (self.cached(backend, release), on_path) {
            (Some(entry), _) => (State::Cached, entry.manifest.origin(), Some(entry.binary)),
            (None, Some(found)) => (State::OnPath, found.detail, Some(found.path)),
            (None, None) => (State::Fetchable, debian.to_string(), None),
        };
        row_of(backend, release.version, state, origin, path)
    }

    fn cached(&self, backend: &Backend, release: &Release) -> Option<cache::Entry> {
        cache::Slot::new(self.cache_dir.as_deref()?, backend.name, release.version).entry()
    }

    /// The binary of `backend` on the search path, if there is one that reports a version.
    fn on_path(&self, backend: &Backend) -> Option<Located> {
        let probe = backend.probe.as_ref()?;
        let path = path::find(probe.program, &self.search_path)?;
        let version = probe::version_of(&path, probe).ok()?;
        Some(Located {
            backend: backend.name.into(),
            detail: format!("on PATH: {}", path.display()),
            version,
            path,
            source: Source::Path,
        })
    }

    fn fetch_release(
        &self,
        backend: &Backend,
        release: &Release,
        progress: &dyn Fn(&str),
    ) -> Result<Located, ProvisionError> {
        let Origin::Debian(debian) = &release.origin else {
            return own_binary(backend, release);
        };
        let cache_dir = self
            .cache_dir
            .as_deref()
            .ok_or(ProvisionError::NoCacheDir)?;
        let slot = cache::Slot::new(cache_dir, backend.name, release.version);
        self.fetch_debian(&slot, backend, release, debian, progress)
            .map_err(|fault| ProvisionError::fetch(backend, release, debian, fault))
    }

    fn fetch_debian(
        &self,
        slot: &cache::Slot,
        backend: &Backend,
        release: &Release,
        debian: &Debian,
        progress: &dyn Fn(&str),
    ) -> Result<Located, FetchFault> {
        let _lock = slot.lock(&|| {
            progress(&format!(
                "waiting for another fencepost that is fetching {} {} …",
                backend.name, release.version
            ));
        })?;
        // Whoever held the lock before us may have done the work.
        if let Some(entry) = slot.entry() {
            return Ok(entry.located(backend, release, Source::Cache));
        }
        progress(&format!(
            "fetching {} {} ({debian}) …",
            backend.name, release.version
        ));
        let staging = slot.stage()?;
        let tools = apt::Tools::find(&self.search_path)?;
        let keyrings = apt::keyrings(&self.keyring_dirs)?;
        let apt_root = apt::AptRoot::create(&tools, &staging.work_dir(), debian.suite, &keyrings)?;
        let packages = apt_root.fetch(debian, release.version, &staging.files_dir(), progress)?;
        let binary = staging.files_dir().join(debian.binary);
        check_fetched(backend, release, &binary)?;
        let manifest = cache::Manifest::describe(backend, release, debian, packages, &binary)?;
        let entry = staging.publish(slot, &manifest)?;
        Ok(entry.located(backend, release, Source::Fetched))
    }
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
        path,
        source: Source::Own,
        detail: OWN.into(),
    })
}

fn given_binary(
    backend: &Backend,
    wanted: &Wanted,
    path: &Path,
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
    path::check_executable(&absolute).map_err(unusable)?;
    let reported = probe::version_of(&absolute, probe).map_err(unusable)?;
    if let Some(version) = wanted
        .version
        .as_ref()
        .filter(|version| **version != reported)
    {
        return Err(ProvisionError::GivenMismatch {
            backend: backend.name,
            path: path.to_path_buf(),
            wanted: version.clone(),
            reported,
        });
    }
    Ok(Located {
        backend: backend.name.into(),
        version: reported,
        path: absolute,
        source: Source::Given,
        detail: "given with --binary".into(),
    })
}

/// A fetched binary has to run here and be what it was fetched as.
fn check_fetched(backend: &Backend, release: &Release, binary: &Path) -> Result<(), FetchFault> {
    let wrong = |problem: String| FetchFault::WrongBinary {
        path: binary.to_path_buf(),
        wanted: release.version,
        problem,
    };
    path::check_executable(binary).map_err(wrong)?;
    let Some(probe) = &backend.probe else {
        return Ok(());
    };
    let reported = probe::version_of(binary, probe).map_err(wrong)?;
    if reported != release.version {
        return Err(wrong(format!("it reports version {reported}")));
    }
    Ok(())
}
