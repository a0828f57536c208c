//! `etcd-mutex`: the client-side recipe of the official Go library, `concurrency.Mutex` on a
//! `concurrency.Session` (`client/v3/concurrency/{mutex,session,key}.go`).
//!
//! Whoever waits puts a key of its own below the lock's name; the key created first holds the lock, and each
//! waiter watches the one before it. A client keeps one session for all its acquires and opens a new one
//! when it was told that the old one is lost. What must not be in here: any look at the lease besides the
//! recipe's own.
//!
//! Option `recheck` (`true` unless given): whether a waiter reads its own key once more before it believes
//! that it holds the lock, as the library does since 3.5. `false` is the library up to 3.4
//! (etcd-io/etcd#11456); the key is then read too, but only to report a lock that was dead on arrival.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::etcd::{
    Compare, EtcdClient, EtcdError, EventKind, Lessor, RangeRequest, RequestOp, ResponseOp,
    Session, TxnRequest, Watch, WatchEnd, connect_for_lock, lock_name,
};
use crate::lock::{Grant, Guard, LockClient, LockConfig, LockConnection, LockSpec};
use crate::option::{OptionKind, OptionSpec};
use crate::reply::{Reason, Reply};

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "etcd-mutex",
    summary: "The mutex recipe of etcd's Go library: a queue of keys by create revision, one session a client.",
    backend: "etcd",
    token: "create revision of the lock's key",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[RECHECK],
    check: |_| Ok(()),
    connect,
};

const RECHECK: OptionSpec = OptionSpec {
    name: "recheck",
    kind: OptionKind::Flag,
    default: "true",
    about: "Whether a waiter reads its own key once more before it believes that it holds the lock, as the \
            library does since 3.5.",
};

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let recheck = config.options.flag(&RECHECK);
        let etcd = connect_for_lock(SPEC.name, &config).await?;
        Ok(Box::new(Connection {
            etcd,
            config: Arc::new(config),
            recheck,
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

struct Connection {
    etcd: EtcdClient,
    config: Arc<LockConfig>,
    recheck: bool,
}

impl LockConnection for Connection {
    fn client(&self, _client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        let (etcd, config) = (self.etcd.clone(), Arc::clone(&self.config));
        let lessor = config.keep_alive.then(|| Lessor::new(&etcd));
        Box::new(Client {
            etcd,
            config,
            recheck: self.recheck,
            belief,
            lessor,
            session: None,
            held: None,
        })
    }
}

struct Client {
    etcd: EtcdClient,
    config: Arc<LockConfig>,
    recheck: bool,
    belief: Arc<Belief>,
    /// Absent when leases are not kept alive.
    lessor: Option<Lessor>,
    session: Option<Session>,
    /// The own key of the lock that is held (Go: `myKey`).
    held: Option<Vec<u8>>,
}

/// The own place in the queue.
struct Place {
    key: Vec<u8>,
    create_revision: i64,
    first: bool,
}

/// Why waiting ended without the lock.
struct Unlucky(Reason);

impl From<EtcdError> for Unlucky {
    fn from(error: EtcdError) -> Self {
        Self(error.reason())
    }
}

impl From<WatchEnd> for Unlucky {
    fn from(end: WatchEnd) -> Self {
        match end {
            WatchEnd::Refused(error) => error.into(),
            WatchEnd::Compacted { .. } => Self(Reason::new("compacted", end.to_string())),
            WatchEnd::Cancelled(_) => Self(Reason::new("watch-lost", end.to_string())),
        }
    }
}

impl Client {
    fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    /// Go: `Lock`.
    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        let deadline = Instant::now() + self.config.acquire_timeout();
        let prefix = format!("{}/", lock_name(lock));
        let lease = match self.session().await {
            Ok(lease) => lease,
            // A session alone takes no lock.
            Err(error) => return Reply::Fail(error.reason()),
        };
        let place = match self.enqueue(&prefix, lease).await {
            Ok(place) => place,
            Err(error) => {
                if error.code() == "lease-not-found" {
                    self.session = None;
                }
                return error.reply();
            }
        };
        let mut alive = true;
        if !place.first {
            let turn = async {
                self.wait_deletes(&prefix, place.create_revision - 1)
                    .await?;
                Ok::<_, Unlucky>(self.etcd.get(&place.key, self.limit()).await)
            };
            alive = match tokio::time::timeout_at(deadline, turn).await {
                Ok(Ok(Ok(own))) => own.is_some(),
                // Up to 3.4 there was no look, so one that fails cannot change anything.
                Ok(Ok(Err(_))) if !self.recheck => true,
                Ok(Ok(Err(error))) => return self.give_up(&place.key, error.into()).await,
                Ok(Err(unlucky)) => return self.give_up(&place.key, unlucky).await,
                Err(_) => {
                    let text = format!("still queued after {} ms", self.config.acquire_timeout_ms);
                    return self
                        .give_up(&place.key, Unlucky(Reason::new("timeout", text)))
                        .await;
                }
            };
        }
        if !alive && self.recheck {
            self.session = None;
            return Reply::fail("session-expired", "mutex: session is expired");
        }
        self.held = Some(place.key.clone());
        let token = u64::try_from(place.create_revision).ok();
        let guard = Guard::Etcd {
            key: place.key,
            create_revision: place.create_revision,
        };
        Reply::Ok(Grant {
            token,
            dead_on_arrival: !alive,
            guard: Some(guard),
        })
    }

    /// The lease of the session, which is opened if there is none or the client was told that it is lost.
    async fn session(&mut self) -> Result<i64, EtcdError> {
        if let Some(session) = self.session.take_if(|session| session.is_lost()) {
            drop(session);
        }
        if self.session.is_none() {
            let (ttl, lessor) = (self.config.ttl(), self.lessor.as_ref());
            self.session =
                Some(Session::open(&self.etcd, &self.belief, ttl, lessor, self.limit()).await?);
        }
        Ok(self.session.as_ref().map_or(0, Session::lease))
    }

    /// Puts the own key and looks who was first (Go: `tryAcquire`).
    async fn enqueue(&self, prefix: &str, lease: i64) -> Result<Place, EtcdError> {
        let key = format!("{prefix}{lease:x}").into_bytes();
        let owner = || RequestOp::range(RangeRequest::first_created(prefix));
        let request = TxnRequest {
            compare: vec![Compare::created_at(&key, 0)],
            success: vec![RequestOp::put(&key, "", lease), owner()],
            // A session that is queued already, or holds the lock, keeps its place.
            failure: vec![RequestOp::range(RangeRequest::key(key.clone())), owner()],
        };
        let (answer, revision) = self.etcd.txn(request, self.limit()).await?;
        let created = |index: usize| answer.responses.get(index).and_then(ResponseOp::first_key);
        let own = if answer.succeeded { None } else { created(0) };
        let create_revision = own.map_or(revision, |own| own.create_revision);
        let first = created(1).is_none_or(|owner| owner.create_revision == create_revision);
        Ok(Place {
            key,
            create_revision,
            first,
        })
    }

    /// Waits until no key created up to a revision is left (Go: `waitDeletes`).
    async fn wait_deletes(&self, prefix: &str, max_create_revision: i64) -> Result<(), Unlucky> {
        loop {
            let request = RangeRequest::last_created_until(prefix, max_create_revision);
            let answer = self.etcd.range(request, self.limit()).await?;
            let Some(predecessor) = answer.kvs.first() else {
                return Ok(());
            };
            let revision = answer.header.map_or(0, |header| header.revision);
            let mut watch = Watch::key(&self.etcd, &predecessor.key, revision);
            while !watch
                .next()
                .await?
                .iter()
                .any(|event| event.kind == EventKind::Delete as i32)
            {}
        }
    }

    /// Takes the own key out of the queue again, as Go does when its context ends. Only then is it certain
    /// that the lock does not become ours later.
    async fn give_up(&self, key: &[u8], Unlucky(reason): Unlucky) -> Reply<Grant> {
        match self.etcd.delete(key, self.limit()).await {
            Ok(_) => Reply::Fail(reason),
            Err(error) => Reply::info(
                reason.code,
                format!("{}; own key not removed: {}", reason.text, error.reason()),
            ),
        }
    }

    /// Go: `Unlock`.
    async fn release(&mut self) -> Reply<()> {
        let Some(key) = self.held.take() else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        let deleted = self.etcd.delete(&key, self.limit()).await;
        if self.lessor.is_none()
            && let Some(session) = self.session.take()
        {
            // Nobody renews it, so it is good for one acquire only.
            session.close_in_background();
        }
        deleted.map_or_else(|error| error.reply(), |_| Reply::Ok(()))
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    /// Go: `Session.Close`, which revokes the lease and so deletes every key of this client.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some(session) = self.session.take() {
                // If that fails, the lease expires by itself.
                let _ = session.close().await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_missing_node_is_named() {
        let refused = connect(LockConfig::default())
            .await
            .err()
            .expect("no node to talk to");
        assert!(
            refused.contains("etcd-mutex") && refused.contains("found none"),
            "{refused}"
        );
    }
}
