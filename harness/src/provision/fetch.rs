//! Fetching one release into the cache: packages down, unpacked, tried, and only then published.

use std::path::Path;

use super::catalogue::{Backend, Debian, Origin, Release, Runtime};
use super::{
    FetchFault, Launch, Located, ProvisionError, Provisioner, Source, apt, cache, in_slot, links,
    own_binary, probe,
};

impl Provisioner {
    pub(super) fn fetch_release(
        &self,
        backend: &Backend,
        release: &Release,
        java: Option<&Launch>,
        progress: &dyn Fn(&str),
    ) -> Result<Located, ProvisionError> {
        let Origin::Debian(debian) = &release.origin else {
            return own_binary(backend, release);
        };
        let slot = self.slot(backend, release);
        let slot = slot.ok_or(ProvisionError::NoCacheDir)?;
        let fetch = Fetch {
            backend,
            release,
            debian,
            java,
        };
        self.fetch_debian(&slot, &fetch, progress)
            .map_err(|fault| ProvisionError::fetch(backend, release, debian, fault))
    }

    fn fetch_debian(
        &self,
        slot: &cache::Slot,
        fetch: &Fetch<'_>,
        progress: &dyn Fn(&str),
    ) -> Result<Located, FetchFault> {
        let Fetch {
            backend,
            release,
            debian,
            java,
        } = *fetch;
        let _lock = slot.lock(&|| {
            progress(&format!(
                "waiting for another fencepost that is fetching {} {} …",
                backend.name, release.version
            ));
        })?;
        // Whoever held the lock before us may have done the work.
        if let Some(found) = in_slot(slot, backend, release, java) {
            return Ok(found);
        }
        progress(&format!(
            "fetching {} {} ({debian}) …",
            backend.name, release.version
        ));
        let staging = slot.stage()?;
        let tools = apt::Tools::find(&self.search_path)?;
        let keyrings = apt::keyrings(&self.keyring_dirs)?;
        let apt_root = apt::AptRoot::create(&tools, &staging.work_dir(), debian.suite, &keyrings)?;
        let files = staging.files_dir();
        let packages = apt_root.fetch(debian, release, &files, progress)?;
        links::keep_inside(&files)?;
        self.check_fetched(fetch, &files)?;
        let binary = files.join(debian.binary);
        let manifest = cache::Manifest::describe(backend, release, debian, packages, &binary)?;
        let entry = staging.publish(slot, &manifest)?;
        let launch = Launch::of_packages(backend, debian, &entry.files, java)
            .map_err(|problem| fetch.wrong(&entry.binary, problem))?;
        Ok(entry.located(backend, release, launch, Source::Fetched))
    }

    /// A fetched binary has to run here, with nothing but its own libraries, and be what it was fetched as.
    fn check_fetched(&self, fetch: &Fetch<'_>, files: &Path) -> Result<(), FetchFault> {
        let binary = files.join(fetch.debian.binary);
        let wrong = |problem| fetch.wrong(&binary, problem);
        let launch = Launch::of_packages(fetch.backend, fetch.debian, files, fetch.java);
        let launch = launch.map_err(wrong)?;
        if let Runtime::OwnLoader = fetch.backend.runtime {
            launch.stranger(files, &self.search_path).map_err(wrong)?;
        }
        let Some(probe) = &fetch.backend.probe else {
            return Ok(());
        };
        let reported = probe::version_of(&launch, probe).map_err(wrong)?;
        if !fetch.release.is(&reported) {
            return Err(wrong(format!("it reports version {reported}")));
        }
        Ok(())
    }
}

/// What is to be fetched, and the Java runtime if that is what starts it.
#[derive(Clone, Copy)]
struct Fetch<'a> {
    backend: &'a Backend,
    release: &'a Release,
    debian: &'a Debian,
    java: Option<&'a Launch>,
}

impl Fetch<'_> {
    fn wrong(&self, binary: &Path, problem: String) -> FetchFault {
        FetchFault::WrongBinary {
            path: binary.to_path_buf(),
            wanted: self.release.version,
            problem,
        }
    }
}
