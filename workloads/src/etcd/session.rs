//! A lease that is kept alive: what Go's `concurrency.Session` is.
//!
//! It tells the client's belief when the lease was granted, renewed and lost. It must not open a new lease
//! by itself: that is its user's decision.

use std::sync::Arc;
use std::time::Duration;

use super::client::EtcdClient;
use super::errors::EtcdError;
use super::keep_alive::{KeepAlive, Lessor};
use crate::belief::{Belief, Moment};

/// A lease and its keep-alive. Dropped, it is no longer renewed, and expires by itself.
pub(crate) struct Session {
    client: EtcdClient,
    belief: Arc<Belief>,
    lease: i64,
    limit: Duration,
    /// Held for its drop, which ends the renewals; absent when the lease is not kept alive.
    keep_alive: Option<KeepAlive>,
}

impl Session {
    /// Asks for a lease of `ttl`, which the lessor keeps alive if there is one. `limit` is the limit of one
    /// request.
    pub(crate) async fn open(
        client: &EtcdClient,
        belief: &Arc<Belief>,
        ttl: Duration,
        lessor: Option<&Lessor>,
        limit: Duration,
    ) -> Result<Self, EtcdError> {
        let sent = Moment::now();
        let granted = client.lease_grant(ttl, limit).await?;
        belief.granted(sent, granted.ttl);
        let keep_alive = lessor.map(|lessor| lessor.keep_alive(granted.id, Arc::clone(belief)));
        Ok(Self {
            client: client.clone(),
            belief: Arc::clone(belief),
            lease: granted.id,
            limit,
            keep_alive,
        })
    }

    /// The lease.
    pub(crate) fn lease(&self) -> i64 {
        self.lease
    }

    /// True when the client was told that the lease is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.belief.told_lost().is_some()
    }

    /// Ends the renewals and revokes the lease, which deletes its keys.
    pub(crate) async fn close(self) -> Result<(), EtcdError> {
        self.end().await
    }

    /// Ends the renewals and revokes the lease without waiting for it. Nobody learns whether it worked: if
    /// not, the lease expires by itself.
    pub(crate) fn close_in_background(self) {
        tokio::spawn(self.end());
    }

    /// Forgets the lease at once, for the same belief may serve the next lease before this one is revoked;
    /// what is left to do is the revocation.
    fn end(mut self) -> impl Future<Output = Result<(), EtcdError>> + Send {
        self.keep_alive = None;
        self.belief.cleared();
        async move { self.client.lease_revoke(self.lease, self.limit).await }
    }
}
