//! `consul`: the protected value lives in the same cluster as the lock.
//!
//! A register is one key, its value a JSON array of elements, its version the key's ModifyIndex. A write is a
//! transaction, for only those tell the index of what they wrote; with a guard Consul carries it out only
//! while the lock's key is held by the session that acquired it (`check-session`). It knows nothing of
//! fencing tokens besides that: Consul compares for equality only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::consul::{ConsulClient, DATA_PREFIX, Mode, Query, Written};
use crate::lock::Guard;
use crate::reply::Reply;
use crate::resource::{Resource, ResourceConfig, ResourceSpec, Snapshot, Write, foreign_guard};

/// The registry's line.
pub const SPEC: ResourceSpec = ResourceSpec {
    name: "consul",
    summary: "Keys of the lock's own Consul cluster; a write can be made to depend on the lock's session.",
    backend: "consul",
    enforces_tokens: false,
    guards_writes: true,
    connect,
};

fn connect(config: ResourceConfig) -> BoxFuture<'static, Result<Arc<dyn Resource>, String>> {
    async move {
        let endpoint = config.endpoint.ok_or_else(|| {
            "resource `consul` expects the address of a Consul server, found none: give its cluster at least one node"
                .to_owned()
        })?;
        let limit = Duration::from_millis(config.request_timeout_ms);
        let consul = ConsulClient::connect(endpoint, limit).await.map_err(|error| {
            format!("resource `consul` expects a Consul server that accepts connections: {error}; see the node's log")
        })?;
        Ok(Arc::new(Registers { consul, limit }) as Arc<dyn Resource>)
    }
    .boxed()
}

struct Registers {
    consul: ConsulClient,
    limit: Duration,
}

fn register(key: &str) -> String {
    format!("{DATA_PREFIX}{key}")
}

impl Registers {
    async fn read(&self, key: &str) -> Reply<Snapshot> {
        let query = Query::now(Mode::Consistent);
        let found = match self.consul.get(&register(key), query, self.limit).await {
            Ok((found, _)) => found,
            Err(error) => return error.reply(),
        };
        let Some(found) = found else {
            return Reply::Ok(Snapshot::default());
        };
        let value = found.bytes().unwrap_or_default();
        Snapshot::read(key, found.modify_index, &value)
    }

    async fn write(&self, write: Write<'_>) -> Reply<u64> {
        let guard = match write.guard {
            None => None,
            Some(Guard::Consul { key, session }) => Some((key.as_str(), session.as_str())),
            Some(other) => return foreign_guard("Consul", other),
        };
        let (key, value) = (
            register(write.key),
            serde_json::json!(write.elements).to_string(),
        );
        match self.consul.set(&key, &value, guard, self.limit).await {
            Ok(Written::At(index)) => Reply::Ok(index),
            Ok(Written::Refused(why)) => Reply::fail("guard-failed", why),
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
