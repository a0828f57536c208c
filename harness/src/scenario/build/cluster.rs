//! From `[cluster]` to its plan.

use crate::sandbox::NetworkKind;
use crate::scenario::duration::format_ms;
use crate::scenario::keys::one_of;
use crate::scenario::known::KnownBackend;
use crate::scenario::plan::{ClusterPlan, Tuning};
use crate::scenario::read::Section;
use crate::scenario::suggest::did_you_mean;

use super::options;

/// Reads `[cluster]`.
pub(in crate::scenario) fn read(section: &Section<'_>) -> Option<ClusterPlan> {
    let tuning = match section.written("tuning") {
        None => Some(Tuning::default()),
        Some(_) => section
            .subsection("tuning")
            .map(|tuning| read_tuning(&tuning)),
    };
    let nodes = section.integer_u32("nodes");
    let version = section.text("version");
    let network = section
        .text("network")
        .and_then(|name| NetworkKind::find(&name));
    let bug = section.text("bug");
    let ready_timeout_ms = section.duration_ms("ready_timeout");
    let backend = section.cx.known.backend(&section.text("backend")?)?;
    let version = check_version(section, backend, version);
    let nodes = nodes.filter(|nodes| check_nodes(section, backend, *nodes));
    check_bug(section, backend, bug.as_deref());
    let options = options::read(section, backend.options);
    let plan = ClusterPlan {
        backend: backend.name.clone(),
        version: version?,
        nodes: nodes?,
        network: network?,
        bug,
        ready_timeout_ms: ready_timeout_ms?,
        tuning: tuning?,
        options: options?,
    };
    if let Err(expected) = (backend.check)(&plan) {
        section.problem_here(&expected, "other settings", None);
        return None;
    }
    Some(plan)
}

fn read_tuning(section: &Section<'_>) -> Tuning {
    let tuning = Tuning {
        heartbeat_ms: section.duration_ms("heartbeat"),
        election_ms: section.duration_ms("election"),
    };
    if let Tuning {
        heartbeat_ms: Some(heartbeat_ms),
        election_ms: Some(election_ms),
    } = tuning
        && election_ms <= heartbeat_ms
    {
        let expected = format!(
            "an election timeout longer than the heartbeat of {}",
            format_ms(heartbeat_ms)
        );
        let hint = "several heartbeats must fit in, or followers stand for election all the time"
            .to_owned();
        section.problem("election", &expected, &format_ms(election_ms), Some(hint));
    }
    tuning
}

fn check_version(
    section: &Section<'_>,
    backend: &KnownBackend,
    version: Option<String>,
) -> Option<String> {
    let Some(version) = version else {
        // Present but unreadable has been reported; absent means the default.
        return section
            .written("version")
            .is_none()
            .then(|| backend.default_version.clone());
    };
    if backend.versions.contains(&version) {
        return Some(version);
    }
    let expected = format!(
        "a known version of {}: {}",
        backend.name,
        backend.versions.join(", ")
    );
    let hint = did_you_mean(&version, backend.versions.iter().map(String::as_str));
    section.problem("version", &expected, &format!("\"{version}\""), hint);
    None
}

fn check_nodes(section: &Section<'_>, backend: &KnownBackend, nodes: u32) -> bool {
    let allowed = backend.nodes.contains(&nodes);
    if !allowed {
        let sizes: Vec<String> = backend.nodes.iter().map(u32::to_string).collect();
        let expected = format!(
            "a cluster size that {} can run in: {}",
            backend.name,
            one_of(&sizes)
        );
        section.problem("nodes", &expected, &nodes.to_string(), None);
    }
    allowed
}

fn check_bug(section: &Section<'_>, backend: &KnownBackend, bug: Option<&str>) {
    let Some(bug) = bug else { return };
    if backend.bugs.iter().any(|known| known == bug) {
        return;
    }
    let found = format!("\"{bug}\"");
    if backend.bugs.is_empty() {
        let models: Vec<&str> = section
            .cx
            .known
            .backends
            .iter()
            .filter(|other| !other.bugs.is_empty())
            .map(|other| other.name.as_str())
            .collect();
        let hint = format!("backends with bugs to switch on: {}", models.join(", "));
        section.problem(
            "bug",
            &format!(
                "no bug: {} is a real server and has none to switch on",
                backend.name
            ),
            &found,
            Some(hint),
        );
    } else {
        let expected = format!("a bug of {}: {}", backend.name, backend.bugs.join(", "));
        section.problem(
            "bug",
            &expected,
            &found,
            did_you_mean(bug, backend.bugs.iter().map(String::as_str)),
        );
    }
}
