//! `link`: what some hosts send each other is late, lost, doubled, out of order, damaged or throttled.
//!
//! The receipt counts the frames that each effect struck and how late the delayed ones were sent on; an
//! effect that struck no frame is not proven. Which frames are struck is drawn from the seed by link and
//! count of frames.

use std::sync::Arc;

use super::partition::{PORT, check_peers, peers, port};
use super::shape::{self, Way};
use super::standing::{Plan, Standing, names, opposite};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::link_receipt::effect_words;
use crate::mechanism::switch::{self, Effect};
use crate::target::ALL_FORMS;
use crate::{HostControl, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "link",
    summary: "makes links slow, lossy or damaging: delay, jitter, loss, duplicates, disorder, corruption, rate",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check,
    layer: Layer::Network,
    needs: &[],
    build: || Box::new(Link),
    probe: || vec![switch::probe()],
};

const WITH: &str = "with";
const WAY: &str = "way";

const fn param(name: &'static str, kind: ParamKind, summary: &'static str) -> ParamSpec {
    ParamSpec {
        name,
        kind,
        default: None,
        summary,
    }
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: WITH,
        kind: ParamKind::Peers,
        default: Some("\"everyone\""),
        summary: "The hosts at the other end of the target's links.",
    },
    ParamSpec {
        name: WAY,
        kind: ParamKind::Word(Way::NAMES),
        default: Some("\"both\""),
        summary: "Whether it strikes both directions, what the target sends (out), or what it receives (in).",
    },
    param(
        PORT,
        ParamKind::Text,
        "Strikes only TCP and UDP packets from or to this port.",
    ),
    param(
        "delay",
        ParamKind::Duration,
        "Every frame arrives so much later.",
    ),
    param(
        "jitter",
        ParamKind::Duration,
        "The delay differs by up to this, uniformly; frames overtake each other then. At most `delay`.",
    ),
    param("loss", ParamKind::Share, "Share of frames that are lost."),
    param(
        "duplicate",
        ParamKind::Share,
        "Share of frames that arrive twice.",
    ),
    param(
        "reorder",
        ParamKind::Share,
        "Share of frames that are not delayed and so overtake others. Needs `delay`.",
    ),
    param(
        "corrupt",
        ParamKind::Share,
        "Share of frames with one bit flipped, which checksums then catch.",
    ),
    param(
        "rate",
        ParamKind::Rate,
        "Most bytes a second in each direction; up to 250 ms of them wait, the rest is lost.",
    ),
    param(
        "cut",
        ParamKind::Flag,
        "No frame arrives. Goes with none of the others.",
    ),
];

fn effect(params: &Params) -> Effect {
    let share = |name| params.share(name).unwrap_or(0.0);
    Effect {
        cut: params.flag("cut"),
        flap_ns: None,
        delay_ns: params.duration_ns("delay").unwrap_or(0),
        jitter_ns: params.duration_ns("jitter").unwrap_or(0),
        loss: share("loss"),
        duplicate: share("duplicate"),
        reorder: share("reorder"),
        corrupt: share("corrupt"),
        bytes_per_s: params.bytes_per_s("rate"),
    }
}

fn check(target: &Target, params: &Params) -> Result<(), String> {
    port(params)?;
    check_peers(target, &peers(params, WITH)?, WITH)?;
    effect(params).check().map_err(|error| {
        let text = error.to_string();
        // The caller has written "expected".
        text.strip_prefix("expected ").unwrap_or(&text).to_owned()
    })
}

/// The fault.
struct Link;

impl Fault for Link {
    fn inject(
        &self,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let targets = names(hosts);
        let refused = |what: String| FaultError::Refused {
            host: targets.join(" "),
            what: format!("expected {what}"),
        };
        let with = peers(request.params, WITH).map_err(refused)?;
        let way = Way::find(request.params.text(WAY));
        let port = port(request.params).map_err(refused)?;
        let effect = effect(request.params);
        let mut links = Vec::new();
        for (group, others) in opposite(&with, &targets, request)? {
            links.extend(shape::between(&group, &others, way));
        }
        let only = port.map_or(String::new(), |port| format!(", port {port} only"));
        let what = format!(
            "links of {} with {with} {}{only}: {}",
            targets.join(" "),
            way.words(),
            effect_words(&effect)
        );
        let plan = Plan {
            links,
            port,
            effect,
            what,
        };
        Standing::install(plan, hosts, request)
    }
}
