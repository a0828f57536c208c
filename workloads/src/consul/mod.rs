//! The Consul client that the Consul locks, the Consul resource and the controller's observer share.
//!
//! It speaks the HTTP API over plain connections to one server and behaves as the official Go client does
//! where that is part of what a lock promises (renewals, monitor). It must not retry a request, pick another
//! server, or decide what a holder does about a lost session.

mod client;
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
pub(crate) use monitor::{Monitor, Monitoring};
pub(crate) use options::{BEHAVIOUR, CHECKS, LOCK_DELAY, PUBLISH, TOKEN};
pub(crate) use session::{Renewals, Session};

use crate::lock::{Grant, Guard, LockConfig};
use crate::reply::Reply;

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

/// Opens the connection that a lock's configuration asks for.
pub(crate) async fn connect_for_lock(
    lock: &str,
    config: &LockConfig,
) -> Result<ConsulClient, String> {
    let endpoint = config.endpoint.ok_or_else(|| {
        format!("lock `{lock}` expects the address of a Consul server, found none: give its cluster at least one node")
    })?;
    let connected = ConsulClient::connect(endpoint, config.request_timeout()).await;
    connected.map_err(|error| {
        format!("lock `{lock}` expects a Consul server that accepts connections: {error}; see the node's log")
    })
}

/// What a holder does first: it reads its fencing token from the lock's key, and, with the option
/// `publish`, then writes to that key. An error leaves a lock that was granted but cannot be used as it is
/// meant to be.
pub(crate) async fn first_look(
    client: &ConsulClient,
    config: &LockConfig,
    key: &str,
    session: &str,
) -> Reply<Grant> {
    let limit = config.request_timeout();
    let unusable = |error: ConsulError| {
        let reason = error.reason();
        Reply::info(
            reason.code,
            format!("granted, but its key could not be used: {}", reason.text),
        )
    };
    let token = token(config);
    let entry = match client.get(key, Query::now(Mode::Consistent), limit).await {
        Ok((entry, _)) => entry.filter(|entry| entry.session == session),
        Err(error) => return unusable(error),
    };
    let Some(entry) = entry else {
        return Reply::Ok(Grant {
            dead_on_arrival: true,
            ..Grant::default()
        });
    };
    if config.options.flag(&PUBLISH) {
        let value = format!("{} published", token.name());
        if let Err(error) = client.put(key, &value, limit).await {
            return unusable(error);
        }
    }
    Reply::Ok(Grant {
        token: Some(match token {
            Token::ModifyIndex => entry.modify_index,
            Token::LockIndex => entry.lock_index,
        }),
        dead_on_arrival: false,
        guard: Some(Guard::Consul {
            key: key.to_owned(),
            session: session.to_owned(),
        }),
    })
}

/// The kind of token that a lock's configuration asks for.
pub(crate) fn token(config: &LockConfig) -> Token {
    Token::find(config.options.text(&TOKEN)).unwrap_or(Token::ModifyIndex)
}
