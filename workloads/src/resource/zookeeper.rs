//! `zookeeper`: the protected value lives in the same ensemble as the lock.
//!
//! A register is one node, its data a JSON array of elements, its version the zxid of its latest change. A
//! read waits first until its server has caught up (`sync`), for a server's own reads may be old. A write is
//! a plain `setData`, or, with a guard, a `multi` that the ensemble carries out only while the lock's node is
//! there. It knows nothing of fencing tokens besides that.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::belief::Belief;
use crate::lock::Guard;
use crate::reply::Reply;
use crate::resource::{Resource, ResourceConfig, ResourceSpec, Snapshot, Write, foreign_guard};
use crate::zookeeper::{
    CreateMode, DATA_ROOT, Multi, Op, Session, SessionConfig, Stat, Told, ZkError, node_name,
};

/// The registry's line.
pub const SPEC: ResourceSpec = ResourceSpec {
    name: "zookeeper",
    summary: "Nodes of the lock's own ZooKeeper ensemble; a write can be made to depend on the lock's node.",
    backend: "zookeeper",
    enforces_tokens: false,
    guards_writes: true,
    connect,
};

/// Nothing of ours goes with the session: it need only outlive the faults. Servers grant less if they must.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A register that nobody has written.
const EMPTY: &[u8] = b"[]";

fn connect(config: ResourceConfig) -> BoxFuture<'static, Result<Arc<dyn Resource>, String>> {
    async move {
        let endpoint = config.endpoint.ok_or_else(|| {
            "resource `zookeeper` expects the address of a ZooKeeper server, found none: give its cluster at least one node"
                .to_owned()
        })?;
        let registers = Registers {
            endpoint,
            limit: Duration::from_millis(config.request_timeout_ms),
            session: Mutex::new(None),
        };
        registers.session().await.map_err(|error| {
            format!("resource `zookeeper` expects a ZooKeeper server that serves: {error}; see the node's log")
        })?;
        Ok(Arc::new(registers) as Arc<dyn Resource>)
    }
    .boxed()
}

struct Registers {
    endpoint: SocketAddr,
    limit: Duration,
    session: Mutex<Option<Arc<Session>>>,
}

fn register(key: &str) -> String {
    format!("{DATA_ROOT}/{}", node_name(key))
}

fn version(stat: &Stat) -> u64 {
    if stat.version == 0 {
        0 // created, but never written
    } else {
        stat.mzxid.unsigned_abs()
    }
}

impl Registers {
    /// The session; a new one when the old one is over. No request is made twice for that.
    async fn session(&self) -> Result<Arc<Session>, ZkError> {
        let kept = || self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = kept().as_ref().filter(|session| session.over().is_none()) {
            return Ok(Arc::clone(session));
        }
        let config = SessionConfig {
            endpoint: self.endpoint,
            timeout: SESSION_TIMEOUT,
            keep_alive: true,
            told: Told::Expired,
        };
        let session = Session::open(config, Arc::new(Belief::new()), self.limit).await?;
        let session = Arc::new(session);
        *kept() = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Creates a register that is not there.
    async fn create(&self, session: &Session, path: &str) -> Result<(), ZkError> {
        session.make_path(DATA_ROOT, self.limit).await?;
        match session
            .create(path, EMPTY, CreateMode::Persistent, self.limit)
            .await
        {
            Err(error) if !error.is_node_exists() => Err(error),
            _ => Ok(()),
        }
    }

    async fn read(&self, key: &str) -> Result<Reply<Snapshot>, ZkError> {
        let (session, path) = (self.session().await?, register(key));
        session.sync(&path, self.limit).await?;
        let Some((data, stat)) = session.get_data(&path, false, self.limit).await? else {
            return Ok(Reply::Ok(Snapshot::default()));
        };
        Ok(Snapshot::read(key, version(&stat), &data))
    }

    async fn write(&self, write: Write<'_>) -> Result<Reply<u64>, ZkError> {
        let lock = match write.guard {
            None => None,
            Some(Guard::ZooKeeper { path }) => Some(path.as_str()),
            Some(other) => return Ok(foreign_guard("ZooKeeper", other)),
        };
        let (session, path) = (self.session().await?, register(write.key));
        let data = serde_json::json!(write.elements).to_string().into_bytes();
        let once = || self.set(&session, &path, &data, lock);
        Ok(match once().await {
            // Definitely not written: the register was not there yet.
            Err(error) if error.is_no_node() => {
                self.create(&session, &path).await?;
                once().await?
            }
            done => done?,
        })
    }

    async fn set(
        &self,
        session: &Session,
        path: &str,
        data: &[u8],
        lock: Option<&str>,
    ) -> Result<Reply<u64>, ZkError> {
        let Some(lock) = lock else {
            let stat = session.set_data(path, data, -1, self.limit).await?;
            return Ok(Reply::Ok(version(&stat)));
        };
        let ops = [
            // Nobody writes to the lock's node, and none is ever called the same again.
            Op::Check {
                path: lock,
                version: 0,
            },
            Op::SetData { path, data },
        ];
        match session.multi(&ops, self.limit).await? {
            Multi::Done(stat) => Ok(Reply::Ok(version(&stat.unwrap_or_default()))),
            Multi::Refused { index: 0, why } => {
                let text = format!("`{lock}` is no longer there: {}", why.reason());
                Ok(Reply::fail("guard-failed", text))
            }
            Multi::Refused { why, .. } => Err(why),
        }
    }
}

impl Resource for Registers {
    fn read<'a>(
        &'a self,
        key: &'a str,
        _op: Option<u64>,
        _token: Option<u64>,
    ) -> BoxFuture<'a, Reply<Snapshot>> {
        async move { self.read(key).await.unwrap_or_else(|error| error.reply()) }.boxed()
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Reply<u64>> {
        async move {
            self.write(write)
                .await
                .unwrap_or_else(|error| error.reply())
        }
        .boxed()
    }
}
