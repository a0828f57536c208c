//! Lock clients: how a lock is held. One file a lock, one line each in [`LOCKS`].
//!
//! A lock client behaves as the documented client of its service does, timeouts and silences included:
//! one bare connection to one node, explicit deadlines, no hidden retries. It must not decide what a
//! holder does when its lease is gone; that is the [discipline](crate::discipline).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::option::{OptionSpec, Options};
use crate::reply::Reply;

pub mod builtin;
pub mod consul_command;
pub mod consul_kv;
pub mod consul_lock;
pub mod etcd_mutex;
pub mod etcd_v3lock;
pub mod memory;
pub mod none;
pub mod redis_exclusive_lease;
pub mod redis_lock;
pub mod redlock;
pub mod zookeeper;

/// A kind of lock.
pub struct LockSpec {
    /// Name in scenario files.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The backend it needs; empty for a lock that needs no server.
    pub backend: &'static str,
    /// What its fencing token is.
    pub token: &'static str,
    /// Whether it is held by a lease that can run out.
    pub leased: bool,
    /// The holder disciplines that make sense with it.
    pub disciplines: &'static [Discipline],
    /// Settings that only it has.
    pub options: &'static [OptionSpec],
    /// Says what was expected of values that are right each for itself, if the lock cannot be held so.
    pub check: fn(&LockAsk<'_>) -> Result<(), String>,
    /// Opens one connection to one node.
    pub connect: fn(LockConfig) -> Connecting,
}

/// What a scenario asks of a lock, before anything runs.
#[derive(Clone, Copy, Debug)]
pub struct LockAsk<'a> {
    /// Number of nodes of the cluster.
    pub nodes: u32,
    /// Lease time-to-live in milliseconds.
    pub ttl_ms: u64,
    /// Whether the lease is kept alive in the background.
    pub keep_alive: bool,
    /// What a holder does about a lost lock.
    pub discipline: Discipline,
    /// The lock's options, with their defaults.
    pub options: &'a Options,
    /// The options of the lock service, with their defaults.
    pub cluster: &'a Options,
}

/// A connection that is being opened, or why it cannot be.
pub type Connecting = BoxFuture<'static, Result<Box<dyn LockConnection>, String>>;

/// Every lock there is.
pub const LOCKS: &[LockSpec] = &[
    etcd_v3lock::SPEC,
    etcd_mutex::SPEC,
    consul_lock::SPEC,
    consul_kv::SPEC,
    consul_command::SPEC,
    zookeeper::SPEC,
    redis_lock::SPEC,
    redis_exclusive_lease::SPEC,
    redlock::SPEC,
    builtin::SPEC,
    memory::SPEC,
    none::SPEC,
];

/// The lock of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static LockSpec> {
    LOCKS.iter().find(|spec| spec.name == name)
}

/// What a lock client needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockConfig {
    /// The one node to talk to; absent for locks without a server.
    pub endpoint: Option<SocketAddr>,
    /// Where every node serves clients, in the order of the nodes: for locks that live on several.
    #[serde(default)]
    pub endpoints: Vec<SocketAddr>,
    /// Where the helpers beside the nodes serve clients, for example Sentinels.
    #[serde(default)]
    pub helpers: Vec<SocketAddr>,
    /// The words that start the service's own program, for locks that are one of its commands.
    #[serde(default)]
    pub program: Vec<String>,
    /// Version of the server, for instance `3.4.23`: recipes differ by version.
    pub version: String,
    /// Socket of the controller's memory store.
    pub memory: PathBuf,
    /// Lease time-to-live in milliseconds.
    pub ttl_ms: u64,
    /// Whether the lease is kept alive in the background.
    pub keep_alive: bool,
    /// Limit of one request that answers at once, in milliseconds.
    pub request_timeout_ms: u64,
    /// Limit of waiting for the lock, in milliseconds.
    pub acquire_timeout_ms: u64,
    /// Settings that only this lock has.
    #[serde(default)]
    pub options: Options,
}

impl LockConfig {
    /// [`Self::ttl_ms`] as a duration.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    /// [`Self::request_timeout_ms`] as a duration.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// [`Self::acquire_timeout_ms`] as a duration.
    #[must_use]
    pub fn acquire_timeout(&self) -> Duration {
        Duration::from_millis(self.acquire_timeout_ms)
    }
}

/// One connection, shared by the logical clients of one worker, as threads of one process share a client library.
pub trait LockConnection: Send + Sync {
    /// A new logical client, which writes what it learns about its lease to `belief`.
    fn client(&self, client: u32, belief: Arc<Belief>) -> Box<dyn LockClient>;
}

/// One logical client. It does one thing at a time and holds one lock at a time.
pub trait LockClient: Send {
    /// Waits for the lock and takes it.
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>>;

    /// Gives the lock back.
    fn release<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<()>>;

    /// How often the latest acquire was woken while it waited, by whatever it waits with; absent where that
    /// is hidden in the service.
    fn wakes(&self) -> Option<u64> {
        None
    }

    /// Gives up whatever is still held, as a process does that ends in an orderly way.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// A lock that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token, if the service gives one.
    pub token: Option<u64>,
    /// True when the client looked right after the grant and its lock was already gone.
    pub dead_on_arrival: bool,
    /// What a store of the same service can compare to know that the lock is still held.
    pub guard: Option<Guard>,
}

/// The condition "this lock is still held as it was acquired", in the terms of the store that compares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The lock's key is still the one that was created then.
    Etcd {
        /// The lock's key.
        key: Vec<u8>,
        /// Its create revision.
        create_revision: i64,
    },
    /// The lock's key is still held by this session.
    Consul {
        /// The lock's key.
        key: String,
        /// The session.
        session: String,
    },
    /// The lock's node is still there: none is ever called the same again.
    ZooKeeper {
        /// The node.
        path: String,
    },
    /// The lock's key still has its holder's value.
    Redis {
        /// The lock's key.
        key: String,
        /// The value.
        value: String,
    },
}
