//! The network between the hosts: a veth pair a host, and a switch or a bridge that joins their outer ends.
//!
//! The switch is the nemesis's, in user space: every fault on links is possible. The bridge is the
//! kernel's: faster, and good for partitions and loss only. Loss, delay and partitions are not made here.
//! Everything that would add noise is off: spanning tree and
//! its forwarding delay, multicast snooping, IPv6 autoconfiguration, and ARP for the hosts that are known
//! (permanent neighbour entries, which also do not count against the kernel's limit of 1024).

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use std::sync::Arc;

use nemesis::mechanism::links::Links;
use nemesis::mechanism::nft::NftBridge;
use nemesis::mechanism::switch::{PortSpec, Switch, SwitchError};
use nix::errno::Errno;
use rtnetlink::packet_route::link::{BridgeStpState, InfoBridge, InfoData, InfoVeth};
use serde::{Deserialize, Serialize};
use workloads::truth::now_ns;

use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};

use super::addresses::{CONTROLLER_ADDRESS, PREFIX_LEN, hardware_address};
use super::error::{Failure, SandboxError, Step};
use super::wire::HostOffloads;
use super::{netlink, syscalls, wire};

/// The interface with the controller's address: the bridge, or the inner end of its veth pair.
const CONTROLLER_INTERFACE: &str = "fencepost";

/// The outer end of the controller's veth pair, where there is a switch.
const CONTROLLER_PORT: &str = "fencepost-sw";

/// Names of links that no host can have.
pub(super) const TAKEN_NAMES: [&str; 3] = ["lo", CONTROLLER_INTERFACE, CONTROLLER_PORT];

/// The interface of a host, inside.
const HOST_INTERFACE: &str = "eth0";

/// What joins the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// A switch in user space: every fault on links.
    #[default]
    Switch,
    /// The kernel's bridge: more throughput, partitions and loss only.
    Bridge,
}

impl NetworkKind {
    /// The names of both, as scenario files write them.
    pub const NAMES: &[&str] = &["switch", "bridge"];

    const ALL: [Self; 2] = [Self::Switch, Self::Bridge];

    /// The kind of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name, as scenario files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Bridge => "bridge",
        }
    }
}

/// The network to which hosts are attached. It goes away with the sandbox.
pub struct Network {
    /// Index of the interface with the controller's address.
    controller_index: u32,
    /// The switch; without one the kernel's bridge joins the hosts.
    switch: Option<Arc<Switch>>,
}

impl Network {
    /// Brings the loopback up and makes the network with the controller's address. Once a sandbox, by the
    /// controller.
    pub fn create(kind: NetworkKind) -> Result<Self, SandboxError> {
        disable_ipv6("default")?;
        match kind {
            NetworkKind::Switch => Self::with_switch(),
            NetworkKind::Bridge => Self::with_bridge(),
        }
    }

    /// The switch, if it is one that joins the hosts.
    #[must_use]
    pub fn switch(&self) -> Option<&Arc<Switch>> {
        self.switch.as_ref()
    }

    /// What faults on links act on.
    #[must_use]
    pub fn links(&self) -> Arc<dyn Links> {
        match &self.switch {
            Some(switch) => Arc::clone(switch) as Arc<dyn Links>,
            None => Arc::new(NftBridge::new(now_ns)),
        }
    }

    /// Says so if the network does not work any more.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self) -> Result<(), String> {
        match &self.switch {
            Some(switch) => switch.check().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// The controller has a port like any other host, with its inner end in its own namespace.
    fn with_switch() -> Result<Self, SandboxError> {
        let switch = Switch::start(now_ns).map_err(not_switched)?;
        let controller_index = netlink::run(async |handle: Handle| {
            bring_up(&handle, "lo").await?;
            let inner = LinkMessageBuilder::<LinkUnspec>::new()
                .name(CONTROLLER_INTERFACE)
                .address(hardware_address(CONTROLLER_ADDRESS).to_vec())
                .build();
            let pair = LinkVeth::new(CONTROLLER_PORT, CONTROLLER_INTERFACE)
                .set_info_data(InfoData::Veth(InfoVeth::Peer(inner)))
                .up()
                .build();
            handle
                .link()
                .add(pair)
                .execute()
                .await
                .map_err(|e| netlink::failure("make the controller's link", &e))?;
            let controller_index = index(CONTROLLER_INTERFACE)?;
            add_address(&handle, controller_index, CONTROLLER_ADDRESS).await?;
            bring_up(&handle, CONTROLLER_INTERFACE).await?;
            Ok(controller_index)
        })?;
        let port = PortSpec {
            name: CONTROLLER_INTERFACE.to_owned(),
            mac: hardware_address(CONTROLLER_ADDRESS),
            frames: wire::open(CONTROLLER_PORT)?,
            // No fault is on the controller's links.
            offloads: None,
        };
        switch.add_port(port).map_err(not_switched)?;
        Ok(Self {
            controller_index,
            switch: Some(Arc::new(switch)),
        })
    }

    fn with_bridge() -> Result<Self, SandboxError> {
        netlink::run(async |handle: Handle| {
            bring_up(&handle, "lo").await?;
            let bridge = LinkBridge::new(CONTROLLER_INTERFACE)
                .address(hardware_address(CONTROLLER_ADDRESS).to_vec())
                .append_info_data(InfoBridge::StpState(BridgeStpState::Disabled))
                .append_info_data(InfoBridge::ForwardDelay(0))
                .append_info_data(InfoBridge::MulticastSnooping(false))
                .build();
            let what = "make the bridge";
            handle
                .link()
                .add(bridge)
                .execute()
                .await
                .map_err(|e| netlink::failure(what, &e))?;
            let controller_index = index(CONTROLLER_INTERFACE)?;
            add_address(&handle, controller_index, CONTROLLER_ADDRESS).await?;
            Ok(Self {
                controller_index,
                switch: None,
            })
        })
        .map_err(Into::into)
    }

    /// Makes the veth pair of a host: one end at the switch or bridge under the host's name, the other in the
    /// network namespace of `init_pid`. The controller knows the host's hardware address from then on.
    pub(super) fn attach(
        &self,
        name: &str,
        init_pid: i32,
        address: Ipv4Addr,
    ) -> Result<(), SandboxError> {
        let pair = || {
            let inner = LinkMessageBuilder::<LinkUnspec>::new()
                .name(HOST_INTERFACE)
                .address(hardware_address(address).to_vec())
                .setns_by_pid(init_pid.unsigned_abs())
                .build();
            let pair = LinkVeth::new(name, HOST_INTERFACE)
                .set_info_data(InfoData::Veth(InfoVeth::Peer(inner)))
                .up();
            match self.switch {
                Some(_) => pair.build(),
                None => pair.controller(self.controller_index).build(),
            }
        };
        let what = format!("connect host {name} to the network");
        netlink::run(async |handle: Handle| {
            let mut made = handle
                .link()
                .add(pair())
                .execute()
                .await
                .map_err(|e| netlink::failure(&what, &e));
            if made
                .as_ref()
                .is_err_and(|failure| failure.errno == libc::EEXIST)
            {
                // An earlier host of this name has ended, but the kernel destroys its namespace lazily.
                let _ = handle.link().del(index(name)?).execute().await;
                made = handle
                    .link()
                    .add(pair())
                    .execute()
                    .await
                    .map_err(|e| netlink::failure(&what, &e));
            }
            made?;
            add_neighbour(&handle, self.controller_index, address).await
        })?;
        if let Some(switch) = &self.switch {
            let port = PortSpec {
                name: name.to_owned(),
                mac: hardware_address(address),
                frames: wire::open(name)?,
                offloads: Some(Box::new(HostOffloads::of(init_pid, HOST_INTERFACE)?)),
            };
            switch.add_port(port).map_err(not_switched)?;
        }
        Ok(())
    }
}

/// The switch says what happened; there is no errno.
fn not_switched(error: SwitchError) -> SandboxError {
    SandboxError::Network(error.to_string())
}

/// Configures the network of the host that this process is the init of, after [`Network::attach`].
pub(super) fn configure_host(address: Ipv4Addr, neighbours: &[Ipv4Addr]) -> Result<(), Failure> {
    disable_ipv6(HOST_INTERFACE)?;
    netlink::run(async |handle: Handle| {
        bring_up(&handle, "lo").await?;
        let interface = index(HOST_INTERFACE)?;
        add_address(&handle, interface, address).await?;
        bring_up(&handle, HOST_INTERFACE).await?;
        add_neighbours(&handle, interface, neighbours).await
    })
}

/// Takes the host's link down, as a loss of power does: nothing gets out from here on. The kernel keeps the
/// address and forgets the neighbours.
pub(super) fn take_down() -> Result<(), Failure> {
    netlink::run(async |handle: Handle| {
        let down = LinkUnspec::new_with_name(HOST_INTERFACE).down().build();
        handle
            .link()
            .set(down)
            .execute()
            .await
            .map_err(|e| netlink::failure(format!("take {HOST_INTERFACE} down"), &e))
    })
}

/// Brings the host's link up again, with its neighbours.
pub(super) fn bring_back(neighbours: &[Ipv4Addr]) -> Result<(), Failure> {
    netlink::run(async |handle: Handle| {
        bring_up(&handle, HOST_INTERFACE).await?;
        add_neighbours(&handle, index(HOST_INTERFACE)?, neighbours).await
    })
}

/// Adds the hardware addresses of those hosts and of the controller.
async fn add_neighbours(
    handle: &Handle,
    interface: u32,
    neighbours: &[Ipv4Addr],
) -> Result<(), Failure> {
    for &neighbour in neighbours.iter().chain([&CONTROLLER_ADDRESS]) {
        add_neighbour(handle, interface, neighbour).await?;
    }
    Ok(())
}

async fn bring_up(handle: &Handle, name: &str) -> Result<(), Failure> {
    let up = LinkUnspec::new_with_name(name).up().build();
    handle
        .link()
        .set(up)
        .execute()
        .await
        .map_err(|e| netlink::failure(format!("bring {name} up"), &e))
}

async fn add_address(handle: &Handle, interface: u32, address: Ipv4Addr) -> Result<(), Failure> {
    let request = handle
        .address()
        .add(interface, IpAddr::V4(address), PREFIX_LEN);
    request
        .execute()
        .await
        .map_err(|e| netlink::failure(format!("add the address {address}"), &e))
}

async fn add_neighbour(handle: &Handle, interface: u32, address: Ipv4Addr) -> Result<(), Failure> {
    let request = handle.neighbours().add(interface, IpAddr::V4(address));
    let request = request
        .link_layer_address(&hardware_address(address))
        .replace();
    request
        .execute()
        .await
        .map_err(|e| netlink::failure(format!("add the neighbour {address}"), &e))
}

fn index(name: &str) -> Result<u32, Failure> {
    syscalls::interface_index(name)
        .map_err(|e| Failure::new(Step::Network, format!("find the interface {name}"), e))
}

/// Keeps router solicitations and duplicate address detection off an interface (`default`: of those made
/// later). A kernel without IPv6 has nothing to switch off.
fn disable_ipv6(interface: &str) -> Result<(), Failure> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match fs::write(&path, "1") {
        Err(e) if e.raw_os_error() != Some(Errno::ENOENT as i32) => {
            Err(Failure::io(Step::Network, format!("write {path}"), &e))
        }
        _ => Ok(()),
    }
}
