//! The sandbox of a run: fresh namespaces, one init process a host, and a network between the hosts.
//!
//! ```text
//! fencepost run …            launcher      Sandbox::start, interrupt, wait
//!  └ fencepost sandbox-init  PID 1 of fresh user (unless root), pid, mount, net, ipc and uts namespaces
//!     └ fencepost controller …             Inside::read, Network::create, Host::start
//!        ├ fencepost host-init  n1: PID 1 of its own pid, mount, net, ipc and uts namespaces
//!        │  └ the server                   Host::spawn
//!        └ fencepost host-init  c1 …
//! ```
//!
//! Two rules make that nothing outlives a run, however it ends. Every process lives below a PID 1 that
//! dies with its parent's pipe or socket, and the kernel kills a PID namespace with its PID 1. And
//! whatever the kernel would keep (cgroup directories) is made and removed by the sandbox init, which
//! outlives the launcher by just that long.
//!
//! This module knows hosts, processes and addresses. It must not know backends, workloads or faults.
//! It works as root and as an ordinary user; what is missing without root is a reason in words
//! ([`Sandbox::cgroup`]), never a silent difference.

mod addresses;
mod cgroup;
mod control;
mod error;
mod host;
mod host_init;
mod init;
mod inside;
mod launcher;
mod mounts;
mod netlink;
mod network;
mod process;
mod scratch;
mod selftest;
mod signals;
mod sockets;
mod spawn;
mod syscalls;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

pub use addresses::{CONTROLLER_ADDRESS, PREFIX_LEN, client_address, helper_address, node_address};
pub use error::{Failure, SandboxError, Step};
pub use host::{Host, HostSpec, Under};
pub use inside::Inside;
pub use launcher::{ControllerEnd, Sandbox, SandboxSpec};
pub use network::{Network, NetworkKind};
pub use process::{Exits, Process, ProcessExit, ProcessSpec};
pub use signals::End;

/// Hidden subcommand of the sandbox's PID 1.
const SANDBOX_INIT: &str = "sandbox-init";
/// Hidden subcommand of a host's PID 1.
const HOST_INIT: &str = "host-init";
/// Hidden subcommand that tries the whole sandbox out; see `selftest.rs`.
const SELFTEST: &str = "sandbox-selftest";

/// Runs the hidden subcommands of this module. `main` calls it first, before it starts a thread or
/// parses anything, with all its arguments (`std::env::args_os()`), and returns the code if there is one.
#[must_use]
pub fn dispatch(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    match args.next()?.to_str()? {
        SANDBOX_INIT => Some(init::main(args.collect())),
        HOST_INIT => Some(host_init::main()),
        SELFTEST => Some(selftest::main(args.collect())),
        _ => None,
    }
}
