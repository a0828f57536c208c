//! `consul-lock`: the lock of the official Go client (`api/lock.go`, version 1.7.0 of the package, which is
//! that of Consul 1.8.7), which `consul lock` uses too.
//!
//! Each acquire opens a session of its own, renewed in the background, and waits with blocking reads until
//! nobody holds the key. Refused although nobody holds it, which is what a lock-delay does, it sleeps 5 s.
//! Once acquired, a monitor tells the holder when the key is lost or cannot be read; that the renewals
//! failed tells nobody. A release frees the key and then ends the session. What must not be in here: any
//! look at the lock besides Go's own, and the one for the token.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::consul::{
    self, BEHAVIOUR, CHECKS, ConsulError, Contender, LOCK_DELAY, LOCK_FLAG, Mode, Monitor,
    Monitoring, PUBLISH, Query, RETRY_KIND, Renewals, Session, TOKEN, lock_key,
};
use crate::discipline::Discipline;
use crate::lock::{Grant, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec};
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "consul-lock",
    summary: "The lock of Consul's Go client, as `consul lock` uses it: a session for each acquire, and a monitor.",
    backend: "consul",
    token: "ModifyIndex of the lock's key, or its LockIndex (option `token`)",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[
        LOCK_DELAY,
        BEHAVIOUR,
        CHECKS,
        TOKEN,
        PUBLISH,
        RETRY,
        MONITOR_RETRIES,
        MONITOR_RETRY_TIME,
    ],
    check: |_| Ok(()),
    connect,
};

const RETRY: OptionSpec = OptionSpec {
    name: "retry",
    kind: RETRY_KIND,
    default: "5000",
    about: "How long a client sleeps that was refused a lock which nobody holds (Go: DefaultLockRetryTime).",
};

const MONITOR_RETRIES: OptionSpec = OptionSpec {
    name: "monitor-retries",
    kind: OptionKind::Integer { min: 0, max: 100 },
    default: "0",
    about: "How many errors in a row a holder's monitor puts up with; `consul lock` has 3.",
};

const MONITOR_RETRY_TIME: OptionSpec = OptionSpec {
    name: "monitor-retry-time",
    kind: OptionKind::Millis {
        min: 10,
        max: 60_000,
    },
    default: "2000",
    about: "How long the monitor waits after each of them; `consul lock` has 1 s.",
};

/// Go: `DefaultLockWaitTime`.
const WAIT: Duration = Duration::from_secs(15);

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    let client = |by| -> Box<dyn LockClient> { Box::new(Client { by, held: None }) };
    consul::connect(SPEC.name, config, client).boxed()
}

struct Client {
    by: Contender,
    held: Option<Held>,
}

/// A lock that is held.
struct Held {
    key: String,
    session: Session,
    /// Held for its drop, which ends it.
    monitoring: Monitoring,
}

/// Why waiting ended without the lock: what the caller is to be told.
struct Unlucky(Reply<Grant>);

impl From<ConsulError> for Unlucky {
    fn from(error: ConsulError) -> Self {
        Self(error.reply())
    }
}

impl Client {
    /// Go: `Lock`.
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        if self.held.is_some() {
            return Reply::fail("lock-held", "this client holds a lock already");
        }
        let deadline = Instant::now() + self.by.config.acquire_timeout();
        let key = lock_key(lock);
        let session = match self.by.open_session(Renewals::Silent).await {
            Ok(session) => session,
            // A session alone takes no lock.
            Err(error) => return Reply::Fail(error.reason()),
        };
        if let Err(Unlucky(reply)) = self.wait_and_take(&key, session.id(), deadline).await {
            session.close_in_background();
            return reply;
        }
        let monitoring = self.monitor(&key, session.id()).start();
        let granted = self.by.first_look(&key, session.id()).await;
        if matches!(granted, Reply::Ok(_)) {
            self.held = Some(Held {
                key,
                session,
                monitoring,
            });
        } else {
            session.close_in_background();
        }
        granted
    }

    fn monitor(&self, key: &str, session: &str) -> Monitor {
        let options = &self.by.config.options;
        Monitor {
            client: self.by.consul.clone(),
            belief: Arc::clone(&self.by.belief),
            key: key.to_owned(),
            session: session.to_owned(),
            retries: options.number(&MONITOR_RETRIES),
            retry_time: Duration::from_millis(options.number(&MONITOR_RETRY_TIME)),
            limit: self.by.limit(),
        }
    }

    /// Go: the labels `WAIT` to `HELD` of `Lock`. Only reads and sleeps are cut short at the deadline, so that
    /// the lock is not taken by a request that nobody waits for.
    async fn wait_and_take(
        &self,
        key: &str,
        session: &str,
        deadline: Instant,
    ) -> Result<(), Unlucky> {
        let mut query = Query {
            mode: Mode::Default,
            index: 0,
            wait: WAIT,
        };
        loop {
            let (entry, index) = self.read(key, query, deadline).await?;
            if entry.as_ref().is_some_and(|entry| entry.flags != LOCK_FLAG) {
                let text = "the key's flags do not match lock use";
                return Err(Unlucky(Reply::fail("lock-conflict", text)));
            }
            match entry.map(|entry| entry.session).unwrap_or_default() {
                owner if owner == session => return Ok(()),
                owner if !owner.is_empty() => {
                    query.index = index;
                    continue;
                }
                _ => {}
            }
            if self.by.take(key, session).await? {
                return Ok(());
            }
            // Why not? Either somebody was faster, or a lock-delay is in force.
            query.index = 0;
            let (entry, index) = self.read(key, query, deadline).await?;
            if entry.is_some_and(|entry| !entry.session.is_empty()) {
                query.index = index;
            } else {
                let retry = Duration::from_millis(self.by.config.options.number(&RETRY));
                let sleep = tokio::time::timeout_at(deadline, tokio::time::sleep(retry));
                sleep.await.map_err(|_| self.out_of_time())?;
            }
        }
    }

    async fn read(
        &self,
        key: &str,
        query: Query,
        deadline: Instant,
    ) -> Result<(Option<crate::consul::Entry>, u64), Unlucky> {
        let read = self.by.consul.get(key, query, self.by.limit());
        let read = tokio::time::timeout_at(deadline, read).await;
        Ok(read.map_err(|_| self.out_of_time())??)
    }

    fn out_of_time(&self) -> Unlucky {
        Unlucky(Reply::Fail(self.by.out_of_time()))
    }

    /// Go: `Unlock`, which does not look at whether the session still held the key.
    async fn release(&mut self) -> Reply<()> {
        let Some(held) = self.held.take() else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        drop(held.monitoring);
        let released = self.by.give_back(&held.key, held.session.id()).await;
        held.session.close_in_background();
        released.map_or_else(|error| error.reply(), |_| Reply::Ok(()))
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    /// As `consul lock` does when it is told to end.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some(held) = self.held.take() {
                drop(held.monitoring);
                // If one of the two fails, the session expires by itself.
                let _ = self.by.give_back(&held.key, held.session.id()).await;
                let _ = held.session.close().await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_missing_server_is_named() {
        let refused = connect(LockConfig::default())
            .await
            .err()
            .expect("no server to talk to");
        assert!(
            refused.contains("consul-lock") && refused.contains("found none"),
            "{refused}"
        );
    }
}
