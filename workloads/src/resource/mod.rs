//! Protected resources: what a lock is meant to guard. One file a resource, one line each in [`RESOURCES`].
//!
//! A resource holds registers; a register holds a list of elements and a version that grows with each
//! write. A client reads the whole list and writes the whole list back, so that a lost update loses elements.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::lock::Guard;
use crate::reply::Reply;

pub mod consul;
pub mod etcd;
pub mod memory;
pub mod redis;
pub mod zookeeper;

/// A kind of resource.
pub struct ResourceSpec {
    /// Name in scenario files.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The backend it needs; empty for one that lives in the controller.
    pub backend: &'static str,
    /// Whether it can refuse a stale fencing token.
    pub enforces_tokens: bool,
    /// Whether it can make a write depend on the lock's own key.
    pub guards_writes: bool,
    /// Opens one connection.
    pub connect: fn(ResourceConfig) -> Connecting,
}

/// A connection that is being opened, or why it cannot be.
pub type Connecting = BoxFuture<'static, Result<Arc<dyn Resource>, String>>;

/// Every resource there is.
pub const RESOURCES: &[ResourceSpec] = &[
    memory::SPEC,
    etcd::SPEC,
    consul::SPEC,
    zookeeper::SPEC,
    redis::SPEC,
];

/// The resource of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ResourceSpec> {
    RESOURCES.iter().find(|spec| spec.name == name)
}

/// What a resource's client needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceConfig {
    /// The one node to talk to; absent for a resource in the controller.
    pub endpoint: Option<SocketAddr>,
    /// Where every node serves clients, in the order of the nodes.
    #[serde(default)]
    pub endpoints: Vec<SocketAddr>,
    /// Where the helpers beside the nodes serve clients, for example Sentinels.
    #[serde(default)]
    pub helpers: Vec<SocketAddr>,
    /// Socket of the controller's memory store.
    pub memory: PathBuf,
    /// Limit of one request, in milliseconds.
    pub request_timeout_ms: u64,
}

/// A connection to a resource, shared by the logical clients of one worker.
pub trait Resource: Send + Sync {
    /// Reads a register; one that was never written is empty and has version 0.
    /// `op` is the operation behind it (absent for the controller's own final read).
    /// `token` is the reader's fencing token: a resource that enforces tokens must see it here already, or
    /// an older holder's write could still slip in between this read and the write that is built on it.
    fn read<'a>(
        &'a self,
        key: &'a str,
        op: Option<u64>,
        token: Option<u64>,
    ) -> BoxFuture<'a, Reply<Snapshot>>;

    /// Replaces a register's content and returns its new version.
    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Reply<u64>>;
}

/// A register as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Grows with each write; 0 when never written.
    pub version: u64,
    /// The elements, in the order in which they were added.
    pub elements: Vec<u64>,
}

impl Snapshot {
    /// A register of this version that holds `value`, a JSON array of numbers.
    fn read(key: &str, version: u64, value: &[u8]) -> Reply<Self> {
        match serde_json::from_slice(value) {
            Ok(elements) => Reply::Ok(Self { version, elements }),
            Err(error) => {
                let value = String::from_utf8_lossy(value);
                let text = format!(
                    "register `{key}`: expected a JSON array of numbers, found `{value}`: {error}"
                );
                Reply::fail("bad-value", text)
            }
        }
    }
}

/// A write of a register's whole content.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The register.
    pub key: &'a str,
    /// The operation behind it.
    pub op: u64,
    /// The new content.
    pub elements: &'a [u64],
    /// The writer's fencing token, if it has one.
    pub token: Option<u64>,
    /// Write only if the lock's key is still there (discipline `txn`).
    pub guard: Option<&'a Guard>,
}

/// The answer to a write that is to depend on a lock of another backend than the resource's.
fn foreign_guard(expected: &str, found: &Guard) -> Reply<u64> {
    let text = format!("expected a lock of {expected} to depend on, found {found:?}");
    Reply::fail("foreign-guard", text)
}
