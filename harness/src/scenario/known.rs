//! What a scenario may name: backends, locks, resources, workloads, faults and metrics.
//!
//! The program fills this in from its registries. The scenario code itself knows no such name, so
//! that a new backend or fault needs no change here.

use std::ops::RangeInclusive;

use nemesis::fault::Layer;
use nemesis::{ParamSpec, Params, Target};
use workloads::lock::LockAsk;
use workloads::option::OptionSpec;

use super::keys::Table;
use super::plan::ClusterPlan;

/// Everything a scenario may name.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Lock services.
    pub backends: Vec<KnownBackend>,
    /// Locks that clients can take.
    pub locks: Vec<KnownLock>,
    /// Resources that a lock can protect.
    pub resources: Vec<KnownResource>,
    /// What clients can do.
    pub workloads: Vec<KnownWorkload>,
    /// What can be done to hosts.
    pub faults: Vec<KnownFault>,
    /// What checks count and arms can expect.
    pub metrics: Vec<KnownMetric>,
}

/// A lock service.
#[derive(Clone, Debug)]
pub struct KnownBackend {
    /// Registry name.
    pub name: String,
    /// Versions that can be had.
    pub versions: Vec<String>,
    /// The version that is taken when a scenario names none.
    pub default_version: String,
    /// The leases that a cluster grants, in milliseconds.
    pub ttl_ms: fn(&ClusterPlan) -> RangeInclusive<u64>,
    /// How many hosts of its own it needs beside the nodes.
    pub helpers: fn(&ClusterPlan) -> u32,
    /// Settings that only it has.
    pub options: &'static [OptionSpec],
    /// Says what was expected of values that are right each for itself.
    pub check: fn(&ClusterPlan) -> Result<(), String>,
    /// Cluster sizes that it can run in.
    pub nodes: Vec<u32>,
    /// Bugs that can be switched on; empty for a real server.
    pub bugs: Vec<String>,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct KnownLock {
    /// Registry name.
    pub name: String,
    /// The backend that it talks to.
    pub backend: String,
    /// Words of the holder disciplines that it supports.
    pub disciplines: Vec<String>,
    /// Settings that only it has.
    pub options: &'static [OptionSpec],
    /// Says what was expected of values that are right each for itself.
    pub check: fn(&LockAsk<'_>) -> Result<(), String>,
}

/// A protected resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownResource {
    /// Registry name.
    pub name: String,
    /// The backend whose store it lives in; `None` when it lives outside the lock service.
    pub backend: Option<String>,
    /// True when it looks at fencing tokens and can refuse a stale one.
    pub checks_tokens: bool,
    /// Whether a write can depend on the lock still being there.
    pub guards_writes: bool,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownWorkload {
    /// Registry name.
    pub name: String,
    /// True when its clients read and write a resource, false when they only take the lock.
    pub needs_resource: bool,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct KnownFault {
    /// Registry name.
    pub name: String,
    /// True when it must say how long it lasts.
    pub needs_lasts: bool,
    /// Forms of the targets that it can hit: `holder`, `leader`, …, `node:NAME`, `client:NAME`.
    pub targets: Vec<String>,
    /// The parameters that it has beyond those that every fault has.
    pub params: &'static [ParamSpec],
    /// What it acts on.
    pub layer: Layer,
    /// Says what was expected of parameters that are right each for itself.
    pub check: fn(&Target, &Params) -> Result<(), String>,
}

/// A number that a check reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMetric {
    /// Its name, unique over all checks.
    pub name: String,
    /// The check that reports it.
    pub check: String,
}

impl Known {
    pub(super) fn backend(&self, name: &str) -> Option<&KnownBackend> {
        self.backends.iter().find(|backend| backend.name == name)
    }

    pub(super) fn lock(&self, name: &str) -> Option<&KnownLock> {
        self.locks.iter().find(|lock| lock.name == name)
    }

    pub(super) fn resource(&self, name: &str) -> Option<&KnownResource> {
        self.resources.iter().find(|resource| resource.name == name)
    }

    pub(super) fn workload(&self, name: &str) -> Option<&KnownWorkload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    pub(super) fn fault(&self, name: &str) -> Option<&KnownFault> {
        self.faults.iter().find(|fault| fault.name == name)
    }

    /// Whether any fault has a parameter of that name.
    pub(super) fn has_fault_param(&self, name: &str) -> bool {
        let mut params = self.faults.iter().flat_map(|fault| fault.params);
        params.any(|param| param.name == name)
    }

    /// The options of every backend, or of every lock.
    pub(super) fn option_names(&self, table: Table) -> Vec<&'static str> {
        let specs: Vec<&'static [OptionSpec]> = match table {
            Table::ClusterOptions => self.backends.iter().map(|known| known.options).collect(),
            Table::LockOptions => self.locks.iter().map(|known| known.options).collect(),
            _ => Vec::new(),
        };
        let mut names: Vec<_> = specs.into_iter().flatten().map(|spec| spec.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(super) fn metric(&self, name: &str) -> Option<&KnownMetric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The names of one registry.
    pub(super) fn names(&self, registry: Registry) -> Vec<&str> {
        fn all<T>(items: &[T], name: fn(&T) -> &str) -> Vec<&str> {
            items.iter().map(name).collect()
        }
        match registry {
            Registry::Backends => all(&self.backends, |item| &item.name),
            Registry::Locks => all(&self.locks, |item| &item.name),
            Registry::Resources => all(&self.resources, |item| &item.name),
            Registry::Workloads => all(&self.workloads, |item| &item.name),
            Registry::Faults => all(&self.faults, |item| &item.name),
        }
    }
}

/// The registries whose names are values in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registry {
    /// `cluster.backend`.
    Backends,
    /// `workload.lock`.
    Locks,
    /// `workload.resource`.
    Resources,
    /// `workload.kind`.
    Workloads,
    /// `fault.kind`.
    Faults,
}

impl Registry {
    /// What one entry is called in an error.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Backends => "backend",
            Self::Locks => "lock",
            Self::Resources => "resource",
            Self::Workloads => "workload",
            Self::Faults => "fault",
        }
    }
}
