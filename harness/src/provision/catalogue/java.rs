//! Java. Not a lock service: what ZooKeeper is run with where there is no Java.

use super::{Backend, Runtime, debian, plain};
use crate::provision::probe::Probe;

pub(super) const BACKEND: Backend = Backend {
    name: "java",
    default_version: "17",
    probe: Some(Probe {
        programs: &["java"],
        args: &["-version"],
        answers: &[plain("openjdk version "), plain("java version ")],
    }),
    runtime: Runtime::OwnLoader,
    releases: &[debian(
        "17",
        "bookworm",
        &[
            "openjdk-17-jre-headless",
            "libc6",
            "libgcc-s1",
            "libstdc++6",
            "zlib1g",
        ],
        "usr/lib/jvm/java-17-openjdk-amd64/bin/java",
    )],
};
