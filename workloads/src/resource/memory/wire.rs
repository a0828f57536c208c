//! The lines between a worker and the controller's memory store. Either side may be frozen between two lines.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::line::client;
use crate::reply::{Reason, Reply};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Read a register.
    #[default]
    Read,
    /// Replace a register's content.
    Write,
    /// Wait for the lock `memory` and take it.
    Acquire,
    /// Give the lock `memory` back.
    Release,
}

/// One request. Fields that its verb does not use are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<'a> {
    /// Chosen by the client; the answer carries it.
    pub id: u64,
    /// What is asked for.
    #[serde(rename = "do")]
    pub verb: Verb,
    /// The register, or the lock.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// The operation behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<u64>,
    /// The new content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Cow<'a, [u64]>>,
    /// The fencing token of a read or write; the grant that a release gives back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The request's.
    pub id: u64,
    /// Version of the register read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Content of the register read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Vec<u64>>,
    /// Token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Why the request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// Why a request was refused. It then had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The write's token is older than one that was accepted before.
    StaleToken,
    /// The store enforces tokens and the write had none.
    NoToken,
    /// The lock is not held with that token.
    NotHeld,
}

impl Answer {
    /// Turns the answer into the outcome of its operation.
    pub fn into_reply<T>(self, value: impl FnOnce(Self) -> T) -> Reply<T> {
        match self.refused {
            None => Reply::Ok(value(self)),
            Some(refusal) => Reply::Fail(Reason::new(refusal.code(), "")),
        }
    }
}

impl Refusal {
    /// The reason code in a history.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Refusal::StaleToken => "stale-token",
            Refusal::NoToken => "no-token",
            Refusal::NotHeld => "not-held",
        }
    }
}

impl client::Answer for Answer {
    fn id(&self) -> u64 {
        self.id
    }
}
