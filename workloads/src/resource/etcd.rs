//! `etcd`: the protected value lives in the same cluster as the lock.
//!
//! A register is one key, its value a JSON array of elements, its version the key's mod revision. A write is
//! a plain put, or, with a guard, a transaction that etcd carries out only while the lock's key is the one
//! that was acquired. It knows nothing of fencing tokens besides that: etcd compares for equality only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::etcd::{Compare, DATA_PREFIX, EtcdClient, RequestOp, TxnRequest};
use crate::lock::Guard;
use crate::reply::Reply;
use crate::resource::{Resource, ResourceConfig, ResourceSpec, Snapshot, Write, foreign_guard};

/// The registry's line.
pub const SPEC: ResourceSpec = ResourceSpec {
    name: "etcd",
    summary: "Keys of the lock's own etcd cluster; a write can be made to depend on the lock's key.",
    backend: "etcd",
    enforces_tokens: false,
    guards_writes: true,
    connect,
};

fn connect(config: ResourceConfig) -> BoxFuture<'static, Result<Arc<dyn Resource>, String>> {
    async move {
        let endpoint = config.endpoint.ok_or_else(|| {
            "resource `etcd` expects the address of an etcd node, found none: give its cluster at least one node"
                .to_owned()
        })?;
        let limit = Duration::from_millis(config.request_timeout_ms);
        let etcd = EtcdClient::connect(endpoint, limit).await.map_err(|error| format!("resource `etcd` expects an etcd node that accepts connections: {error}; see the node's log"))?;
        Ok(Arc::new(Registers { etcd, limit }) as Arc<dyn Resource>)
    }
    .boxed()
}

struct Registers {
    etcd: EtcdClient,
    limit: Duration,
}

fn register(key: &str) -> Vec<u8> {
    format!("{DATA_PREFIX}{key}").into_bytes()
}

fn version(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

impl Registers {
    async fn read(&self, key: &str) -> Reply<Snapshot> {
        let found = match self.etcd.get(&register(key), self.limit).await {
            Ok(found) => found,
            Err(error) => return error.reply(),
        };
        let Some(found) = found else {
            return Reply::Ok(Snapshot::default());
        };
        Snapshot::read(key, version(found.mod_revision), &found.value)
    }

    async fn write(&self, write: Write<'_>) -> Reply<u64> {
        let (key, value) = (
            register(write.key),
            serde_json::json!(write.elements).to_string(),
        );
        let (lock, created) = match write.guard {
            Some(Guard::Etcd {
                key,
                create_revision,
            }) => (key, *create_revision),
            Some(other) => return foreign_guard("etcd", other),
            None => {
                let written = self.etcd.put(&key, value.into_bytes(), self.limit).await;
                return written.map_or_else(
                    |error| error.reply(),
                    |revision| Reply::Ok(version(revision)),
                );
            }
        };
        let request = TxnRequest {
            compare: vec![Compare::created_at(lock, created)],
            success: vec![RequestOp::put(&key, value, 0)],
            failure: Vec::new(),
        };
        match self.etcd.txn(request, self.limit).await {
            Ok((answer, revision)) if answer.succeeded => Reply::Ok(version(revision)),
            Ok(_) => {
                let lock = String::from_utf8_lossy(lock);
                let text = format!("`{lock}` is no longer the key created at revision {created}");
                Reply::fail("guard-failed", text)
            }
            Err(error) => error.reply(),
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
        self.read(key).boxed()
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Reply<u64>> {
        self.write(write).boxed()
    }
}
