//! What scenario files may name, gathered from the registries.

use checkers::check::CHECKS;
use nemesis::fault::FAULTS;
use workloads::lock::LOCKS;
use workloads::resource::RESOURCES;
use workloads::script::WORKLOADS;

use crate::backend::BACKENDS;
use crate::provision::known_versions;
use crate::scenario::{
    Known, KnownBackend, KnownFault, KnownLock, KnownMetric, KnownResource, KnownWorkload,
};

/// Everything that this build knows.
#[must_use]
pub fn known() -> Known {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Known {
        backends: BACKENDS
            .iter()
            .map(|spec| KnownBackend {
                name: spec.name.to_owned(),
                versions: words(&known_versions(spec.name).unwrap_or_default()),
                default_version: spec.default_version.to_owned(),
                ttl_ms: spec.ttl_ms,
                helpers: spec.helpers,
                options: spec.options,
                check: spec.check,
                nodes: spec.nodes.to_vec(),
                bugs: words(spec.bugs),
            })
            .collect(),
        locks: LOCKS
            .iter()
            .map(|spec| KnownLock {
                name: spec.name.to_owned(),
                backend: spec.backend.to_owned(),
                disciplines: spec
                    .disciplines
                    .iter()
                    .map(|one| one.name().to_owned())
                    .collect(),
                options: spec.options,
                check: spec.check,
            })
            .collect(),
        resources: RESOURCES
            .iter()
            .map(|spec| KnownResource {
                name: spec.name.to_owned(),
                backend: (!spec.backend.is_empty()).then(|| spec.backend.to_owned()),
                checks_tokens: spec.enforces_tokens,
                guards_writes: spec.guards_writes,
            })
            .collect(),
        workloads: WORKLOADS
            .iter()
            .map(|spec| KnownWorkload {
                name: spec.name.to_owned(),
                needs_resource: spec.needs_resource,
            })
            .collect(),
        faults: FAULTS
            .iter()
            .map(|spec| KnownFault {
                name: spec.name.to_owned(),
                needs_lasts: spec.needs_lasts,
                targets: words(spec.targets),
                params: spec.params,
                layer: spec.layer,
                check: spec.check,
            })
            .collect(),
        metrics: CHECKS
            .iter()
            .flat_map(|check| check.metrics.iter().map(|metric| (check.name, metric.name)))
            .map(|(check, name)| KnownMetric {
                name: name.to_owned(),
                check: check.to_owned(),
            })
            .collect(),
    }
}
