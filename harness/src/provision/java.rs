//! The Java runtime that Java servers are started with: given, found on `PATH`, or fetched.

use std::ops::RangeInclusive;

use super::catalogue::{self, Backend, Runtime};
use super::{Launch, Located, ProvisionError, Provisioner, Wanted, given_binary};

/// The feature versions that ZooKeeper runs on: it is compiled for Java 8, and from 24 on there is no
/// security manager (JEP 486), which releases up to 3.9 touch. 21 is the newest that they were made for.
const SUPPORTED: RangeInclusive<u32> = 8..=21;

impl Provisioner {
    /// What starts `backend`, if it is a Java server.
    pub(super) fn java_for(
        &self,
        backend: &Backend,
        progress: &dyn Fn(&str),
    ) -> Result<Option<Launch>, ProvisionError> {
        let Runtime::Java { .. } = backend.runtime else {
            return Ok(None);
        };
        let java = catalogue::backend("java")?;
        if let Some(path) = &self.java {
            let given = given_binary(java, None, path, None)?;
            if !is_supported(&given) {
                return Err(ProvisionError::GivenUnusable {
                    backend: java.name,
                    path: path.clone(),
                    problem: format!("expected Java {}, found {}", range(), given.version),
                });
            }
            return Ok(Some(given.launch));
        }
        let found = match self.on_path(java).pop() {
            Some(found) if is_supported(&found) => return Ok(Some(found.launch)),
            Some(found) => format!("{} is Java {}", found.path.display(), found.version),
            None => "there is none on PATH".to_owned(),
        };
        let wanted = Wanted::new(java.name, None)?;
        match self.fetch(&wanted, progress) {
            Ok(fetched) => Ok(Some(fetched.launch)),
            Err(error) => Err(ProvisionError::NoJava {
                backend: backend.name,
                expected: range(),
                found,
                error: Box::new(error),
            }),
        }
    }
}

fn is_supported(java: &Located) -> bool {
    feature(&java.version).is_some_and(|feature| SUPPORTED.contains(&feature))
}

/// The feature version: 8 of `1.8.0_392`, 17 of `17.0.15` (JEP 223).
fn feature(version: &str) -> Option<u32> {
    let version = version.strip_prefix("1.").unwrap_or(version);
    let digits = version.split(|char: char| !char.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn range() -> String {
    format!("{} to {}", SUPPORTED.start(), SUPPORTED.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_versions() {
        for (version, expected) in [
            ("1.8.0_392", Some(8)),
            ("11.0.24", Some(11)),
            ("17.0.15", Some(17)),
            ("21", Some(21)),
            ("25-ea", Some(25)),
            ("", None),
        ] {
            assert_eq!(feature(version), expected, "{version}");
        }
    }
}
