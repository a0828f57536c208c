//! The lock `memory`: a first-come lock in the controller, without a lease.
//!
//! It is the control for everything: a lock that never expires cannot be lost by a pause. It also
//! shows what the harness itself can do (`fencepost bench loop`).

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Grant, LockClient, LockConfig, LockConnection, LockSpec};
use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::line::client::{Address, CallError, LineClient};
use crate::reply::Reply;
use crate::resource::memory::wire::{Answer, Request, Verb};

/// Registry entry.
pub const SPEC: LockSpec = LockSpec {
    name: "memory",
    summary: "a first-come lock in the controller that has no lease and so never expires: the control",
    backend: "",
    token: "a counter",
    leased: false,
    disciplines: &[Discipline::Ignore, Discipline::Token],
    options: &[],
    check: |_| Ok(()),
    connect: |config| async move { connect(&config) }.boxed(),
};

fn connect(config: &LockConfig) -> Result<Box<dyn LockConnection>, String> {
    Ok(Box::new(MemoryConnection {
        line: Arc::new(LineClient::new(Address::Unix(config.memory.clone()))),
    }))
}

struct MemoryConnection {
    line: Arc<LineClient<Answer>>,
}

impl LockConnection for MemoryConnection {
    fn client(&self, _client: u32, _belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(MemoryClient {
            line: Arc::clone(&self.line),
            held: None,
        })
    }
}

struct MemoryClient {
    line: Arc<LineClient<Answer>>,
    held: Option<(String, u64)>,
}

impl LockClient for MemoryClient {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        async move {
            let request = |id| Request {
                id,
                verb: Verb::Acquire,
                key: Some(lock.into()),
                ..Request::default()
            };
            match self.line.call(request).await {
                Ok(Answer {
                    token: Some(token), ..
                }) => {
                    self.held = Some((lock.to_owned(), token));
                    Reply::Ok(Grant {
                        token: Some(token),
                        ..Grant::default()
                    })
                }
                Ok(answer) => {
                    Reply::info("bad-answer", format!("a grant without a token: {answer:?}"))
                }
                Err(CallError::NotSent(text)) => Reply::fail("disconnected", text),
                Err(CallError::Broken(text)) => Reply::info("disconnected", text),
            }
        }
        .boxed()
    }

    fn release<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        async move {
            let Some((_, token)) = self.held.take_if(|held| held.0 == lock) else {
                return Reply::fail("not-held", format!("{lock} is not held by this client"));
            };
            let request = |id| Request {
                id,
                verb: Verb::Release,
                key: Some(lock.into()),
                token: Some(token),
                ..Request::default()
            };
            match self.line.call(request).await {
                Ok(answer) => answer.into_reply(|_| ()),
                Err(CallError::NotSent(text)) => Reply::fail("disconnected", text),
                Err(CallError::Broken(text)) => Reply::info("disconnected", text),
            }
        }
        .boxed()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some((lock, _)) = self.held.clone() {
                self.release(&lock).await;
            }
        }
        .boxed()
    }
}
