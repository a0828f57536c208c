//! What can be had: one constant with every backend, its versions, and the packages they come in.
//!
//! Data and look-ups only: nothing here touches the machine. A new version is one line in its backend's
//! file, a new backend one file and one line in the constant. Versions were run by hand on Debian bookworm
//! before they were listed.

mod builtin;
mod consul;
mod etcd;
mod java;
mod redis;
mod zookeeper;

use std::fmt;

use super::ProvisionError;
use super::hint::closest;
use super::probe::{Answer, Probe};

/// A kind of server, or what servers are run with.
#[derive(Debug)]
pub struct Backend {
    /// The name that scenarios and the command line use.
    pub name: &'static str,
    /// The version taken when none is asked for.
    pub default_version: &'static str,
    /// How a binary is asked for its version; `None` when fencepost itself is the server.
    pub probe: Option<Probe>,
    /// What runs it.
    pub runtime: Runtime,
    /// The versions that can be had, oldest first.
    pub releases: &'static [Release],
}

/// What runs a server that was fetched.
#[derive(Debug)]
pub enum Runtime {
    /// The kernel: it needs no libraries beyond those that every distribution has.
    Native,
    /// The dynamic loader and the libraries of its own suite, which are among its packages.
    OwnLoader,
    /// Java, with the binary and these jars beside it as its class path.
    Java {
        /// File names; not every version has all of them.
        jars: &'static [&'static str],
    },
}

/// A version of a backend.
#[derive(Debug)]
pub struct Release {
    /// The version as the server itself reports it. With one number only, as Java's 17, every version that
    /// begins so is meant.
    pub version: &'static str,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a release comes from.
#[derive(Debug)]
pub enum Origin {
    /// It is a part of fencepost.
    Own,
    /// Debian packages.
    Debian(Debian),
}

/// The Debian packages of a release.
#[derive(Debug)]
pub struct Debian {
    /// The suite of the main archive that has it.
    pub suite: &'static str,
    /// The packages to unpack. The first carries the version; the others are taken as the suite
    /// has them.
    pub packages: &'static [&'static str],
    /// The server binary inside the unpacked packages.
    pub binary: &'static str,
}

impl fmt::Display for Debian {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Debian package {}", self.packages[0])?;
        match self.packages.len() - 1 {
            0 => {}
            1 => write!(out, " and 1 more")?,
            more => write!(out, " and {more} more")?,
        }
        write!(out, ", {}", self.suite)
    }
}

/// Every backend. `sid` moves on: its entry is matched by upstream version and may one day be
/// gone, the other suites stay as they are.
pub const BACKENDS: &[Backend] = &[
    builtin::BACKEND,
    etcd::BACKEND,
    consul::BACKEND,
    redis::BACKEND,
    zookeeper::BACKEND,
    java::BACKEND,
];

const fn plain(before: &'static str) -> Answer {
    Answer { before, prefix: "" }
}

const fn debian(
    version: &'static str,
    suite: &'static str,
    packages: &'static [&'static str],
    binary: &'static str,
) -> Release {
    Release {
        version,
        origin: Origin::Debian(Debian {
            suite,
            packages,
            binary,
        }),
    }
}

/// Looks a backend up by its name.
pub fn backend(name: &str) -> Result<&'static Backend, ProvisionError> {
    BACKENDS
        .iter()
        .find(|backend| backend.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = BACKENDS.iter().map(|backend| backend.name).collect();
            ProvisionError::UnknownBackend {
                name: name.into(),
                hint: hint(closest(name, &known)),
                known: known.join(", "),
            }
        })
}

impl Release {
    /// Whether a server that reports `version` is this release.
    pub(super) fn is(&self, version: &str) -> bool {
        let line = !self.version.contains('.');
        version == self.version
            || line
                && version
                    .split('.')
                    .next()
                    .is_some_and(|first| first == self.version)
    }

    /// Whether a package of this upstream version holds this release. Names such as `valkey-8.1.1` begin with
    /// what upstream leaves out.
    pub(super) fn is_packaged_as(&self, upstream: &str) -> bool {
        let named = self.version.find(|char: char| char.is_ascii_digit());
        let prefix = &self.version[..named.unwrap_or(0)];
        self.is(&format!("{prefix}{upstream}"))
    }
}

impl Backend {
    /// The release with exactly this version.
    pub fn release(&self, version: &str) -> Option<&Release> {
        self.releases
            .iter()
            .find(|release| release.version == version)
    }

    pub(super) fn unknown_version(&self, version: &str) -> ProvisionError {
        let known: Vec<_> = self
            .releases
            .iter()
            .map(|release| release.version)
            .collect();
        ProvisionError::UnknownVersion {
            backend: self.name,
            version: version.into(),
            hint: hint(closest(version, &known)),
            known: known.join(", "),
        }
    }
}

fn hint(closest: Option<&str>) -> String {
    closest
        .map(|name| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_is_complete_and_unlike_the_others() {
        let mut seen = BTreeSet::new();
        for backend in BACKENDS {
            assert!(
                backend.release(backend.default_version).is_some(),
                "{}",
                backend.name
            );
            for release in backend.releases {
                assert!(
                    seen.insert((backend.name, release.version)),
                    "{} twice",
                    release.version
                );
                let Origin::Debian(debian) = &release.origin else {
                    continue;
                };
                assert!(
                    backend.probe.is_some(),
                    "{}: no way to check a version",
                    backend.name
                );
                assert!(!debian.packages.is_empty() && !debian.suite.is_empty());
                assert!(
                    !debian.binary.starts_with('/'),
                    "{} must be relative",
                    debian.binary
                );
                let words = [&[debian.suite], debian.packages].concat();
                assert!(words.iter().all(|word| !word.contains(char::is_whitespace)));
            }
        }
    }

    #[test]
    fn which_versions_a_release_is() {
        let release = |name, version| backend(name).unwrap().release(version).unwrap();
        let (valkey, java) = (release("redis", "valkey-8.1.1"), release("java", "17"));
        assert!(valkey.is("valkey-8.1.1") && !valkey.is("8.1.1"));
        assert!(valkey.is_packaged_as("8.1.1") && !valkey.is_packaged_as("8.0.2"));
        assert!(java.is("17") && java.is("17.0.19") && !java.is("1.7") && !java.is("170.1"));
        assert!(java.is_packaged_as("17.0.19") && !java.is_packaged_as("21.0.1"));
        assert!(!release("etcd", "3.5.16").is("3.5.161"));
    }

    #[test]
    fn unknown_names_come_with_a_hint() {
        let error = backend("ectd").unwrap_err().to_string();
        assert!(error.contains("did you mean etcd?"), "{error}");
        let error = backend("etcd")
            .unwrap()
            .unknown_version("3.5.61")
            .to_string();
        assert!(
            error.contains("did you mean 3.5.16?") && error.contains("3.3.25"),
            "{error}"
        );
        assert!(error.contains("--binary etcd=PATH"), "{error}");
        let error = backend("postgres").unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }
}
