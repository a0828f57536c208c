//! From one `[[fault]]` to its plan.

use nemesis::fault::Layer;
use nemesis::mechanism::nft::BEYOND_A_BRIDGE;
use nemesis::{FaultPlan, Lasts, Params, Target};

use super::{params, when};
use crate::sandbox::NetworkKind;
use crate::scenario::duration::{RangeNs, format_ns};
use crate::scenario::fault;
use crate::scenario::keys::{Kind, Table};
use crate::scenario::known::KnownFault;
use crate::scenario::node::{Node, Value};
use crate::scenario::plan::{ClusterPlan, WorkloadPlan};
use crate::scenario::read::{Context, Section};
use crate::scenario::suggest::did_you_mean;

/// Reads one `[[fault]]`. Cluster and workload are `None` when they have mistakes of their own.
pub(in crate::scenario) fn read(
    cx: &Context<'_>,
    path: String,
    node: &Node,
    cluster: Option<&ClusterPlan>,
    workload: Option<&WorkloadPlan>,
) -> Option<FaultPlan> {
    let further = params::names(cx, node);
    let section = &Section::open_with(cx, Table::Fault, path, node, &further)?;
    let kind = section
        .text("kind")
        .and_then(|name| section.cx.known.fault(&name));
    let params = kind.map(|kind| params::read(section, node, kind));
    let target = read_target(section, kind);
    let trigger = section.subsection("when").and_then(|when| {
        let trigger = when::read(&when)?;
        when::check(&when, &trigger, cluster, workload);
        Some(trigger)
    });
    let lasts = read_lasts(section);
    if let Some(kind) = kind.filter(|kind| kind.needs_lasts && section.written("lasts").is_none()) {
        let expected = format!("how long the fault {} lasts", kind.name);
        section.problem(
            "lasts",
            &expected,
            "nothing",
            Some("add lasts = \"4s\"".to_owned()),
        );
    }
    if let Some(target) = &target {
        check_target(section, "target", target, cluster, workload);
    }
    if let (Some(kind), Some(Some(params))) = (kind, &params) {
        check_network(section, kind, params, cluster);
        for (name, peer) in params::peers(kind, params) {
            check_target(section, name, &peer, cluster, workload);
        }
    }
    let (kind, target, params) = (kind?, target?, params??);
    if let Err(why) = (kind.check)(&target, &params) {
        section.problem_here(&why, "other parameters", None);
        return None;
    }
    Some(FaultPlan {
        kind: kind.name.clone(),
        target,
        trigger: trigger?,
        lasts: lasts?,
        params,
    })
}

fn read_target(section: &Section<'_>, kind: Option<&KnownFault>) -> Option<Target> {
    let text = section.text("target")?;
    let Some(target) = fault::parse(&text) else {
        let hint = did_you_mean(&text, fault::words());
        section.problem(
            "target",
            &Kind::Target.describe(),
            &format!("\"{text}\""),
            hint,
        );
        return None;
    };
    if let Some(kind) = kind.filter(|kind| !kind.targets.iter().any(|form| form == target.form())) {
        let expected = format!(
            "a target that the fault {} can hit: {}",
            kind.name,
            kind.targets.join(", ")
        );
        section.problem("target", &expected, &format!("\"{text}\""), None);
        return None;
    }
    Some(target)
}

/// Targets that cannot exist in this cluster or workload, under the key that names them.
fn check_target(
    section: &Section<'_>,
    key: &str,
    target: &Target,
    cluster: Option<&ClusterPlan>,
    workload: Option<&WorkloadPlan>,
) {
    let impossible = |why: String, hint: &str| {
        section.problem(key, &why, &format!("\"{target}\""), Some(hint.to_owned()));
    };
    let number = fault::host_number(target).unwrap_or(0);
    if let Some(nodes) = cluster.map(|cluster| cluster.nodes) {
        let helpers = cluster.map_or(0, |cluster| helpers_of(section, cluster));
        match target {
            Target::Node(_) if fault::is_helper(target) && number > helpers => {
                impossible(
                    match helpers {
                        0 => "a node; this cluster has no hosts beside its nodes".to_owned(),
                        _ => format!("one of the hosts node:s1 to node:s{helpers}"),
                    },
                    "name one that there is",
                );
            }
            Target::Node(_) if !fault::is_helper(target) && number > nodes => {
                impossible(
                    format!("one of the {nodes} nodes, node:n1 to node:n{nodes}"),
                    "name one of these, or raise cluster.nodes",
                );
            }
            Target::Follower | Target::Minority if nodes < 3 => {
                impossible(
                    format!("a target that a cluster of {nodes} has"),
                    "a single node has no followers; raise cluster.nodes to 3",
                );
            }
            _ => {}
        }
    }
    if let Some(workload) = workload {
        match target {
            Target::ClientHost(_) if number > workload.workers => {
                let workers = workload.workers;
                impossible(
                    format!("one of the {workers} client hosts, client:c1 to client:c{workers}"),
                    "name one of these, or raise workload.workers",
                );
            }
            Target::Waiter if workload.clients < 2 => {
                impossible(
                    "a target that can occur".to_owned(),
                    "with one client nobody ever waits; raise workload.clients",
                );
            }
            _ => {}
        }
    }
}

/// How many hosts the cluster has beside its nodes.
fn helpers_of(section: &Section<'_>, cluster: &ClusterPlan) -> u32 {
    let backend = section.cx.known.backend(&cluster.backend);
    backend.map_or(0, |backend| (backend.helpers)(cluster))
}

/// What a link can suffer in this network.
fn check_network(
    section: &Section<'_>,
    kind: &KnownFault,
    params: &Params,
    cluster: Option<&ClusterPlan>,
) {
    let bridged = cluster.is_some_and(|cluster| cluster.network == NetworkKind::Bridge);
    if !bridged || kind.layer != Layer::Network {
        return;
    }
    for name in params
        .0
        .keys()
        .filter(|name| BEYOND_A_BRIDGE.contains(&name.as_str()))
    {
        section.problem(
            name,
            "what a bridge can do to a link: cut it, or lose frames",
            &format!("`{name}` with cluster.network = \"bridge\""),
            Some("take cluster.network = \"switch\", which can do all of it".to_owned()),
        );
    }
}

/// Reads `lasts`. The outer `None` is a mistake, the inner one an absent key.
fn read_lasts(section: &Section<'_>) -> Option<Option<Lasts>> {
    let Some(node) = section.written("lasts") else {
        return Some(None);
    };
    if matches!(node.value, Value::Table(_)) {
        return read_gc(section, node).map(Some);
    }
    let range = section.range("lasts")?;
    if range.max_ns == 0 {
        section.problem("lasts", "a time above zero", &node.describe(), None);
        return None;
    }
    Some(Some(match range {
        RangeNs { min_ns, max_ns } if min_ns < max_ns => Lasts::Uniform { min_ns, max_ns },
        RangeNs { min_ns, .. } => Lasts::Fixed { ns: min_ns },
    }))
}

fn read_gc(section: &Section<'_>, node: &Node) -> Option<Lasts> {
    let lasts = Section::open(section.cx, Table::Lasts, section.path_of("lasts"), node)?;
    let gc = lasts.subsection("gc")?;
    let (median_ns, p99_ns) = (gc.duration_ns("median"), gc.duration_ns("p99"));
    let (median_ns, p99_ns) = (median_ns?, p99_ns?);
    if p99_ns < median_ns {
        let expected = format!(
            "a 99th percentile not below the median of {}",
            format_ns(median_ns)
        );
        gc.problem("p99", &expected, &format_ns(p99_ns), None);
        return None;
    }
    Some(Lasts::Gc { median_ns, p99_ns })
}
