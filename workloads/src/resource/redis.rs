//! `redis`: the protected value lives in the same Redis as the lock.
//!
//! A register is a hash: its elements as a JSON array, and a version that each write raises in the same script. With
//! a guard the script writes only while the lock's key holds the writer's value. A primary that is replaced takes
//! whatever had not reached its replica with it, locks and registers alike.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::lock::Guard;
use crate::redis::{Command, DATA_PREFIX, GUARDED_WRITE, Route, Value, WRITE};
use crate::reply::Reply;
use crate::resource::{Resource, ResourceConfig, ResourceSpec, Snapshot, Write, foreign_guard};

/// The registry's line.
pub const SPEC: ResourceSpec = ResourceSpec {
    name: "redis",
    summary: "Hashes in the lock's own Redis; a write can be made to depend on the lock's value.",
    backend: "redis",
    enforces_tokens: false,
    guards_writes: true,
    connect,
};

fn connect(config: ResourceConfig) -> BoxFuture<'static, Result<Arc<dyn Resource>, String>> {
    async move {
        let limit = Duration::from_millis(config.request_timeout_ms);
        let route = match config.endpoint {
            _ if !config.helpers.is_empty() => Route::by_sentinels(config.helpers, limit),
            Some(node) => Route::to(node, limit),
            None => {
                return Err("resource `redis` expects the address of a Redis, found none: give its cluster at least one node".to_owned());
            }
        };
        route.connection().await.map_err(|error| {
            format!("resource `redis` expects a Redis that accepts connections: {error}; see the node's log")
        })?;
        Ok(Arc::new(Registers { route, limit }) as Arc<dyn Resource>)
    }
    .boxed()
}

struct Registers {
    route: Route,
    limit: Duration,
}

impl Registers {
    async fn read(&self, key: &str) -> Reply<Snapshot> {
        let register = format!("{DATA_PREFIX}{key}");
        let command = Command::read("HMGET", &["HMGET", &register, "version", "elements"]);
        let answer = match self.route.call(&command, self.limit).await {
            Ok(answer) => answer,
            Err(error) => return error.reply(),
        };
        let [version, elements] = answer.elements() else {
            return Reply::fail("bad-value", format!("register `{key}`: {answer:?}"));
        };
        if *version == Value::Nil {
            return Reply::Ok(Snapshot::default());
        }
        let read = || {
            Some(Snapshot {
                version: version.text()?.parse().ok()?,
                elements: serde_json::from_str(elements.text()?).ok()?,
            })
        };
        match read() {
            Some(snapshot) => Reply::Ok(snapshot),
            None => Reply::fail(
                "bad-value",
                format!(
                    "register `{key}`: expected a version and a JSON array of numbers, found {answer:?}"
                ),
            ),
        }
    }

    async fn write(&self, write: Write<'_>) -> Reply<u64> {
        let register = format!("{DATA_PREFIX}{}", write.key);
        let elements = serde_json::json!(write.elements).to_string();
        let command = match write.guard {
            None => Command::script(&WRITE, &[&register], &[&elements]),
            Some(Guard::Redis { key, value }) => {
                Command::script(&GUARDED_WRITE, &[&register, key], &[&elements, value])
            }
            Some(other) => return foreign_guard("Redis", other),
        };
        match self.route.call(&command, self.limit).await {
            Ok(Value::Integer(version)) if version > 0 => Reply::Ok(version.unsigned_abs()),
            Ok(_) => Reply::fail("guard-failed", "the lock's key is gone or another's"),
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
