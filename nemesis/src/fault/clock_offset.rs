//! `clock-offset`: the target's wall clock is ahead or behind for a while, as where NTP is broken. Its
//! monotonic clock and its timeouts are as they were.
//!
//! Healing sets the wall clock right.

use std::sync::Arc;

use crate::fault::skew::{self, Course};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::mechanism::probe;
use crate::target::ALL_FORMS;
use crate::{HostControl, Need, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "clock-offset",
    summary: "puts the target's wall clock ahead or behind; its monotonic clock and timeouts \
        stay (not the kernel's own stamps, such as file times)",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check: check_by,
    layer: Layer::Clock,
    needs: &[Need::Clock],
    build: || Box::new(ClockOffset),
    probe: || vec![probe::own_clock()],
};

const BY: &str = "by";
const DIRECTION: &str = "direction";

/// How far.
pub(super) const BY_SPEC: ParamSpec = ParamSpec {
    name: BY,
    kind: ParamKind::Duration,
    default: None,
    summary: "How far the wall clock is moved.",
};
/// Which way.
pub(super) const DIRECTION_SPEC: ParamSpec = ParamSpec {
    name: DIRECTION,
    kind: ParamKind::Word(&["forwards", "backwards"]),
    default: Some("\"forwards\""),
    summary: "Which way it is moved.",
};

const PARAMS: &[ParamSpec] = &[BY_SPEC, DIRECTION_SPEC];

/// A wall clock that does not move is no fault, and one before 1970 is none.
pub(super) fn check_by(_: &Target, params: &Params) -> Result<(), String> {
    const LONGEST_NS: u64 = 10 * 366 * 86_400 * 1_000_000_000;
    match params.duration_ns(BY) {
        Some(1..=LONGEST_NS) => Ok(()),
        _ => Err("a `by` above zero and at most ten years, such as by = \"1h\"".to_owned()),
    }
}

/// How far the wall clock is to be ahead.
pub(super) fn by_ns(params: &Params) -> i64 {
    let by_ns = i64::try_from(params.duration_ns(BY).unwrap_or(0)).unwrap_or(i64::MAX);
    match params.text(DIRECTION) {
        Some("backwards") => -by_ns,
        _ => by_ns,
    }
}

/// The fault.
struct ClockOffset;

impl Fault for ClockOffset {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        skew::inject(hosts, Course::Wall(by_ns(request.params)), request)
    }
}
