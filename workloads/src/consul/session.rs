//! A session that is kept alive as the Go client keeps its own (`api/session.go`, `RenewPeriodic`).
//!
//! Renewed every TTL/2; after an error again and again after 1 s, until TTL has passed since the last
//! success, and then no more. The Go client's lock never looks at how that ended: whoever relies on it
//! hears nothing from here. All of it runs by the process's own clock. What must not be in here: a new
//! session in place of a lost one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::ConsulClient;
use super::errors::ConsulError;
use super::options::SessionAsk;
use crate::belief::{Belief, Moment};

/// Go: `waitDur` after an error.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Whether the end of the renewals is the holder's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewals {
    /// None: the session ends by itself.
    None,
    /// They end in silence, as the Go client's lock has them.
    Silent,
    /// The holder is told why they ended.
    Told,
}

/// A session. Dropped, it is no longer renewed, and expires by itself.
pub(crate) struct Session {
    client: ConsulClient,
    belief: Arc<Belief>,
    id: String,
    limit: Duration,
    renewals: Option<tokio::task::AbortHandle>,
}

impl Session {
    /// Asks for a session. `limit` is the limit of one request.
    pub(crate) async fn open(
        client: &ConsulClient,
        belief: &Arc<Belief>,
        ask: &SessionAsk,
        renewals: Renewals,
        limit: Duration,
    ) -> Result<Self, ConsulError> {
        let sent = Moment::now();
        let id = client.create_session(ask, limit).await?;
        belief.granted(sent, ask.ttl);
        let renewal = Renewal {
            client: client.clone(),
            belief: Arc::clone(belief),
            id: id.clone(),
            ttl: ask.ttl,
            limit,
        };
        let renewals = match renewals {
            Renewals::None => None,
            how => Some(tokio::spawn(renewal.run(how)).abort_handle()),
        };
        Ok(Self {
            client: client.clone(),
            belief: Arc::clone(belief),
            id,
            limit,
            renewals,
        })
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// True when the client was told that it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.belief.told_lost().is_some()
    }

    /// Ends the renewals and the session. A key that is still held is freed, after its lock-delay.
    pub(crate) async fn close(mut self) -> Result<(), ConsulError> {
        self.end().await
    }

    /// The same without waiting for it, as the Go client does after each release. Nobody learns whether it
    /// worked: if not, the session expires by itself.
    pub(crate) fn close_in_background(mut self) {
        tokio::spawn(self.end());
    }

    /// Forgets the session at once, for the same belief may serve the next one before this one is gone; what
    /// is left to do is the request.
    fn end(&mut self) -> impl Future<Output = Result<(), ConsulError>> + Send + 'static {
        self.stop();
        self.belief.cleared();
        let (client, id, limit) = (self.client.clone(), self.id.clone(), self.limit);
        async move { client.destroy_session(&id, limit).await }
    }

    fn stop(&mut self) {
        if let Some(renewals) = self.renewals.take() {
            renewals.abort();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Renewal {
    client: ConsulClient,
    belief: Arc<Belief>,
    id: String,
    ttl: Duration,
    limit: Duration,
}

impl Renewal {
    async fn run(self, how: Renewals) {
        let why = self.until_ended().await;
        if how == Renewals::Told {
            self.belief.lost(why);
        }
    }

    /// Go: `RenewPeriodic`. Returns why it renews no more.
    async fn until_ended(&self) -> String {
        let mut wait = self.ttl / 2;
        let mut renewed = Instant::now();
        let mut last_error = None;
        loop {
            if renewed.elapsed() > self.ttl {
                return match last_error {
                    Some(error) => format!("not renewed for its time-to-live: {error}"),
                    None => "not renewed for its time-to-live".to_owned(),
                };
            }
            tokio::time::sleep(wait).await;
            // Stamped before it is sent: the session lives at least TTL from here.
            let sent = Moment::now();
            match self.client.renew_session(&self.id, self.limit).await {
                Ok(true) => {
                    self.belief.renewed(sent, self.ttl);
                    wait = self.ttl / 2;
                    renewed = Instant::now();
                }
                Ok(false) => return "session not found".to_owned(),
                Err(error) => {
                    wait = AFTER_ERROR;
                    last_error = Some(error.reason());
                }
            }
        }
    }
}
