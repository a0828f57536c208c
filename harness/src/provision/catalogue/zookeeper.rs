//! ZooKeeper: jars, run with Java.

use super::{Backend, Release, Runtime, debian, plain};
use crate::provision::probe::Probe;

pub(super) const BACKEND: Backend = Backend {
    name: "zookeeper",
    default_version: "3.9.3",
    probe: Some(Probe {
        programs: &[],
        args: &["org.apache.zookeeper.Version", "--short"],
        answers: &[plain("")],
    }),
    runtime: Runtime::Java {
        jars: &[
            "zookeeper-jute.jar",
            "slf4j-api.jar",
            "slf4j-simple.jar",
            "metrics-core.jar",
            "snappy-java.jar",
        ],
    },
    releases: ZOOKEEPER,
};

/// The least class paths that a server of these versions runs with.
const ZOOKEEPER: &[Release] = &[
    debian(
        "3.4.13",
        "bullseye",
        &["libzookeeper-java", "libslf4j-java"],
        ZOOKEEPER_JAR,
    ),
    debian("3.8.0", "bookworm", ZOOKEEPER_PACKAGES, ZOOKEEPER_JAR),
    debian("3.9.3", "trixie", ZOOKEEPER_PACKAGES, ZOOKEEPER_JAR),
];

const ZOOKEEPER_PACKAGES: &[&str] = &[
    "libzookeeper-java",
    "libdropwizard-metrics-java",
    "libslf4j-java",
    "libsnappy-java",
];

const ZOOKEEPER_JAR: &str = "usr/share/java/zookeeper.jar";
