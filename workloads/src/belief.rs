//! What one logical client knows about its own lease.
//!
//! The lock client writes it (granted, renewed, told lost), the holder discipline reads it. It judges
//! by the process's *own* clock, which a clock fault may bend; truth stamps are only carried along for
//! the history. It must not talk to anybody.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use checkers::history::Ns;

use crate::truth;

/// A moment on both clocks: the truth, and what the process believes.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Truth time in nanoseconds.
    pub truth_ns: Ns,
    /// The process's own monotonic clock.
    pub own: Instant,
}

impl Moment {
    /// Both clocks, read one after the other.
    #[must_use]
    pub fn now() -> Self {
        Self {
            truth_ns: truth::now_ns(),
            own: Instant::now(),
        }
    }
}

/// The lease behind a client's lock, as far as the client knows.
#[derive(Debug, Default)]
pub struct Belief {
    state: Mutex<State>,
    changed: tokio::sync::Notify,
}

#[derive(Debug, Default)]
struct State {
    renewed: Option<(Moment, Duration)>,
    lost: Option<(Moment, String)>,
}

impl Belief {
    /// A client without a lease.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new lease was asked for at `sent` and granted for `ttl`: forgets what was known of an earlier one.
    pub fn granted(&self, sent: Moment, ttl: Duration) {
        *self.lock() = State {
            renewed: Some((sent, ttl)),
            lost: None,
        };
        self.changed.notify_waiters();
    }

    /// The lease was renewed for `ttl` by a request sent at `sent`. A lease once lost stays lost.
    pub fn renewed(&self, sent: Moment, ttl: Duration) {
        self.lock().renewed = Some((sent, ttl));
        self.changed.notify_waiters();
    }

    /// The service or the client library said that the lease is gone. Only the first word counts.
    pub fn lost(&self, why: impl Into<String>) {
        let mut state = self.lock();
        if state.lost.is_none() {
            state.lost = Some((Moment::now(), why.into()));
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// The client gave its lease up by itself: nothing is known any more.
    pub fn cleared(&self) {
        *self.lock() = State::default();
        self.changed.notify_waiters();
    }

    /// When and why the lease was lost, if the client was told.
    #[must_use]
    pub fn told_lost(&self) -> Option<(Moment, String)> {
        self.lock().lost.clone()
    }

    /// The moment, on the own clock, after which the lease may be over: latest renewal sent + TTL.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.lock().renewed.map(|(sent, ttl)| sent.own + ttl)
    }

    /// Truth time at which the latest successful renewal (or the grant) was sent.
    #[must_use]
    pub fn renewed_ns(&self) -> Option<Ns> {
        self.lock().renewed.map(|(sent, _)| sent.truth_ns)
    }

    /// Waits until the client is told that its lease is lost.
    pub async fn until_told_lost(&self) -> (Moment, String) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(lost) = self.told_lost() {
                return lost;
            }
            changed.await;
        }
    }

    /// Waits until the own clock passes the deadline without a renewal.
    pub async fn until_deadline(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.deadline() {
                Some(deadline) if deadline <= Instant::now() => return,
                Some(deadline) => tokio::select! {
                    () = tokio::time::sleep_until(deadline.into()) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_lease_stays_lost_until_a_new_one_is_granted() {
        let belief = Belief::new();
        belief.granted(Moment::now(), Duration::from_secs(2));
        belief.lost("first");
        belief.lost("second");
        belief.renewed(Moment::now(), Duration::from_secs(2));
        assert_eq!(
            belief.told_lost().map(|(_, why)| why).as_deref(),
            Some("first")
        );
        belief.granted(Moment::now(), Duration::from_secs(2));
        assert!(belief.told_lost().is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_deadline_moves_with_each_renewal() {
        let belief = Belief::new();
        let start = Moment::now();
        belief.granted(start, Duration::from_millis(40));
        belief.renewed(start, Duration::from_millis(120));
        belief.until_deadline().await;
        assert!(start.own.elapsed() >= Duration::from_millis(120));
    }
}
