//! From `[workload]` to its plan.

use crate::scenario::duration::format_ms;
use crate::scenario::keys::one_of;
use crate::scenario::known::{KnownLock, KnownResource, KnownWorkload};
use crate::scenario::plan::{ClusterPlan, WorkloadPlan};
use crate::scenario::read::Section;

use super::options;
use workloads::discipline::Discipline;
use workloads::lock::LockAsk;
use workloads::resource::memory::store::TokenPolicy;

/// Processes that clients are spread over when the scenario does not say.
const DEFAULT_WORKERS: u32 = 8;

/// Reads `[workload]`. The cluster is `None` when it has mistakes of its own.
pub(in crate::scenario) fn read(
    section: &Section<'_>,
    cluster: Option<&ClusterPlan>,
) -> Option<WorkloadPlan> {
    // Every value is read before the first `?`, so that each mistake is reported.
    let known = section.cx.known;
    let kind = section.text("kind").and_then(|name| known.workload(&name));
    let lock = section.text("lock").and_then(|name| known.lock(&name));
    let resource = section
        .text("resource")
        .and_then(|name| known.resource(&name));
    let clients = section.integer_u32("clients");
    let workers = read_workers(section, clients);
    let locks = section.integer_u32("locks");
    let ttl_ms = section.duration_ms("ttl");
    let (hold, think) = (section.range("hold"), section.range("think"));
    let duration_ns = section.duration_ns("duration");
    let discipline = section
        .text("discipline")
        .and_then(|word| Discipline::find(&word));
    let tokens = read_tokens(section, discipline);
    let keep_alive = section.bool("keep_alive");
    let acquire_timeout_ns = section.duration_ns("acquire_timeout");
    let request_timeout_ns = section.duration_ns("request_timeout");
    let min_terms = section.integer("min_terms");
    let rate_per_s = section.number("rate");

    check_resource(section, kind, resource, cluster);
    check_lock(section, lock, discipline, cluster);
    check_discipline(section, kind, resource, discipline, tokens);
    check_ttl(section, ttl_ms, cluster);
    // Without its lock, nothing is known about the options.
    let options = lock.map(|lock| options::read(section, lock.options));
    if let (
        Some(lock),
        Some(Some(options)),
        Some(ttl_ms),
        Some(keep_alive),
        Some(discipline),
        Some(cluster),
    ) = (lock, &options, ttl_ms, keep_alive, discipline, cluster)
        && lock.backend == cluster.backend
    {
        let ask = LockAsk {
            nodes: cluster.nodes,
            ttl_ms,
            keep_alive,
            discipline,
            options,
            cluster: &cluster.options,
        };
        if let Err(expected) = (lock.check)(&ask) {
            section.problem("lock", &expected, "other settings", None);
            return None;
        }
    }
    Some(WorkloadPlan {
        kind: kind?.name.clone(),
        lock: lock?.name.clone(),
        resource: resource.map(|resource| resource.name.clone()),
        clients: clients?,
        workers: workers?,
        locks: locks?,
        ttl_ms: ttl_ms?,
        hold: hold?,
        think: think?,
        duration_ns: duration_ns?,
        discipline: discipline?,
        tokens: tokens?,
        keep_alive: keep_alive?,
        acquire_timeout_ns: acquire_timeout_ns?,
        request_timeout_ns: request_timeout_ns?,
        min_terms: min_terms?,
        rate_per_s,
        options: options??,
    })
}

fn read_workers(section: &Section<'_>, clients: Option<u32>) -> Option<u32> {
    let workers = section.integer_u32("workers");
    if section.written("workers").is_none() {
        return clients.map(|clients| clients.min(DEFAULT_WORKERS));
    }
    if let (Some(workers), Some(clients)) = (workers, clients)
        && workers > clients
    {
        let expected = format!("at most as many workers as clients ({clients})");
        section.problem(
            "workers",
            &expected,
            &workers.to_string(),
            Some("a worker without a client does nothing".to_owned()),
        );
        return None;
    }
    workers
}

fn read_tokens(section: &Section<'_>, discipline: Option<Discipline>) -> Option<TokenPolicy> {
    if section.written("tokens").is_some() {
        return section
            .text("tokens")
            .and_then(|word| TokenPolicy::find(&word));
    }
    discipline.map(|discipline| {
        if discipline == Discipline::Token {
            TokenPolicy::Enforce
        } else {
            TokenPolicy::Record
        }
    })
}

fn check_resource(
    section: &Section<'_>,
    kind: Option<&KnownWorkload>,
    resource: Option<&KnownResource>,
    cluster: Option<&ClusterPlan>,
) {
    let written = section.written("resource");
    if let Some(kind) = kind {
        if kind.needs_resource && written.is_none() {
            let names: Vec<String> = section
                .cx
                .known
                .resources
                .iter()
                .map(|known| format!("\"{}\"", known.name))
                .collect();
            let expected = format!(
                "a resource for the workload {} to write to: {}",
                kind.name,
                one_of(&names)
            );
            section.problem("resource", &expected, "nothing", None);
        }
        if let Some(node) = written.filter(|_| !kind.needs_resource) {
            let expected = format!("no resource: the workload {} only takes locks", kind.name);
            section.problem(
                "resource",
                &expected,
                &node.describe(),
                Some("remove the key".to_owned()),
            );
        }
    }
    if let (Some(resource), Some(cluster)) = (resource, cluster)
        && let Some(home) = resource
            .backend
            .as_ref()
            .filter(|home| **home != cluster.backend)
    {
        let expected = format!("a resource that goes with the backend {}", cluster.backend);
        section.problem(
            "resource",
            &expected,
            &format!("\"{}\", which lives in {home}", resource.name),
            None,
        );
    }
}

fn check_lock(
    section: &Section<'_>,
    lock: Option<&KnownLock>,
    discipline: Option<Discipline>,
    cluster: Option<&ClusterPlan>,
) {
    let Some(lock) = lock else { return };
    if let Some(cluster) = cluster.filter(|cluster| cluster.backend != lock.backend) {
        let fitting: Vec<&str> = section
            .cx
            .known
            .locks
            .iter()
            .filter(|other| other.backend == cluster.backend)
            .map(|other| other.name.as_str())
            .collect();
        let expected = format!(
            "a lock of the backend {}: {}",
            cluster.backend,
            fitting.join(", ")
        );
        section.problem(
            "lock",
            &expected,
            &format!("\"{}\", a lock of {}", lock.name, lock.backend),
            None,
        );
    }
    if let Some(discipline) = discipline
        && !lock
            .disciplines
            .iter()
            .any(|word| word == discipline.name())
    {
        let expected = format!(
            "a discipline that the lock {} supports: {}",
            lock.name,
            lock.disciplines.join(", ")
        );
        section.problem(
            "discipline",
            &expected,
            &format!("\"{}\"", discipline.name()),
            None,
        );
    }
}

/// Disciplines and token policies that need something of the resource.
fn check_discipline(
    section: &Section<'_>,
    kind: Option<&KnownWorkload>,
    resource: Option<&KnownResource>,
    discipline: Option<Discipline>,
    tokens: Option<TokenPolicy>,
) {
    let fitting = |fits: fn(&KnownResource) -> bool| {
        let names: Vec<String> = section
            .cx
            .known
            .resources
            .iter()
            .filter(|known| fits(known))
            .map(|known| format!("\"{}\"", known.name))
            .collect();
        format!("take resource = {}", one_of(&names))
    };
    let without_resource = kind.is_some_and(|kind| !kind.needs_resource);
    let on_what = match resource {
        Some(resource) => format!("the resource {}", resource.name),
        None if without_resource => "a workload without a resource".to_owned(),
        // The missing resource has been reported.
        None => return,
    };
    let checks_tokens = resource.is_some_and(|resource| resource.checks_tokens);
    if discipline == Some(Discipline::Txn)
        && !resource.is_some_and(|resource| resource.guards_writes)
    {
        let found = format!("\"txn\" with {on_what}");
        let expected = "a resource in the lock service's own store for the discipline \"txn\"";
        section.problem(
            "discipline",
            expected,
            &found,
            Some(fitting(|known| known.guards_writes)),
        );
    }
    if discipline == Some(Discipline::Token) && !checks_tokens {
        let found = format!("\"token\" with {on_what}");
        let expected = "a resource that looks at fencing tokens for the discipline \"token\"";
        section.problem(
            "discipline",
            expected,
            &found,
            Some(fitting(|known| known.checks_tokens)),
        );
    } else if tokens == Some(TokenPolicy::Enforce) && !checks_tokens {
        let found = format!("\"enforce\" with {on_what}");
        let expected = "\"record\", or a resource that looks at fencing tokens";
        section.problem(
            "tokens",
            expected,
            &found,
            Some(fitting(|known| known.checks_tokens)),
        );
    }
}

fn check_ttl(section: &Section<'_>, ttl_ms: Option<u64>, cluster: Option<&ClusterPlan>) {
    let (Some(ttl_ms), Some(cluster)) = (ttl_ms, cluster) else {
        return;
    };
    let Some(backend) = section.cx.known.backend(&cluster.backend) else {
        return;
    };
    let granted_ms = (backend.ttl_ms)(cluster);
    let (least, most) = (format_ms(*granted_ms.start()), format_ms(*granted_ms.end()));
    let (expected, bound) = if ttl_ms < *granted_ms.start() {
        (format!("at least {least}, the shortest"), least)
    } else if ttl_ms > *granted_ms.end() {
        (format!("at most {most}, the longest"), most)
    } else {
        return;
    };
    section.problem(
        "ttl",
        &format!(
            "{expected} lease that {} grants under this tuning",
            backend.name
        ),
        &format_ms(ttl_ms),
        Some(format!("write ttl = \"{bound}\"")),
    );
}
