//! The ZooKeeper client that the lock, the resource and the controller's observer share.
//!
//! It speaks the few requests that are needed itself, because a client library's hidden reconnects would
//! falsify histories, and behaves as the official Java handle does where that is part of what a lock
//! promises (pings, reconnection to take a session up, watches that are set again). It must not make a
//! request twice, pick another server, or decide what a holder does about a lost session.

mod connection;
mod errors;
mod handle;
mod jute;
mod observe;
mod requests;
mod session;
mod wire;

pub use errors::{Effect, ZkError};
pub use observe::{LockSeen, ServerStatus, status, watch_locks};
pub use requests::Multi;
pub use session::{Session, SessionConfig, SessionEvent, Told};
pub use wire::{CreateMode, EventKind, Op, Stat, WatchEvent};

/// Every lock lives below this node: lock `l0` is `/fencepost/lock/l0`, and whoever holds or awaits it has a
/// child of that, which goes with its session.
pub const LOCK_ROOT: &str = "/fencepost/lock";

/// Every register of the resource `zookeeper` is a node below this one.
pub const DATA_ROOT: &str = "/fencepost/data";

/// The node name of a lock or a register, whose own name may have slashes.
#[must_use]
pub fn node_name(name: &str) -> String {
    name.replace('/', ":")
}
