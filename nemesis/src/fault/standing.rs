//! A rule on links as a fault in force: what `partition` and `link` have in common.
//!
//! It must never leave a rule behind: dropping it takes the rule away.

use std::sync::Arc;

use crate::fault::{FaultError, InForce, Request, contained};
use crate::link_receipt::LinkReceipt;
use crate::mechanism::links::Links;
use crate::mechanism::switch::{Effect, Installed, Rule, RuleCounters};
use crate::peers::Peers;
use crate::receipt::{Receipt, ms};
use crate::{HostControl, Now, Roster};

/// A rule in force.
pub(super) struct Standing {
    links: Arc<dyn Links>,
    installed: Installed,
    now: Now,
    effect: Effect,
    asked_ns: Option<u64>,
    /// Who is struck, for errors.
    hosts: String,
    /// What was done to whom, for the receipt.
    what: String,
    removed: bool,
}

/// What is to be put in force.
pub(super) struct Plan {
    pub(super) links: Vec<(String, String)>,
    pub(super) port: Option<u16>,
    pub(super) effect: Effect,
    /// What is done to whom, for the receipt.
    pub(super) what: String,
}

impl Standing {
    /// Puts a plan in force.
    pub(super) fn install(
        plan: Plan,
        hosts: &[Arc<dyn HostControl>],
        request: &Request<'_>,
    ) -> Result<Box<dyn InForce>, FaultError> {
        let hosts = names(hosts).join(" ");
        let refused = |what: String| FaultError::Refused {
            host: hosts.clone(),
            what,
        };
        let links = request.world.links().map_err(refused)?;
        let rule = Rule {
            links: plan.links,
            port: plan.port,
            effect: plan.effect,
            draw: request.pick,
        };
        let installed = links
            .install(&rule)
            .map_err(|error| refused(error.to_string()))?;
        Ok(Box::new(Self {
            what: format!("{}: {}", links.name(), plan.what),
            links,
            installed,
            now: request.now,
            effect: rule.effect,
            asked_ns: request.asked_ns,
            hosts,
            removed: false,
        }))
    }

    fn receipt(&self, lifted_ns: u64, gone_ns: u64, counters: RuleCounters) -> LinkReceipt {
        LinkReceipt {
            what: self.what.clone(),
            effect: self.effect.clone(),
            asked_ns: self.asked_ns,
            requested_ns: self.installed.requested_ns,
            since_ns: self.installed.since_ns,
            lifted_ns,
            gone_ns,
            counters,
        }
    }
}

impl InForce for Standing {
    fn requested_ns(&self) -> u64 {
        self.installed.requested_ns
    }

    fn since_ns(&self) -> u64 {
        self.installed.since_ns
    }

    fn words(&self) -> String {
        let onset_ns = self
            .installed
            .since_ns
            .saturating_sub(self.installed.requested_ns);
        format!("{}, within {:.2} ms", self.what, ms(onset_ns))
    }

    fn check(&self) -> Result<(), FaultError> {
        let found = match self.links.look(self.installed.id) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => "its rule is gone".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(FaultError::Ended {
            host: self.hosts.clone(),
            found,
        })
    }

    fn heal(&mut self) -> Result<Receipt, FaultError> {
        let lifted_ns = (self.now)();
        let removed = self.links.remove(self.installed.id);
        let failed = |found: String| FaultError::NotHealed {
            host: self.hosts.clone(),
            found,
        };
        let removed = removed.map_err(|error| failed(error.to_string()))?;
        self.removed = true;
        let removed = removed.ok_or_else(|| FaultError::Ended {
            host: self.hosts.clone(),
            found: "its rule was gone".to_owned(),
        })?;
        let receipt = self.receipt(lifted_ns, removed.gone_ns, removed.counters);
        Ok(Receipt {
            proven: receipt.proven(),
            lifted_ns,
            words: receipt.to_string(),
        })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if !self.removed {
            contained(|| drop(self.links.remove(self.installed.id)));
        }
    }
}

/// The names of hosts.
pub(super) fn names(hosts: &[Arc<dyn HostControl>]) -> Vec<String> {
    hosts.iter().map(|host| host.name().to_owned()).collect()
}

/// Two groups of hosts with links between them.
type Sides = (Vec<String>, Vec<String>);

/// Pairs of a target and the hosts at the other end of its links. Most peers are the same for all
/// targets; each client has its own node.
pub(super) fn opposite(
    peers: &Peers,
    targets: &[String],
    request: &Request<'_>,
) -> Result<Vec<Sides>, FaultError> {
    let roster: Roster = request.world.roster();
    let clients = || roster.clients.iter().map(|client| client.name.clone());
    let all = match peers {
        Peers::Everyone => roster.nodes.iter().cloned().chain(clients()).collect(),
        Peers::Nodes => roster.nodes.clone(),
        Peers::Clients => clients().collect(),
        Peers::ItsNode => {
            let node = |target: &String| {
                let client = roster.clients.iter().find(|client| client.name == *target);
                let node = client.and_then(|client| client.node.clone());
                node.map(|node| (vec![target.clone()], vec![node]))
                    .ok_or_else(|| FaultError::Refused {
                        host: target.clone(),
                        what: "expected a client host that talks to one node, found none"
                            .to_owned(),
                    })
            };
            return targets.iter().map(node).collect();
        }
        Peers::Only(target) => {
            let found = request.world.resolve(target, None, request.pick);
            let hosts = found.map_err(|what| FaultError::Refused {
                host: targets.join(" "),
                what: format!("the other end of its links ({target}): {what}"),
            })?;
            names(&hosts)
        }
    };
    Ok(vec![(targets.to_vec(), all)])
}
