//! How the Go client's lock finds out that it is lost (`api/lock.go`, `monitorLock`).
//!
//! A consistent read of the lock's key that waits for changes, again and again. The lock is lost when the
//! key is not the session's any more, and also on the first error, unless it is told to put up with some. A
//! read that gets no answer at all tells nothing: Go sets no limit, so that a holder whose server has
//! vanished without a word hears of it minutes later. What must not be in here: a look at the session.

use std::sync::Arc;
use std::time::Duration;

use super::client::{ConsulClient, Mode, Query};
use crate::belief::Belief;

/// The server's own default (`default_query_time`), which Go leaves it.
const WAIT: Duration = Duration::from_secs(300);

/// What is monitored, and for whom.
pub(crate) struct Monitor {
    /// Where it asks.
    pub(crate) client: ConsulClient,
    /// Who is told.
    pub(crate) belief: Arc<Belief>,
    /// The lock's key.
    pub(crate) key: String,
    /// The session that holds it.
    pub(crate) session: String,
    /// How many errors in a row it puts up with (Go: `MonitorRetries`).
    pub(crate) retries: u64,
    /// How long it waits after each (Go: `MonitorRetryTime`).
    pub(crate) retry_time: Duration,
    /// Limit of an answer that is due at once.
    pub(crate) limit: Duration,
}

/// A monitor at work; it ends with its drop.
pub(crate) struct Monitoring(tokio::task::AbortHandle);

impl Drop for Monitoring {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Monitor {
    /// Monitors from now on.
    pub(crate) fn start(self) -> Monitoring {
        let watch = async move {
            let why = self.until_lost().await;
            self.belief.lost(why);
        };
        Monitoring(tokio::spawn(watch).abort_handle())
    }

    async fn until_lost(&self) -> String {
        let mut query = Query {
            mode: Mode::Consistent,
            index: 0,
            wait: WAIT,
        };
        let mut retries = self.retries;
        loop {
            match self.client.get(&self.key, query, self.limit).await {
                Ok((Some(entry), index)) if entry.session == self.session => {
                    query.index = index;
                    retries = self.retries;
                }
                Ok(_) => return "the key is no longer held by the session".to_owned(),
                Err(error) if retries > 0 && error.monitor_may_ask_again() => {
                    tokio::time::sleep(self.retry_time).await;
                    retries -= 1;
                    query.index = 0;
                }
                Err(error) => return format!("the monitor's read failed: {}", error.reason()),
            }
        }
    }
}
