//! Who is who at this moment: what the nemesis's targets mean.
//!
//! The run loop notes who holds and who waits; the cluster says who leads. Nothing in here injects anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nemesis::mechanism::links::Links;
use nemesis::{ClientOf, HostControl, Roster, Target};

/// Asks the cluster for its leader's node name.
pub type LeaderOf = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A host of the sandbox that faults can reach.
pub trait FaultableHost: HostControl {
    /// True while it is down because the nemesis killed it.
    fn is_killed(&self) -> bool;
}

/// The hosts of a trial, and what its clients are doing.
pub struct World {
    nodes: Vec<Arc<dyn FaultableHost>>,
    /// Hosts beside the nodes: on every link, but none of `one`, `minority` and the like.
    helpers: Vec<Arc<dyn FaultableHost>>,
    clients: Vec<Arc<dyn FaultableHost>>,
    leader: LeaderOf,
    /// What faults on links act on, or why there is nothing.
    links: Result<Arc<dyn Links>, String>,
    /// The node that each client host talks to, in the order of the hosts.
    client_nodes: Vec<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holders: BTreeMap<u32, Arc<str>>,
    waiters: BTreeMap<u32, Arc<str>>,
}

impl World {
    /// A world in which nobody holds anything.
    #[must_use]
    pub fn new(
        nodes: Vec<Arc<dyn FaultableHost>>,
        clients: Vec<Arc<dyn FaultableHost>>,
        leader: LeaderOf,
    ) -> Self {
        Self {
            nodes,
            helpers: Vec::new(),
            clients,
            leader,
            links: Err("the hosts of this world are not joined".to_owned()),
            client_nodes: Vec::new(),
            state: Mutex::default(),
        }
    }

    /// Tells it of the hosts that the cluster has beside its nodes.
    #[must_use]
    pub fn with_helpers(mut self, helpers: Vec<Arc<dyn FaultableHost>>) -> Self {
        self.helpers = helpers;
        self
    }

    /// Tells it of the network, and of the node that each client host talks to.
    #[must_use]
    pub fn with_network(
        mut self,
        links: Result<Arc<dyn Links>, String>,
        client_nodes: Vec<String>,
    ) -> Self {
        self.links = links;
        self.client_nodes = client_nodes;
        self
    }

    /// A logical client asked for a lock.
    pub fn waits(&self, client: u32, host: &Arc<str>) {
        self.state().waiters.insert(client, Arc::clone(host));
    }

    /// A logical client holds a lock.
    pub fn holds(&self, client: u32, host: &Arc<str>) {
        let mut state = self.state();
        state.waiters.remove(&client);
        state.holders.insert(client, Arc::clone(host));
    }

    /// A logical client neither holds nor waits.
    pub fn idle(&self, client: u32) {
        let mut state = self.state();
        state.waiters.remove(&client);
        state.holders.remove(&client);
    }

    /// Whether the nemesis killed the host.
    #[must_use]
    pub fn is_killed(&self, host: &str) -> bool {
        self.clients
            .iter()
            .any(|client| client.name() == host && client.is_killed())
    }

    /// Whether a client's host is down that may come back.
    #[must_use]
    pub fn may_restart_clients(&self) -> bool {
        self.clients.iter().any(|client| client.is_killed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client_named(
        &self,
        names: &BTreeSet<Arc<str>>,
        pick: u64,
        who: &str,
    ) -> Result<Hosts, String> {
        let fitting: Vec<_> = self
            .clients
            .iter()
            .filter(|client| names.contains(client.name()))
            .cloned()
            .collect();
        if fitting.is_empty() {
            Err(format!("nobody is a {who} now"))
        } else {
            Ok(one(&fitting, pick))
        }
    }

    fn named(hosts: &[Arc<dyn FaultableHost>], name: &str) -> Result<Hosts, String> {
        let host = hosts
            .iter()
            .find(|host| host.name() == name)
            .ok_or_else(|| format!("there is no host {name}"))?;
        Ok(vec![Arc::clone(host) as Arc<dyn HostControl>])
    }

    /// The nodes from the one that `pick` names, round about.
    fn some_nodes(&self, count: usize, pick: u64) -> Hosts {
        let start = index(pick, self.nodes.len());
        let nodes = self.nodes.iter().cycle().skip(start).take(count);
        nodes
            .map(|node| Arc::clone(node) as Arc<dyn HostControl>)
            .collect()
    }
}

type Hosts = Vec<Arc<dyn HostControl>>;

fn index(pick: u64, count: usize) -> usize {
    usize::try_from(pick % count.max(1) as u64).unwrap_or(0)
}

fn one(hosts: &[Arc<dyn FaultableHost>], pick: u64) -> Hosts {
    hosts
        .get(index(pick, hosts.len()))
        .map(|host| Arc::clone(host) as Arc<dyn HostControl>)
        .into_iter()
        .collect()
}

fn every(hosts: &[Arc<dyn FaultableHost>]) -> Hosts {
    let hosts = hosts.iter().cloned();
    hosts.map(|host| host as Arc<dyn HostControl>).collect()
}

impl nemesis::World for World {
    fn roster(&self) -> Roster {
        let nodes = self.client_nodes.iter().cloned().map(Some);
        let nodes = nodes.chain(std::iter::repeat(None));
        let clients = self.clients.iter().zip(nodes);
        Roster {
            nodes: self
                .nodes
                .iter()
                .chain(&self.helpers)
                .map(|node| node.name().to_owned())
                .collect(),
            clients: clients
                .map(|(client, node)| ClientOf {
                    name: client.name().to_owned(),
                    node,
                })
                .collect(),
        }
    }

    fn links(&self) -> Result<Arc<dyn Links>, String> {
        self.links.clone()
    }

    fn resolve(&self, target: &Target, about: Option<&str>, pick: u64) -> Result<Hosts, String> {
        let nodes = self.nodes.len();
        match target {
            Target::Holder => {
                let holders: BTreeSet<Arc<str>> = self.state().holders.values().cloned().collect();
                match about {
                    // The event was about a holder: that one, unless it has let go since.
                    Some(host) if holders.contains(host) => Self::named(&self.clients, host),
                    Some(host) => Err(format!("{host} holds nothing any more")),
                    None => self.client_named(&holders, pick, "holder"),
                }
            }
            Target::Waiter => {
                let state = self.state();
                let busy: BTreeSet<&Arc<str>> = state.holders.values().collect();
                let waiters = state
                    .waiters
                    .values()
                    .filter(|host| !busy.contains(host))
                    .cloned()
                    .collect();
                drop(state);
                self.client_named(&waiters, pick, "waiter")
            }
            Target::Client => Ok(one(&self.clients, pick)),
            Target::Clients => Ok(every(&self.clients)),
            Target::Leader => Self::named(
                &self.nodes,
                &(self.leader)().ok_or("the cluster has no leader now")?,
            ),
            Target::Follower => {
                let leader = (self.leader)().ok_or("the cluster has no leader now")?;
                let followers: Vec<_> = self
                    .nodes
                    .iter()
                    .filter(|node| node.name() != leader)
                    .cloned()
                    .collect();
                if followers.is_empty() {
                    Err("a cluster of one has no follower".into())
                } else {
                    Ok(one(&followers, pick))
                }
            }
            Target::One => Ok(self.some_nodes(1, pick)),
            Target::Minority => Ok(self.some_nodes(nodes.saturating_sub(1) / 2, pick)),
            Target::Majority => Ok(self.some_nodes(nodes / 2 + 1, pick)),
            Target::All => Ok(every(&self.nodes)),
            Target::Node(name) => {
                Self::named(&self.nodes, name).or_else(|_| Self::named(&self.helpers, name))
            }
            Target::ClientHost(name) => Self::named(&self.clients, name),
        }
    }
}
