//! The Redis client that the Redis locks, the Redis resource and the controller's observer share.
//!
//! It speaks RESP2 over bare connections, and is small because of what client libraries add: time limits,
//! reconnections and second attempts of their own, which make a history untrue. It must not send a command twice,
//! or decide what a holder does about a lost lock. Sentinel is asked for the primary the way its client
//! guidelines say.

mod command;
mod connection;
mod errors;
mod keep_alive;
mod observe;
mod resp;
mod route;
mod sentinel;
mod topology;

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::ChaCha8Rng;

use crate::lock::LockConfig;
use crate::option::{OptionKind, OptionSpec};

pub use errors::{Effect, RedisError};
pub use observe::{Asker, LockSeen, LockWatch, Role, watch_locks};
pub use sentinel::{PRIMARY_NAME, SentinelView};
pub use topology::{TOPOLOGY, Topology};

pub(crate) use command::{
    ACQUIRE_WITH_TOKEN, Command, GUARDED_WRITE, RELEASE, RENEW, RENEW_SECONDS, WRITE,
};
pub(crate) use connection::Connection;
pub(crate) use keep_alive::{KeepAlive, Renewed};
pub(crate) use resp::Value;
pub(crate) use route::Route;

/// Lock `l0` is the key `fencepost:lock:l0`; its value is its holder's.
pub const LOCK_PREFIX: &str = "fencepost:lock:";

/// The grants of lock `l0` are counted in the key `fencepost:token:l0`.
pub const TOKEN_PREFIX: &str = "fencepost:token:";

/// Every register of the resource `redis` is the hash `fencepost:data:<register>`.
pub const DATA_PREFIX: &str = "fencepost:data:";

/// Option of locks whose waiters try again.
pub(crate) const fn retry_option(default: &'static str) -> OptionSpec {
    OptionSpec {
        name: "retry",
        kind: OptionKind::Millis {
            min: 1,
            max: 60_000,
        },
        default,
        about: "How long a waiter waits between two tries, on average: from half of it to one and a half.",
    }
}

/// The way that a lock's configuration asks for, opened: to the primary that the Sentinels name if there are any, else
/// to the worker's own node.
pub(crate) async fn route_for_lock(lock: &str, config: &LockConfig) -> Result<Route, String> {
    let limit = config.request_timeout();
    let route = match config.endpoint {
        _ if !config.helpers.is_empty() => Route::by_sentinels(config.helpers.clone(), limit),
        Some(node) => Route::to(node, limit),
        None => {
            return Err(format!(
                "lock `{lock}` expects the address of a Redis, found none: give its cluster at least one node"
            ));
        }
    };
    route.connection().await.map_err(|error| {
        format!(
            "lock `{lock}` expects a Redis that accepts connections: {error}; see the node's log"
        )
    })?;
    Ok(route)
}

/// A wait around `mean`: from half of it to one and a half, so that waiters do not march in step.
pub(crate) fn jittered(mean: Duration, rng: &mut ChaCha8Rng) -> Duration {
    mean.mul_f64(rng.random_range(0.5..1.5))
}
