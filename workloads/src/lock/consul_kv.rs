//! `consul-kv`: a session and the key's `?acquire`, without the Go client's lock around them.
//!
//! What the guide to leader election describes and most other clients do: one session a client for all its
//! acquires, renewed every TTL/2; try, and if it did not work wait with a blocking read until the key is
//! free. There is no monitor: a holder hears that it lost its session when a renewal is told so, or when it
//! could not renew for TTL. What must not be in here: a look at the key while it is held, besides the one
//! for the token.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::consul::{
    self, BEHAVIOUR, CHECKS, ConsulError, Contender, LOCK_DELAY, Mode, PUBLISH, Query, RETRY_KIND,
    Renewals, Session, TOKEN, lock_key,
};
use crate::discipline::Discipline;
use crate::lock::{Grant, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::OptionSpec;
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "consul-kv",
    summary: "A bare Consul session and the key's `?acquire`: no monitor, told by its renewals at best.",
    backend: "consul",
    token: "ModifyIndex of the lock's key, or its LockIndex (option `token`)",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[LOCK_DELAY, BEHAVIOUR, CHECKS, TOKEN, PUBLISH, RETRY],
    check: |_| Ok(()),
    connect,
};

const RETRY: OptionSpec = OptionSpec {
    name: "retry",
    kind: RETRY_KIND,
    default: "250",
    about: "How long a client sleeps that was refused a lock which nobody holds.",
};

/// How long one blocking read waits.
const WAIT: Duration = Duration::from_secs(15);

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    let client = |by| -> Box<dyn LockClient> {
        Box::new(Client {
            by,
            session: None,
            held: None,
        })
    };
    consul::connect(SPEC.name, config, client).boxed()
}

struct Client {
    by: Contender,
    session: Option<Session>,
    /// The key that is held.
    held: Option<String>,
}

impl Client {
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        let deadline = Instant::now() + self.by.config.acquire_timeout();
        let key = lock_key(lock);
        let session = match self.session().await {
            Ok(session) => session,
            // A session alone takes no lock.
            Err(error) => return Reply::Fail(error.reason()),
        };
        match tokio::time::timeout_at(deadline, self.wait_until_free(&key)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.reply(),
            Err(_) => return Reply::Fail(self.by.out_of_time()),
        }
        loop {
            // Not cut short, so that the lock is not taken by a request that nobody waits for.
            match self.by.take(&key, &session).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    if error.code() == "session-invalid" {
                        self.session = None;
                    }
                    return error.reply();
                }
            }
            match tokio::time::timeout_at(deadline, self.wait_for_another_chance(&key)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.reply(),
                Err(_) => return Reply::Fail(self.by.out_of_time()),
            }
        }
        self.held = Some(key.clone());
        let granted = self.by.first_look(&key, &session).await;
        if let Reply::Info(_) = granted {
            self.held = None;
            self.abandon();
        }
        granted
    }

    /// The session, which is opened if there is none or the client was told that it is lost.
    async fn session(&mut self) -> Result<String, ConsulError> {
        self.session.take_if(|session| session.is_lost());
        let session = match self.session.take() {
            Some(session) => session,
            None => self.by.open_session(Renewals::Told).await?,
        };
        let id = session.id().to_owned();
        self.session = Some(session);
        Ok(id)
    }

    async fn wait_until_free(&self, key: &str) -> Result<(), ConsulError> {
        let mut query = Query {
            mode: Mode::Default,
            index: 0,
            wait: WAIT,
        };
        loop {
            let (entry, index) = self.by.consul.get(key, query, self.by.limit()).await?;
            if entry.is_none_or(|entry| entry.session.is_empty()) {
                return Ok(());
            }
            // An index that goes back is started over (Consul, "Blocking Queries").
            query.index = if index < query.index { 0 } else { index };
        }
    }

    /// After a refusal: somebody was faster, or a lock-delay is in force, which no read shows.
    async fn wait_for_another_chance(&self, key: &str) -> Result<(), ConsulError> {
        let retry = Duration::from_millis(self.by.config.options.number(&RETRY));
        tokio::time::sleep(retry).await;
        self.wait_until_free(key).await
    }

    async fn release(&mut self) -> Reply<()> {
        let (Some(key), Some(session)) = (self.held.take(), &self.session) else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        let released = self.by.give_back(&key, session.id()).await;
        if !self.by.config.keep_alive {
            // Nobody renews it, so it is good for one acquire only.
            self.abandon();
        }
        match released {
            Ok(true) => Reply::Ok(()),
            Ok(false) => Reply::fail("not-held", "the key is not held by this client's session"),
            Err(error) => error.reply(),
        }
    }

    fn abandon(&mut self) {
        if let Some(session) = self.session.take() {
            session.close_in_background();
        }
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    /// Gives back what is held and ends the session.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // If one of the two fails, the session expires by itself.
            let _ = self.release().await;
            if let Some(session) = self.session.take() {
                let _ = session.close().await;
            }
        }
        .boxed()
    }
}
