//! Reading the complaints of apt and dpkg-deb: which fault is behind a failed step. Pure text.
//!
//! apt's exit status is 100 for everything, so its words (in the C locale) are all there is. What
//! is not recognised stays [`FetchFault::Apt`], with the words quoted.

use std::path::Path;

use super::error::FetchFault;
use super::tool::Ran;

/// A step of a fetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `apt-get update`
    Update,
    /// `apt-get download`
    Download,
    /// `dpkg-deb -x`
    Unpack,
}

/// What apt's methods say when the mirror does not answer.
const UNREACHABLE: &[&str] = &[
    "Could not resolve",
    "Temporary failure resolving",
    "Could not connect",
    "Cannot initiate the connection",
    "Unable to connect",
    "Connection failed",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
];

fn is_disk_full(text: &str) -> bool {
    [
        "No space left on device",
        "enough free space",
        "Disk quota exceeded",
    ]
    .iter()
    .any(|words| text.contains(words))
}

/// The fault behind a failed `step` of fetching from `suite`, with its files in `dir`.
pub(super) fn fault(ran: &Ran, step: Step, suite: &str, dir: &Path) -> FetchFault {
    let says = |any: &[&str]| any.iter().any(|words| ran.all.contains(words));
    let (suite, tail) = (suite.to_string(), ran.tail());
    if let Some(said) = ran.all.lines().find(|line| is_disk_full(line)) {
        let (path, said) = (dir.to_path_buf(), said.trim().into());
        return FetchFault::DiskFull { path, said };
    }
    if step == Step::Unpack {
        return FetchFault::BrokenDownload {
            by: "dpkg-deb",
            tail,
        };
    }
    if says(UNVERIFIED) {
        FetchFault::KeyRefused { suite, tail }
    } else if says(UNREACHABLE) {
        // Asked before the absent suite: apt says "does not have a Release file" of these, too.
        FetchFault::NoNetwork { tail }
    } else if says(BROKEN) {
        FetchFault::BrokenDownload {
            by: "apt-get",
            tail,
        }
    } else if step == Step::Update && says(ABSENT) {
        FetchFault::SuiteAbsent { suite, tail }
    } else {
        let step = if step == Step::Update {
            "`apt-get update`"
        } else {
            "`apt-get download`"
        };
        FetchFault::Apt { step, tail }
    }
}

/// What apt says of a suite that it cannot verify.
const UNVERIFIED: &[&str] = &[
    "NO_PUBKEY",
    "EXPKEYSIG",
    "REVKEYSIG",
    "Missing key",
    "is not signed",
];

/// What apt says of files that are not what the index promised.
const BROKEN: &[&str] = &[
    "Hash Sum mismatch",
    "unexpected size",
    "Clearsigned file isn't valid",
];

/// What apt says of a suite that the mirror does not carry.
const ABSENT: &[&str] = &[
    "does not have a Release file",
    "no longer has a Release file",
    "404  Not Found",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(words: &str, step: Step) -> FetchFault {
        let ran = Ran {
            succeeded: false,
            stdout: String::new(),
            all: words.into(),
        };
        fault(&ran, step, "sid", Path::new("/cache"))
    }

    #[test]
    fn each_complaint_has_its_fault() {
        use FetchFault::*;
        let of = |words| fault_of(words, Step::Update);
        let full = of("Err:1 x\nE: Write error - write (28: No space left on device)");
        assert!(matches!(full, DiskFull { said, .. } if said.starts_with("E: Write error")));
        let unsigned = "W: GPG error: the public key is not available: NO_PUBKEY 0E98\n\
                        E: The repository 'x sid InRelease' is not signed.";
        assert!(matches!(of(unsigned), KeyRefused { .. }));
        let offline = "E: The repository 'x sid Release' does not have a Release file.\n\
                       W: Temporary failure resolving 'x'";
        assert!(matches!(of(offline), NoNetwork { .. }));
        let absent = "E: The repository 'x sid Release' does not have a Release file.";
        assert!(matches!(of(absent), SuiteAbsent { .. }));
        assert!(matches!(
            of("E: File has unexpected size (1 != 2)"),
            BrokenDownload { .. }
        ));
        let locked = of("E: Could not get lock");
        assert!(matches!(locked, Apt { step: "`apt-get update`", tail } if tail.contains("lock")));
    }

    #[test]
    fn a_file_that_is_not_there_is_no_absent_suite() {
        let gone = "E: Failed to fetch x.deb  404  Not Found";
        assert!(matches!(
            fault_of(gone, Step::Update),
            FetchFault::SuiteAbsent { .. }
        ));
        assert!(matches!(
            fault_of(gone, Step::Download),
            FetchFault::Apt { .. }
        ));
        let by = fault_of("dpkg-deb: error: unexpected end of file", Step::Unpack);
        assert!(matches!(
            by,
            FetchFault::BrokenDownload { by: "dpkg-deb", .. }
        ));
    }
}
