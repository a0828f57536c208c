//! The lock `builtin`: the client of fencepost's own lease-lock server, a model.
//!
//! The client behaves as a careful lock library does: one connection, the lease renewed at a third of
//! its TTL, the holder told when the server no longer knows the lease or the lease's time is up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::AbortHandle;

use super::{Grant, LockClient, LockConfig, LockConnection, LockSpec};
use crate::belief::{Belief, Moment};
use crate::discipline::Discipline;
use crate::line::client::{Address, CallError, LineClient};
use crate::reply::Reply;

pub mod server;
pub mod wire;

use wire::{Answer, Request, Verb};

/// Registry entry.
pub const SPEC: LockSpec = LockSpec {
    name: "builtin",
    summary: "a lease lock of fencepost's own model server, correct by default and wrong on request",
    backend: "builtin",
    token: "the grant's number, which the server keeps over restarts",
    leased: true,
    disciplines: &[
        Discipline::Ignore,
        Discipline::Session,
        Discipline::Deadline,
        Discipline::Token,
    ],
    options: &[],
    check: |_| Ok(()),
    connect: |config| async move { connect(config) }.boxed(),
};

fn connect(config: LockConfig) -> Result<Box<dyn LockConnection>, String> {
    let endpoint = config
        .endpoint
        .ok_or("the lock `builtin` needs a node to talk to")?;
    let line = Arc::new(LineClient::new(Address::Tcp(
        endpoint,
        config.request_timeout(),
    )));
    Ok(Box::new(BuiltinConnection { line, config }))
}

struct BuiltinConnection {
    line: Arc<LineClient<Answer>>,
    config: LockConfig,
}

impl LockConnection for BuiltinConnection {
    fn client(&self, client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        Box::new(BuiltinClient {
            line: Arc::clone(&self.line),
            config: self.config.clone(),
            client,
            belief,
            token: None,
            keep_alive: None,
        })
    }
}

struct BuiltinClient {
    line: Arc<LineClient<Answer>>,
    config: LockConfig,
    client: u32,
    belief: Arc<Belief>,
    token: Option<u64>,
    keep_alive: Option<AbortHandle>,
}

impl BuiltinClient {
    fn stop_keep_alive(&mut self) {
        if let Some(keep_alive) = self.keep_alive.take() {
            keep_alive.abort();
        }
    }
}

impl Drop for BuiltinClient {
    fn drop(&mut self) {
        self.stop_keep_alive();
    }
}

impl LockClient for BuiltinClient {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        async move {
            let sent = Moment::now();
            let (owner, ttl_ms) = (self.client, self.config.ttl_ms);
            let wait = self.config.acquire_timeout();
            let wait_ms = u64::try_from(wait.as_millis()).ok();
            let request = |id| Request {
                id,
                verb: Verb::Acquire,
                lock: lock.into(),
                owner,
                ttl_ms: Some(ttl_ms),
                wait_ms,
                token: None,
            };
            // The server says when the wait is over; whoever gave up before it would be granted the lock unheard.
            let limit = wait + self.config.request_timeout();
            let answer = match tokio::time::timeout(limit, self.line.call(request)).await {
                Err(_) => return Reply::info("timeout", format!("no grant within {limit:?}")),
                Ok(Err(CallError::NotSent(text))) => return Reply::fail("disconnected", text),
                Ok(Err(CallError::Broken(text))) => return Reply::info("disconnected", text),
                Ok(Ok(answer)) => answer,
            };
            let Some(token) = answer.token else {
                return answer.refusal();
            };
            self.belief.granted(sent, self.config.ttl());
            self.token = Some(token);
            let lease = Lease {
                line: Arc::clone(&self.line),
                belief: Arc::clone(&self.belief),
                lock: lock.to_owned(),
                owner,
                token,
                ttl: self.config.ttl(),
            };
            // After a wait in the queue the client cannot know when its lease began; a renewal tells.
            if sent.own.elapsed() > self.config.ttl() / 3 {
                lease.renew().await;
            }
            if self.config.keep_alive {
                self.keep_alive = Some(tokio::spawn(lease.keep_alive()).abort_handle());
            }
            Reply::Ok(Grant {
                token: Some(token),
                ..Grant::default()
            })
        }
        .boxed()
    }

    fn release<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        async move {
            self.stop_keep_alive();
            self.belief.cleared();
            let Some(token) = self.token.take() else {
                return Reply::fail("not-held", format!("{lock} is not held by this client"));
            };
            let owner = self.client;
            let request = |id| Request {
                id,
                verb: Verb::Release,
                lock: lock.into(),
                owner,
                ttl_ms: None,
                wait_ms: None,
                token: Some(token),
            };
            match tokio::time::timeout(self.config.request_timeout(), self.line.call(request)).await
            {
                Err(_) => Reply::info("timeout", "no answer to the release"),
                Ok(Err(CallError::NotSent(text))) => Reply::fail("disconnected", text),
                Ok(Err(CallError::Broken(text))) => Reply::info("disconnected", text),
                Ok(Ok(answer)) if answer.refused.is_some() => answer.refusal(),
                Ok(Ok(_)) => Reply::Ok(()),
            }
        }
        .boxed()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if self.token.is_some() {
                // The server checks the token, so the lock's name is all it needs besides.
                self.release("").await;
            }
        }
        .boxed()
    }
}

/// One lease and what renews it.
struct Lease {
    line: Arc<LineClient<Answer>>,
    belief: Arc<Belief>,
    lock: String,
    owner: u32,
    token: u64,
    ttl: Duration,
}

impl Lease {
    /// Sends one renewal and notes what comes of it.
    async fn renew(&self) {
        let sent = Moment::now();
        let request = |id| Request {
            id,
            verb: Verb::Renew,
            lock: self.lock.as_str().into(),
            owner: self.owner,
            ttl_ms: Some(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)),
            wait_ms: None,
            token: Some(self.token),
        };
        match tokio::time::timeout(self.ttl / 3, self.line.call(request)).await {
            Ok(Ok(answer)) if answer.refused.is_some() => {
                self.belief.lost("the server does not know the lease")
            }
            Ok(Ok(_)) => self.belief.renewed(sent, self.ttl),
            // No answer is no news: the deadline decides.
            Ok(Err(_)) | Err(_) => {}
        }
    }

    /// Renews at a third of the TTL until the lease is lost.
    async fn keep_alive(self) {
        let mut tick = tokio::time::interval(self.ttl / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tick.tick().await;
        while self.belief.told_lost().is_none() {
            tick.tick().await;
            self.renew().await;
            if self
                .belief
                .deadline()
                .is_some_and(|deadline| deadline <= Instant::now())
            {
                self.belief.lost("no renewal was answered within the TTL");
            }
        }
    }
}
