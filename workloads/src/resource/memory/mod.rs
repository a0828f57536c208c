//! The resource `memory`: registers in the controller, behind a Unix socket.
//!
//! It is the perfect shared state of the Jepsen test: it has no faults of its own and knows the true
//! order of every access, which it reports to the history. It can enforce fencing tokens or merely
//! record them. The same store keeps the lock `memory`.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Resource, ResourceConfig, ResourceSpec, Snapshot, Write};
use crate::line::client::{Address, CallError, LineClient};
use crate::reply::Reply;

pub mod server;
pub mod store;
pub mod wire;

use wire::{Answer, Request, Verb};

/// Registry entry.
pub const SPEC: ResourceSpec = ResourceSpec {
    name: "memory",
    summary: "registers in the controller: perfect shared state that knows the true order of every access",
    backend: "",
    enforces_tokens: true,
    guards_writes: false,
    connect: |config| async move { connect(&config) }.boxed(),
};

fn connect(config: &ResourceConfig) -> Result<Arc<dyn Resource>, String> {
    Ok(Arc::new(MemoryResource {
        client: LineClient::new(Address::Unix(config.memory.clone())),
    }))
}

struct MemoryResource {
    client: LineClient<Answer>,
}

impl Resource for MemoryResource {
    fn read<'a>(
        &'a self,
        key: &'a str,
        op: Option<u64>,
        token: Option<u64>,
    ) -> BoxFuture<'a, Reply<Snapshot>> {
        async move {
            let request = |id| Request {
                id,
                verb: Verb::Read,
                key: Some(key.into()),
                op,
                token,
                ..Request::default()
            };
            match self.client.call(request).await {
                Ok(answer) => answer.into_reply(|answer| Snapshot {
                    version: answer.version.unwrap_or_default(),
                    elements: answer.elements.unwrap_or_default(),
                }),
                // A read that got no answer changed nothing.
                Err(CallError::NotSent(text) | CallError::Broken(text)) => {
                    Reply::fail("disconnected", text)
                }
            }
        }
        .boxed()
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Reply<u64>> {
        async move {
            let request = |id| Request {
                id,
                verb: Verb::Write,
                key: Some(write.key.into()),
                op: Some(write.op),
                elements: Some(write.elements.into()),
                token: write.token,
            };
            match self.client.call(request).await {
                Ok(answer) => answer.into_reply(|answer| answer.version.unwrap_or_default()),
                Err(CallError::NotSent(text)) => Reply::fail("disconnected", text),
                Err(CallError::Broken(text)) => Reply::info("disconnected", text),
            }
        }
        .boxed()
    }
}
