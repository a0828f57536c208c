//! `partition`: some hosts do not hear each other for a while, one way or both, steadily or on and off.
//!
//! Clients are hosts of the network too: the holder can be cut off from its server, or from all. Shapes
//! over nodes (`halves`, `ring` …) leave the clients' links whole. The receipt counts the frames that were
//! dropped; a partition that nobody ran into is not proven. Only rules are decided here; the network
//! carries them out.

use std::sync::Arc;

use super::shape::{self, Way};
use super::standing::{Plan, Standing, names, opposite};
use crate::fault::{Fault, FaultError, FaultSpec, InForce, Layer, Request};
use crate::mechanism::switch::{self, Effect};
use crate::peers::Peers;
use crate::receipt::ms;
use crate::target::{ALL_FORMS, NODE_FORMS};
use crate::{HostControl, ParamKind, ParamSpec, Params, Target};

/// The registry's entry.
pub const SPEC: FaultSpec = FaultSpec {
    name: "partition",
    summary: "cuts links: whoever is on the other side hears nothing, and no connection is closed",
    targets: ALL_FORMS,
    needs_lasts: false,
    params: PARAMS,
    check,
    layer: Layer::Network,
    needs: &[],
    build: || Box::new(Partition),
    probe: || vec![switch::probe()],
};

const SHAPE: &str = "shape";
const FROM: &str = "from";
const WAY: &str = "way";
const FLAP: &str = "flap";
/// Also of `link`.
pub(super) const PORT: &str = "port";

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: SHAPE,
        kind: ParamKind::Word(&["isolate", "halves", "majority-minority", "ring", "bridge"]),
        default: Some("\"isolate\""),
        summary: "Who is cut off from whom: the target from the hosts in `from`; half of the nodes from the \
            other half; a minority that the target is in from the majority; every node so that it hears a \
            majority, but each another one; or two halves that only the target hears both of.",
    },
    ParamSpec {
        name: FROM,
        kind: ParamKind::Peers,
        default: Some("\"everyone\""),
        summary: "With shape = \"isolate\": whom the target is cut off from.",
    },
    ParamSpec {
        name: WAY,
        kind: ParamKind::Word(Way::NAMES),
        default: Some("\"both\""),
        summary: "Whether the target neither hears nor is heard, is not heard (out), or does not hear (in).",
    },
    ParamSpec {
        name: FLAP,
        kind: ParamKind::Duration,
        default: None,
        summary: "Cut for so long, then whole for so long, and again.",
    },
    ParamSpec {
        name: PORT,
        kind: ParamKind::Text,
        default: None,
        summary: "Cuts only TCP and UDP packets from or to this port.",
    },
];

fn check(target: &Target, params: &Params) -> Result<(), String> {
    port(params)?;
    let shape = params.text(SHAPE).unwrap_or("isolate");
    let from = peers(params, FROM)?;
    let way = Way::find(params.text(WAY));
    if params.duration_ns(FLAP) == Some(0) {
        return Err("a `flap` above zero".to_owned());
    }
    if shape != "isolate" {
        if target.is_client() {
            return Err(format!(
                "a target that is a node ({}) beside shape = \"{shape}\", which splits the nodes",
                NODE_FORMS.join(", ")
            ));
        }
        if from != Peers::Everyone {
            return Err(format!(
                "no `from` beside shape = \"{shape}\", which itself says who is cut off from whom"
            ));
        }
        if matches!(shape, "ring" | "bridge") && way != Way::Both {
            return Err(format!("way = \"both\" beside shape = \"{shape}\""));
        }
    }
    check_peers(target, &from, FROM)
}

/// What was expected of the other end of a fault's links, if it cannot be what it is.
pub(super) fn check_peers(target: &Target, peers: &Peers, key: &str) -> Result<(), String> {
    match peers {
        Peers::ItsNode if !target.is_client() => Err(format!(
            "a client as the target (holder, waiter, client, clients, client:NAME) beside {key} = \"its-node\""
        )),
        Peers::Only(other) if other == target && named(target) => Err(format!(
            "two different hosts as `target` and `{key}`: a host has no link to itself"
        )),
        _ => Ok(()),
    }
}

fn named(target: &Target) -> bool {
    matches!(
        target,
        Target::Node(_) | Target::ClientHost(_) | Target::Leader | Target::All | Target::Clients
    )
}

/// The parameter that says who is at the other end.
pub(super) fn peers(params: &Params, key: &str) -> Result<Peers, String> {
    let text = params.text(key).unwrap_or("everyone");
    text.parse()
        .map_err(|_| format!("`{key}`: {}", crate::peers::SYNTAX))
}

/// The parameter that selects the traffic.
pub(super) fn port(params: &Params) -> Result<Option<u16>, String> {
    let Some(text) = params.text(PORT) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(port @ 1..) => Ok(Some(port)),
        _ => Err(format!(
            "`{PORT}` to be a TCP or UDP port from 1 to 65535 (it is \"{text}\")"
        )),
    }
}

/// The fault.
struct Partition;

impl Fault for Partition {
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
        let params = request.params;
        let (links, mut what) = cut_links(&targets, request)?;
        let port = port(params).map_err(refused)?;
        if let Some(port) = port {
            what.push_str(&format!(", port {port} only"));
        }
        let flap_ns = params.duration_ns(FLAP);
        if let Some(flap_ns) = flap_ns {
            what.push_str(&format!(", on and off every {} ms", ms(flap_ns)));
        }
        let plan = Plan {
            links,
            port,
            effect: Effect {
                cut: true,
                flap_ns,
                ..Effect::default()
            },
            what,
        };
        Standing::install(plan, hosts, request)
    }
}

/// The links to cut, and that in words.
fn cut_links(
    targets: &[String],
    request: &Request<'_>,
) -> Result<(Vec<shape::Link>, String), FaultError> {
    let params = request.params;
    let way = Way::find(params.text(WAY));
    let names = targets.join(" ");
    let refused = |what: String| FaultError::Refused {
        host: names.clone(),
        what: format!("expected {what}"),
    };
    let shape = params.text(SHAPE).unwrap_or("isolate");
    if shape == "isolate" {
        let from = peers(params, FROM).map_err(refused)?;
        let mut links = Vec::new();
        for (group, others) in opposite(&from, targets, request)? {
            links.extend(shape::between(&group, &others, way));
        }
        return Ok((
            links,
            format!("{names} cut off from {from} {}", way.words()),
        ));
    }
    let roster = request.world.roster();
    let anchor = targets
        .iter()
        .find(|target| roster.nodes.contains(target))
        .ok_or_else(|| refused(format!("a node as the target of shape = \"{shape}\"")))?;
    let (nodes, pick) = (roster.nodes.len(), request.pick);
    let links = match shape {
        "halves" => shape::split(&roster, anchor, shape::half(nodes, pick), way, pick),
        "majority-minority" => shape::split(&roster, anchor, shape::minority(nodes), way, pick),
        "ring" => shape::ring(&roster, anchor, pick),
        _ => shape::bridge(&roster, anchor, pick),
    };
    Ok((
        links,
        format!(
            "nodes cut in the shape {shape} around {anchor} {}",
            way.words()
        ),
    ))
}
