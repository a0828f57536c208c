//! What the user asks for: `etcd@3.5.16`, or `etcd` alone. Only the text; whether such a version
//! exists is the catalogue's business.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ProvisionError;
use super::catalogue::Backend;

/// A backend and, if the user gave one, a version of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Wanted {
    /// The backend's name, for example `etcd`.
    pub backend: String,
    /// The exact version; `None` means the backend's usual one, or whatever `--binary` reports.
    pub version: Option<String>,
}

impl Wanted {
    /// Takes a backend and a version apart from each other, as a scenario file has them.
    pub fn new(backend: &str, version: Option<&str>) -> Result<Self, ProvisionError> {
        let bad = |text: &str, problem: &str| ProvisionError::BadWanted {
            text: text.into(),
            problem: problem.into(),
        };
        let word = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text
                    .chars()
                    .all(|char| char.is_ascii_alphanumeric() || "._+~-".contains(char))
        };
        if !word(backend) {
            return Err(bad(
                backend,
                "the part before '@' is not the name of a backend",
            ));
        }
        // Versions become folder names, so nothing like `../` may pass.
        match version {
            Some(version) if !word(version) => Err(bad(
                &format!("{backend}@{version}"),
                "the part after '@' is not a version",
            )),
            _ => Ok(Wanted {
                backend: backend.into(),
                version: version.map(Into::into),
            }),
        }
    }

    /// The version asked for, else the one that `backend` is usually run with.
    pub(super) fn version_or_default<'a>(&'a self, backend: &'a Backend) -> &'a str {
        self.version.as_deref().unwrap_or(backend.default_version)
    }
}

impl FromStr for Wanted {
    type Err = ProvisionError;

    fn from_str(text: &str) -> Result<Self, ProvisionError> {
        match text.split_once('@') {
            Some((backend, version)) => Wanted::new(backend, Some(version)),
            None => Wanted::new(text, None),
        }
    }
}

impl TryFrom<String> for Wanted {
    type Error = ProvisionError;

    fn try_from(text: String) -> Result<Self, ProvisionError> {
        text.parse()
    }
}

impl From<Wanted> for String {
    fn from(wanted: Wanted) -> String {
        wanted.to_string()
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(out, "{}@{version}", self.backend),
            None => write!(out, "{}", self.backend),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_with_and_without_a_version() {
        for text in ["etcd@3.5.16", "etcd", "builtin@model", "etcd@3.6.0-rc.1"] {
            assert_eq!(text.parse::<Wanted>().unwrap().to_string(), text);
        }
        assert_eq!("etcd".parse::<Wanted>().unwrap().version, None);
    }

    #[test]
    fn what_is_no_backend_or_version_is_refused() {
        for text in [
            "",
            "@3.5.16",
            "etcd@",
            "etcd@../../bin",
            "et cd@3",
            "etcd@3@4",
            "etcd@..",
        ] {
            let error = text.parse::<Wanted>().unwrap_err().to_string();
            assert!(
                error.contains("etcd@3.5.16"),
                "no example of what was expected: {error}"
            );
        }
    }
}
