//! Redis, and Valkey, which was Redis: C programs with libraries of their own suite.

use super::{Backend, Release, Runtime, debian, plain};
use crate::provision::probe::{Answer, Probe};

pub(super) const BACKEND: Backend = Backend {
    name: "redis",
    default_version: "7.0.15",
    probe: Some(Probe {
        programs: &["redis-server", "valkey-server"],
        args: &["--version"],
        answers: &[
            plain("Redis server v="),
            Answer {
                before: "Valkey server v=",
                prefix: "valkey-",
            },
        ],
    }),
    runtime: Runtime::OwnLoader,
    releases: REDIS,
};

/// `redis-server` is a link to `redis-check-rdb` of redis-tools, which goes by the name it is started with.
/// The libraries are all that the loader asks for (`ld.so --list`).
const REDIS: &[Release] = &[
    debian(
        "6.0.16",
        "bullseye",
        &[
            "redis-server",
            "redis-tools",
            "libatomic1",
            "libc6",
            "libgcc-s1",
            "libgcrypt20",
            "libgpg-error0",
            "libjemalloc2",
            "liblua5.1-0",
            "liblz4-1",
            "liblzf1",
            "liblzma5",
            "libssl1.1",
            "libstdc++6",
            "libsystemd0",
            "libzstd1",
            "lua-bitop",
            "lua-cjson",
        ],
        REDIS_SERVER,
    ),
    debian(
        "7.0.15",
        "bookworm",
        &[
            "redis-server",
            "redis-tools",
            "libatomic1",
            "libc6",
            "libcap2",
            "libgcc-s1",
            "libgcrypt20",
            "libgpg-error0",
            "libjemalloc2",
            "liblz4-1",
            "liblzf1",
            "liblzma5",
            "libssl3",
            "libstdc++6",
            "libsystemd0",
            "libzstd1",
        ],
        REDIS_SERVER,
    ),
    debian("8.0.2", "trixie", REDIS_8, REDIS_SERVER),
    debian("8.0.6", "sid", REDIS_8, REDIS_SERVER),
    debian(
        "valkey-8.1.1",
        "trixie",
        &[
            "valkey-server",
            "valkey-tools",
            "libatomic1",
            "libc6",
            "libcap2",
            "libgcc-s1",
            "libjemalloc2",
            "liblzf1",
            "libssl3t64",
            "libstdc++6",
            "libsystemd0",
            "libzstd1",
            "zlib1g",
        ],
        "usr/bin/valkey-server",
    ),
];

const REDIS_SERVER: &str = "usr/bin/redis-server";

const REDIS_8: &[&str] = &[
    "redis-server",
    "redis-tools",
    "libatomic1",
    "libc6",
    "libcap2",
    "libgcc-s1",
    "libjemalloc2",
    "liblzf1",
    "libssl3t64",
    "libstdc++6",
    "libsystemd0",
    "libzstd1",
    "zlib1g",
];
