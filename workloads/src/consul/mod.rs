//! The Consul client that the Consul locks, the Consul resource and the controller's observer share.
//!
//! It speaks the HTTP API over plain connections to one server and behaves as the official Go client does
//! where that is part of what a lock promises (renewals, monitor). It must not retry a request, pick another
//! server, or decide what a holder does about a lost session.

mod client;
mod contender;
mod errors;
mod http;
mod monitor;
mod observe;
mod options;
mod session;

pub use client::{ConsulClient, Entry, Mode, Query, Written};
pub use errors::{Cause, ConsulError, Effect};
pub use observe::{LockSeen, LockWatch, watch_locks};
pub use options::{SessionAsk, Token};

pub(crate) use client::LOCK_FLAG;
pub(crate) use contender::{Contender, RETRY_KIND, connect};
pub(crate) use monitor::{Monitor, Monitoring};
pub(crate) use options::{BEHAVIOUR, CHECKS, LOCK_DELAY, PUBLISH, TOKEN};
pub(crate) use session::{Renewals, Session};

/// Every lock is one key below this prefix: lock `l0` is `fencepost/lock/l0`. The first word of its value is
/// the [kind of token](Token) that its holder uses.
pub const LOCK_PREFIX: &str = "fencepost/lock/";

/// Every register of the resource `consul` is the key `fencepost/data/<register>`.
pub const DATA_PREFIX: &str = "fencepost/data/";

/// The key of a lock.
#[must_use]
pub fn lock_key(lock: &str) -> String {
    format!("{LOCK_PREFIX}{lock}")
}
