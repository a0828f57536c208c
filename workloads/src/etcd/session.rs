//! A lease that is kept alive: what Go's `concurrency.Session` is.
//!
//! It tells the client's belief when the lease was granted, renewed and lost. It must not open a new lease
//! by itself: that is its user's decision.

use std::sync::Arc;
use std::time::Duration;

use super::client::EtcdClient;
use super::errors::EtcdError;
use super::keep_alive::KeepAlive;
use crate::belief::{Belief, Moment};

/// A lease and its keep-alive. Dropped, it is no longer renewed, and expires by itself.
pub struct Session {
    client: EtcdClient,
    belief: Arc<Belief>,
    lease: i64,
    limit: Duration,
    /// Held for its drop, which ends the renewals; absent when the lease is not kept alive.
    keep_alive: Option<KeepAlive>,
}

impl Session {
    /// Asks for a lease of `ttl` and keeps it alive if told to. `limit` is the limit of one request.
    ///
    /// # Errors
    /// Those of the grant.
    pub async fn open(
        client: &EtcdClient,
        belief: &Arc<Belief>,
        ttl: Duration,
        keep_alive: bool,
        limit: Duration,
    ) -> Result<Self, EtcdError> {
        let sent = Moment::now();
        let granted = client.lease_grant(ttl, limit).await?;
        belief.granted(sent, granted.ttl);
        let keep_alive =
            keep_alive.then(|| client.lessor().keep_alive(granted.id, Arc::clone(belief)));
        Ok(Self {
            client: client.clone(),
            belief: Arc::clone(belief),
            lease: granted.id,
            limit,
            keep_alive,
        })
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> i64 {
        self.lease
    }

    /// True when the client was told that the lease is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.belief.told_lost().is_some()
    }

    /// Ends the renewals and revokes the lease, which deletes its keys.
    ///
    /// # Errors
    /// Those of the revocation.
    pub async fn close(mut self) -> Result<(), EtcdError> {
        self.orphan();
        self.client.lease_revoke(self.lease, self.limit).await
    }

    /// Ends the renewals and revokes the lease without waiting for it. Nobody learns whether it worked: if
    /// not, the lease expires by itself.
    pub fn close_in_background(mut self) {
        // At once, not in the task: whoever closes a session no longer holds anything by it.
        self.orphan();
        tokio::spawn(self.close());
    }

    fn orphan(&mut self) {
        self.keep_alive = None;
        self.belief.cleared();
    }
}
