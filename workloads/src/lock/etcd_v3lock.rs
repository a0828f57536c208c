//! `etcd-v3lock`: the lock service inside etcd (`v3lockpb.Lock`), as jetcd and the Jepsen test use it.
//!
//! A client asks for a lease of its own for each acquire, keeps it alive, and lets the server wait in the
//! queue. The service does not know whether the lease still lives when it answers: up to 3.4 it hands out a
//! lock whose key is gone (etcd-io/etcd#11456), since 3.5 it looks once more. That is why the client reads
//! the key after the grant; what it finds is reported, never repaired.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::belief::Belief;
use crate::discipline::Discipline;
use crate::etcd::{EtcdClient, EtcdError, Lessor, Session, connect_for_lock, lock_name};
use crate::lock::{Grant, Guard, LockClient, LockConfig, LockConnection, LockSpec};
use crate::reply::Reply;

/// The registry's line.
pub const SPEC: LockSpec = LockSpec {
    name: "etcd-v3lock",
    summary: "etcd's server-side lock service, with a lease of its own for each acquire.",
    backend: "etcd",
    token: "create revision of the lock's key",
    leased: true,
    disciplines: Discipline::ALL,
    options: &[],
    check: |_| Ok(()),
    connect,
};

fn connect(config: LockConfig) -> BoxFuture<'static, Result<Box<dyn LockConnection>, String>> {
    async move {
        let etcd = connect_for_lock(SPEC.name, &config).await?;
        Ok(Box::new(Connection {
            etcd,
            config: Arc::new(config),
        }) as Box<dyn LockConnection>)
    }
    .boxed()
}

struct Connection {
    etcd: EtcdClient,
    config: Arc<LockConfig>,
}

impl LockConnection for Connection {
    fn client(&self, _client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        let (etcd, config) = (self.etcd.clone(), Arc::clone(&self.config));
        let lessor = config.keep_alive.then(|| Lessor::new(&etcd));
        Box::new(Client {
            etcd,
            config,
            belief,
            lessor,
            session: None,
            key: None,
        })
    }
}

struct Client {
    etcd: EtcdClient,
    config: Arc<LockConfig>,
    belief: Arc<Belief>,
    /// Absent when leases are not kept alive.
    lessor: Option<Lessor>,
    /// The lease of the lock that is held or awaited.
    session: Option<Session>,
    /// The key of the lock that is held.
    key: Option<Vec<u8>>,
}

impl Client {
    fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        let (etcd, ttl) = (self.etcd.clone(), self.config.ttl());
        let session =
            match Session::open(&etcd, &self.belief, ttl, self.lessor.as_ref(), self.limit()).await
            {
                Ok(session) => session,
                // Even if the lease was granted, nothing is attached to it: the lock was not taken.
                Err(error) => return Reply::Fail(error.reason()),
            };
        let lease = session.lease();
        self.session = Some(session);
        let key = match self
            .etcd
            .lock(&lock_name(lock), lease, self.config.acquire_timeout())
            .await
        {
            Ok(key) => key,
            Err(error) => return self.abandon(&error),
        };
        let found = match self.etcd.get(&key, self.limit()).await {
            Ok(found) => found,
            Err(error) => {
                // The lock was granted, but without its token it cannot be used as it is meant to be.
                self.abandon::<()>(&error);
                let reason = error.reason();
                return Reply::info(
                    reason.code,
                    format!("granted, but its key could not be read: {}", reason.text),
                );
            }
        };
        self.key = Some(key.clone());
        let Some(create_revision) = found.map(|found| found.create_revision) else {
            return Reply::Ok(Grant {
                dead_on_arrival: true,
                ..Grant::default()
            });
        };
        let (token, guard) = (
            u64::try_from(create_revision).ok(),
            Guard::Etcd {
                key,
                create_revision,
            },
        );
        Reply::Ok(Grant {
            token,
            dead_on_arrival: false,
            guard: Some(guard),
        })
    }

    /// After an acquire that did not end well: frees whatever the server may hold for it.
    fn abandon<T>(&mut self, error: &EtcdError) -> Reply<T> {
        self.key = None;
        if let Some(session) = self.session.take() {
            session.close_in_background();
        }
        error.reply()
    }

    async fn release(&mut self) -> Reply<()> {
        let (Some(key), session) = (self.key.take(), self.session.take()) else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        let unlocked = self.etcd.unlock(&key, self.limit()).await;
        if let Some(session) = session {
            session.close_in_background();
        }
        unlocked.map_or_else(|error| error.reply(), Reply::Ok)
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some(session) = self.session.take() {
                // Revoking the lease deletes the lock's key. If that fails, the lease expires by itself.
                let _ = session.close().await;
            }
        }
        .boxed()
    }
}
