//! Renews a lock in the background, as the watchdogs of client libraries do: every third of the TTL, by the
//! process's own clock. In a paused process nothing is renewed and nothing is noticed.
//!
//! It tells the client's belief what comes of it. It must not take the lock again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::command::Command;
use super::resp::Value;
use super::route::Route;
use crate::belief::{Belief, Moment};

/// What came of one renewal.
pub(crate) enum Renewed {
    /// The lock is ours for this long from the moment at which it was sent.
    For(Moment, Duration),
    /// The service says that the lock is not ours any more.
    Lost(String),
    /// No answer, or one that settles nothing: the next renewal, or the deadline, decides.
    Unknown,
}

/// Renewals of one lock. They end with its drop.
#[derive(Debug)]
pub(crate) struct KeepAlive(AbortHandle);

impl KeepAlive {
    /// Renews a key by a command that answers 1 while it is ours. `limit` is the limit of other requests.
    pub(crate) fn of_key(
        belief: &Arc<Belief>,
        route: &Arc<Route>,
        command: Command,
        ttl: Duration,
        limit: Duration,
    ) -> Self {
        let (route, limit) = (Arc::clone(route), limit.min(ttl / 3));
        Self::start(Arc::clone(belief), ttl, move || {
            let (route, command) = (Arc::clone(&route), command.clone());
            async move { renew(&route, &command, ttl, limit).await }
        })
    }

    /// Calls `renew` every third of `ttl` until the lock is lost. `renew` must come to an end within that time.
    pub(crate) fn start<F>(
        belief: Arc<Belief>,
        ttl: Duration,
        renew: impl Fn() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Renewed> + Send,
    {
        let renewals = async move {
            let mut tick = tokio::time::interval(ttl / 3);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tick.tick().await;
            while belief.told_lost().is_none() {
                tick.tick().await;
                match renew().await {
                    Renewed::For(sent, ttl) => belief.renewed(sent, ttl),
                    Renewed::Lost(why) => belief.lost(why),
                    Renewed::Unknown => {}
                }
                let over = |deadline| deadline <= Instant::now();
                if belief.deadline().is_some_and(over) {
                    belief.lost("no renewal was answered within the TTL");
                }
            }
        };
        Self(tokio::spawn(renewals).abort_handle())
    }
}

/// Sends one renewal.
async fn renew(route: &Route, command: &Command, ttl: Duration, limit: Duration) -> Renewed {
    let sent = Moment::now();
    match route.call(command, limit).await {
        Ok(Value::Integer(1)) => Renewed::For(sent, ttl),
        Ok(_) => Renewed::Lost("the key is gone or another's".to_owned()),
        Err(_) => Renewed::Unknown,
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}
