//! The network between the hosts: a bridge in the sandbox and a veth pair a host.
//!
//! Loss, delay and partitions are not made here. Everything that would add noise is off: spanning tree and
//! its forwarding delay, multicast snooping, IPv6 autoconfiguration, and ARP for the hosts that are known
//! (permanent neighbour entries, which also do not count against the kernel's limit of 1024).

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use nix::errno::Errno;
use rtnetlink::packet_route::link::{BridgeStpState, InfoBridge, InfoData, InfoVeth};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};

use super::addresses::{CONTROLLER_ADDRESS, PREFIX_LEN, hardware_address};
use super::error::{Failure, SandboxError, Step};
use super::{netlink, syscalls};

/// The bridge's name.
const BRIDGE: &str = "fencepost";

/// The interface of a host, inside.
const HOST_INTERFACE: &str = "eth0";

/// The bridge to which hosts are attached. It goes away with the sandbox.
#[derive(Debug)]
pub struct Network {
    bridge_index: u32,
}

impl Network {
    /// Brings the loopback up and makes the bridge with the controller's address. Once a sandbox, by the
    /// controller.
    pub fn create() -> Result<Self, SandboxError> {
        disable_ipv6("default")?;
        netlink::run(async |handle: Handle| {
            bring_up(&handle, "lo").await?;
            let bridge = LinkBridge::new(BRIDGE)
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
            let bridge_index = index(BRIDGE)?;
            add_address(&handle, bridge_index, CONTROLLER_ADDRESS).await?;
            Ok(Self { bridge_index })
        })
        .map_err(Into::into)
    }

    /// Makes the veth pair of a host: one end on the bridge under the host's name, the other in the network
    /// namespace of `init_pid`. The controller knows the host's hardware address from then on.
    pub(super) fn attach(
        &self,
        name: &str,
        init_pid: i32,
        address: Ipv4Addr,
    ) -> Result<(), Failure> {
        let pair = || {
            let inner = LinkMessageBuilder::<LinkUnspec>::new()
                .name(HOST_INTERFACE)
                .address(hardware_address(address).to_vec())
                .setns_by_pid(init_pid.unsigned_abs())
                .build();
            LinkVeth::new(name, HOST_INTERFACE)
                .set_info_data(InfoData::Veth(InfoVeth::Peer(inner)))
                .controller(self.bridge_index)
                .up()
                .build()
        };
        let what = format!("connect host {name} to the bridge");
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
            add_neighbour(&handle, self.bridge_index, address).await
        })
    }
}

/// Configures the network of the host that this process is the init of, after [`Network::attach`].
pub(super) fn configure_host(address: Ipv4Addr, neighbours: &[Ipv4Addr]) -> Result<(), Failure> {
    disable_ipv6(HOST_INTERFACE)?;
    netlink::run(async |handle: Handle| {
        bring_up(&handle, "lo").await?;
        let interface = index(HOST_INTERFACE)?;
        add_address(&handle, interface, address).await?;
        bring_up(&handle, HOST_INTERFACE).await?;
        for &neighbour in neighbours
            .iter()
            .chain([&CONTROLLER_ADDRESS])
            .filter(|&&n| n != address)
        {
            add_neighbour(&handle, interface, neighbour).await?;
        }
        Ok(())
    })
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
