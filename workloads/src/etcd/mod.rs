//! The etcd v3 client that the etcd locks, the etcd resource and the controller's observer share.
//!
//! It speaks gRPC with hand-declared messages, so that no `protoc` is needed, and behaves as the official
//! Go client does where that is part of what a lock promises (keep-alive, watch resume). It must not
//! retry a request, pick another endpoint, or decide what a holder does about a lost lease.

mod client;
mod errors;
mod keep_alive;
mod observe;
mod session;
mod watch;
mod wire;

pub use client::{EtcdClient, KeyValue, LeaseGrant, Member, Status};
pub use errors::{Effect, EtcdError};
pub use observe::{LockSeen, LockWatch, WatchGap, status, watch_locks};

pub(crate) use keep_alive::Lessor;
pub(crate) use session::Session;
pub(crate) use watch::{Watch, WatchEnd};
pub(crate) use wire::{Compare, EventKind, RangeRequest, RequestOp, ResponseOp, TxnRequest};

use crate::lock::LockConfig;

/// Every lock lives below this prefix: lock `l0` is the etcd lock `fencepost/lock/l0`, and whoever holds or
/// awaits it has the key `fencepost/lock/l0/<lease in hexadecimal>`.
pub const LOCK_PREFIX: &str = "fencepost/lock/";

/// Every register of the resource `etcd` is the key `fencepost/data/<register>`.
pub const DATA_PREFIX: &str = "fencepost/data/";

/// The etcd name of a lock.
#[must_use]
pub fn lock_name(lock: &str) -> String {
    format!("{LOCK_PREFIX}{lock}")
}

/// Opens the connection that a lock's configuration asks for.
pub(crate) async fn connect_for_lock(
    lock: &str,
    config: &LockConfig,
) -> Result<EtcdClient, String> {
    let endpoint = config.endpoint.ok_or_else(|| {
        format!("lock `{lock}` expects the address of an etcd node, found none: give its cluster at least one node")
    })?;
    EtcdClient::connect(endpoint, config.request_timeout()).await.map_err(|error| {
        format!("lock `{lock}` expects an etcd node that accepts connections: {error}; see the node's log")
    })
}
