//! The models, which fencepost itself serves.

use super::{Backend, Origin, Release, Runtime};

pub(super) const BACKEND: Backend = Backend {
    name: "builtin",
    default_version: "model",
    probe: None,
    runtime: Runtime::Native,
    releases: &[Release {
        version: "model",
        origin: Origin::Own,
    }],
};
