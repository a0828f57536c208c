//! Where a trial takes place: the sandbox as its controller has set it up.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Result;
use nemesis::clock::HostClock;
use nemesis::fault::{self, FaultSpec, Layer};
use nemesis::{Need, Target};

use crate::backend;
use crate::sandbox::{
    Host, HostSpec, Inside, Network, client_address, helper_address, node_address,
};
use crate::scenario::ArmPlan;

// Workers' stamps must stay true under a clock fault.
const _: () = assert!(nemesis::clock::TRUTH_MARKER == workloads::truth::MARKER);

/// A sandbox in which hosts can be started.
pub struct Place {
    /// Scratch space and cgroup.
    pub inside: Inside,
    /// Links between the hosts.
    pub network: Network,
    /// Where logs go.
    pub logs: PathBuf,
    /// What the nodes must be started with so that the arm's faults can strike them.
    pub needs: BTreeSet<Need>,
    /// The targets of the arm's clock faults: no other host has a clock of its own.
    clock_targets: Vec<Target>,
    /// The addresses of every node and client of the trial.
    addresses: Vec<Ipv4Addr>,
}

impl Place {
    /// Sets the sandbox up for an arm.
    ///
    /// # Errors
    /// Outside of a sandbox, or when its network cannot be made.
    pub fn new(arm: &ArmPlan, logs: PathBuf) -> Result<Self> {
        let nodes = (1..=arm.cluster.nodes).map(|number| node_address(small(number)));
        let helpers =
            backend::find(&arm.cluster.backend).map_or(0, |spec| (spec.helpers)(&arm.cluster));
        let helpers = (1..=helpers).map(|number| helper_address(small(number)));
        let clients = (1..=arm.workload.workers).map(|number| client_address(small(number)));
        let faults: Vec<&FaultSpec> = arm
            .faults
            .iter()
            .filter_map(|plan| fault::find(&plan.kind))
            .collect();
        let inside = Inside::read()?;
        let network = Network::create(arm.cluster.network)?;
        if faults.iter().any(|spec| spec.layer == Layer::Network) {
            // A run whose faults cannot strike is not worth its time.
            network.links().check()?;
        }
        let clock_targets = arm
            .faults
            .iter()
            .filter(|plan| {
                fault::find(&plan.kind).is_some_and(|spec| spec.needs.contains(&Need::Clock))
            })
            .map(|plan| plan.target.clone());
        Ok(Self {
            inside,
            network,
            logs,
            needs: faults
                .iter()
                .flat_map(|spec| spec.needs.iter().copied())
                .collect(),
            clock_targets: clock_targets.collect(),
            addresses: nodes.chain(helpers).chain(clients).collect(),
        })
    }

    /// The clock of a node, if a fault can reach it.
    #[must_use]
    pub fn node_clock(&self, name: &str) -> Option<HostClock> {
        let reaches = |target: &Target| match target {
            Target::Node(node) => node == name,
            other => !other.is_client(),
        };
        let clocked = self.clock_targets.iter().any(reaches);
        clocked.then(|| HostClock::new(name))
    }

    /// The clock of a client host, if a fault can reach it.
    #[must_use]
    pub fn client_clock(&self, name: &str) -> Option<HostClock> {
        let reaches = |target: &Target| match target {
            Target::ClientHost(client) => client == name,
            other => other.is_client(),
        };
        let clocked = self.clock_targets.iter().any(reaches);
        clocked.then(|| HostClock::new(name))
    }

    /// Starts a host that knows the hardware addresses of all others: ARP must not be a variable.
    ///
    /// # Errors
    /// When the system refuses one of its parts.
    pub fn host(&self, name: &str, address: Ipv4Addr) -> Result<Host> {
        let neighbours = self
            .addresses
            .iter()
            .copied()
            .filter(|other| *other != address);
        let spec = HostSpec {
            name: name.to_owned(),
            address,
            neighbours: neighbours.collect(),
            cgroup: self.inside.cgroup.as_ref().ok().cloned(),
        };
        Ok(Host::start(&self.network, spec)?)
    }
}

/// Host numbers are far below what an address can hold; scenario files are checked for it.
pub(super) fn small(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
