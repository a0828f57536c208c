//! etcd: a static Go program.

use super::{Backend, Release, Runtime, debian, plain};
use crate::provision::probe::Probe;

pub(super) const BACKEND: Backend = Backend {
    name: "etcd",
    default_version: "3.5.16",
    probe: Some(Probe {
        programs: &["etcd"],
        args: &["--version"],
        answers: &[plain("etcd Version: ")],
    }),
    runtime: Runtime::Native,
    releases: &[
        etcd("3.3.25", "bullseye"),
        etcd("3.4.23", "bookworm"),
        etcd("3.5.16", "trixie"),
        etcd("3.5.30", "sid"),
    ],
};

const fn etcd(version: &'static str, suite: &'static str) -> Release {
    debian(version, suite, &["etcd-server"], "usr/bin/etcd")
}
