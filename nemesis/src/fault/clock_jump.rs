//! `clock-jump`: the target's wall clock steps, once or again and again, as Jepsen's `bump` and `strobe` do.
//!
//! Healing sets the wall clock right.

use std::sync::Arc;

use crate::fault::clock_offset::{BY_SPEC, DIRECTION_SPEC, by_ns, check_by};
use crate::fault::skew::{self, Course};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::mechanism::probe;
use crate::target::ALL_FORMS;
use crate::{HostControl, Need, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "clock-jump",
    summary: "makes the target's wall clock step, once (bump) or to and fro (strobe); not \
        the kernel's own stamps, such as file times",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check,
    layer: Layer::Clock,
    needs: &[Need::Clock],
    build: || Box::new(ClockJump),
    probe: || vec![probe::own_clock()],
};

const STROBE: &str = "strobe";
/// Faster than the coarse clocks tick, nobody would see a step.
const SHORTEST_STROBE_NS: u64 = 20_000_000;

const PARAMS: &[ParamSpec] = &[
    BY_SPEC,
    DIRECTION_SPEC,
    ParamSpec {
        name: STROBE,
        kind: ParamKind::Duration,
        default: None,
        summary: "Steps back after this long, forth after as long again, and so on.",
    },
];

fn check(target: &Target, params: &Params) -> Result<(), String> {
    check_by(target, params)?;
    match params.duration_ns(STROBE) {
        Some(..SHORTEST_STROBE_NS) => Err("a `strobe` of at least 20ms".to_owned()),
        _ => Ok(()),
    }
}

/// The fault.
struct ClockJump;

impl Fault for ClockJump {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let by_ns = by_ns(request.params);
        let course = match request.params.duration_ns(STROBE) {
            Some(every_ns) => Course::Strobe { by_ns, every_ns },
            None => Course::Wall(by_ns),
        };
        skew::inject(hosts, course, request)
    }
}
