//! Consul: a static Go program.

use super::{Backend, Runtime, debian, plain};
use crate::provision::probe::Probe;

pub(super) const BACKEND: Backend = Backend {
    name: "consul",
    default_version: "1.8.7",
    probe: Some(Probe {
        programs: &["consul"],
        args: &["version"],
        answers: &[plain("Consul v")],
    }),
    runtime: Runtime::Native,
    releases: &[debian("1.8.7", "bullseye", &["consul"], "usr/bin/consul")],
};
