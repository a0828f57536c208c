//! What can be had: one constant with every backend, its versions, and the packages they come in.
//!
//! Data and look-ups only: nothing here touches the machine. A new version is one line, a new
//! backend one entry. Versions were run by hand on Debian bookworm before they were listed.

use std::fmt;

use super::ProvisionError;
use super::hint::closest;
use super::probe::Probe;

/// A kind of server.
#[derive(Debug)]
pub struct Backend {
    /// The name that scenarios and the command line use.
    pub name: &'static str,
    /// The version taken when none is asked for.
    pub default_version: &'static str,
    /// How a binary is asked for its version; `None` when fencepost itself is the server.
    pub probe: Option<Probe>,
    /// The versions that can be had, oldest first.
    pub releases: &'static [Release],
}

/// A version of a backend.
#[derive(Debug)]
pub struct Release {
    /// The version as the server itself reports it.
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
        let plural = if self.packages.len() == 1 { "" } else { "s" };
        write!(
            out,
            "Debian package{plural} {}, {}",
            self.packages.join(" "),
            self.suite
        )
    }
}

/// Every backend. `sid` moves on: its entry is matched by upstream version and may one day be
/// gone, the other suites stay as they are.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "builtin",
        default_version: "model",
        probe: None,
        releases: &[Release {
            version: "model",
            origin: Origin::Own,
        }],
    },
    Backend {
        name: "etcd",
        default_version: "3.5.16",
        probe: Some(Probe {
            program: "etcd",
            args: &["--version"],
            before: "etcd Version: ",
        }),
        releases: &[
            etcd("3.3.25", "bullseye"),
            etcd("3.4.23", "bookworm"),
            etcd("3.5.16", "trixie"),
            etcd("3.5.30", "sid"),
        ],
    },
    Backend {
        name: "consul",
        default_version: "1.8.7",
        probe: Some(Probe {
            program: "consul",
            args: &["version"],
            before: "Consul v",
        }),
        releases: &[debian("1.8.7", "bullseye", &["consul"], "usr/bin/consul")],
    },
];

const fn etcd(version: &'static str, suite: &'static str) -> Release {
    debian(version, suite, &["etcd-server"], "usr/bin/etcd")
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
