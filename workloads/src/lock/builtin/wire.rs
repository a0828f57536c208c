//! The lines between a `builtin` lock client and its server.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::line::client;
use crate::reply::{Reason, Reply};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Wait for the lock and take it with a fresh lease.
    Acquire,
    /// Start the lease's time anew.
    Renew,
    /// Give the lock back.
    Release,
    /// Answer at once: the server is ready.
    Ping,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<'a> {
    /// Chosen by the client; the answer carries it.
    pub id: u64,
    /// What is asked for.
    #[serde(rename = "do")]
    pub verb: Verb,
    /// The lock.
    #[serde(borrow)]
    pub lock: Cow<'a, str>,
    /// The logical client.
    pub owner: u32,
    /// Lease time-to-live in milliseconds (acquire and renew).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long the client waits in the queue, in milliseconds (acquire). Without it, for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The grant's token (renew and release).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The request's.
    pub id: u64,
    /// Fencing token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Why the request was refused; it then had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Answer {
    /// The outcome of an operation whose request was refused.
    pub(super) fn refusal<T>(self) -> Reply<T> {
        match self.refused {
            Some(text) => Reply::Fail(Reason::new("refused", text)),
            None => Reply::info("bad-answer", "neither a token nor a refusal"),
        }
    }
}

impl client::Answer for Answer {
    fn id(&self) -> u64 {
        self.id
    }
}
