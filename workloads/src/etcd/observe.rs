//! What the controller sees of a cluster: who holds or awaits which lock, and who leads.
//!
//! It only looks. Its watch may therefore reconnect and resume, which no lock client's request may. One
//! watch sees what its node sees: behind a partition or a pause it sees everything later, so run one a node
//! and believe the earliest.

use std::net::SocketAddr;
use std::time::Duration;

use checkers::history::{LeasePhase, Ns};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::client::{EtcdClient, Status};
use super::errors::EtcdError;
use super::watch::{Watch, WatchEnd};
use super::wire::{Event, EventKind, KeyValue, RangeRequest};
use crate::truth;

/// Wait before a refused watch is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A lock key appeared or vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSeen {
    /// The lock, for instance `l0`.
    pub lock: String,
    /// The key of its holder or waiter.
    pub key: Vec<u8>,
    /// The key's create revision: the fencing token of whoever has it.
    pub token: u64,
    /// The lease behind it.
    pub lease: i64,
    /// Whether it appeared or vanished.
    pub phase: LeasePhase,
    /// The revision at which it did.
    pub revision: i64,
    /// Truth time at which the observer heard of it.
    pub at_ns: Ns,
}

/// Revisions that the observer could not see because the server threw them away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lock events between revisions {from_revision} and {to_revision} were not seen: {why}")]
pub struct WatchGap {
    /// First revision not seen.
    pub from_revision: i64,
    /// First revision seen again.
    pub to_revision: i64,
    /// Why.
    pub why: String,
}

/// The lock events of a cluster in the order of their revisions. Ends with its drop.
pub struct LockWatch {
    events: UnboundedReceiver<Result<LockSeen, WatchGap>>,
    task: tokio::task::AbortHandle,
}

impl LockWatch {
    /// The next event, or a gap in what could be seen. Safe to cancel. `None` only if the watching task died.
    pub async fn next(&mut self) -> Option<Result<LockSeen, WatchGap>> {
        self.events.recv().await
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches the locks below `prefix` (see [`LOCK_PREFIX`](super::LOCK_PREFIX)) through one node. Locks that
/// are there already come first, as if they had just appeared; from then on nothing is missed.
///
/// # Errors
/// When the node cannot be reached, or does not answer the first read, within `limit`.
pub async fn watch_locks(
    endpoint: SocketAddr,
    prefix: &str,
    limit: Duration,
) -> Result<LockWatch, EtcdError> {
    let client = EtcdClient::connect(endpoint, limit).await?;
    let present = client.range(RangeRequest::prefix(prefix), limit).await?;
    let revision = present.header.unwrap_or_default().revision;
    let watch = Watch::prefix(&client, prefix.as_bytes(), revision + 1);
    let (sender, events) = unbounded_channel();
    for key in &present.kvs {
        if let Some(seen) = seen(prefix, key, LeasePhase::Granted, key.create_revision) {
            let _ = sender.send(Ok(seen)); // its receiver is in our hands
        }
    }
    let task = tokio::spawn(forward(watch, prefix.to_owned(), sender)).abort_handle();
    Ok(LockWatch { events, task })
}

/// Hands events on until nobody listens.
async fn forward(
    mut watch: Watch,
    prefix: String,
    sender: UnboundedSender<Result<LockSeen, WatchGap>>,
) {
    loop {
        match watch.next().await {
            Ok(events) => {
                for seen in events.iter().filter_map(|event| from_event(&prefix, event)) {
                    if sender.send(Ok(seen)).is_err() {
                        return;
                    }
                }
            }
            Err(end) => {
                if let WatchEnd::Compacted { at, oldest } = end {
                    watch.restart_at(oldest);
                    let gap = WatchGap {
                        from_revision: at,
                        to_revision: oldest,
                        why: end.to_string(),
                    };
                    if sender.send(Err(gap)).is_err() {
                        return;
                    }
                } else {
                    tokio::time::sleep(RETRY).await;
                    watch.resume();
                }
            }
        }
    }
}

/// A new key, or the end of one. A change of a key that stays is neither.
fn from_event(prefix: &str, event: &Event) -> Option<LockSeen> {
    let kv = event.kv.as_ref()?;
    if event.kind == EventKind::Delete as i32 {
        // A deletion carries no more than the key; what it was stands in the value before.
        return seen(
            prefix,
            event.prev_kv.as_ref()?,
            LeasePhase::Ended,
            kv.mod_revision,
        );
    }
    let new = kv.create_revision == kv.mod_revision;
    new.then(|| seen(prefix, kv, LeasePhase::Granted, kv.mod_revision))
        .flatten()
}

/// Reads a key `<prefix><lock>/<lease in hexadecimal>`; anything else is not a lock's key.
fn seen(prefix: &str, kv: &KeyValue, phase: LeasePhase, revision: i64) -> Option<LockSeen> {
    let (lock, _) = std::str::from_utf8(&kv.key)
        .ok()?
        .strip_prefix(prefix)?
        .rsplit_once('/')?;
    Some(LockSeen {
        lock: lock.to_owned(),
        key: kv.key.clone(),
        token: u64::try_from(kv.create_revision).ok()?,
        lease: kv.lease,
        phase,
        revision,
        at_ns: truth::now_ns(),
    })
}

/// Asks one node who it is and whom it follows, over a connection of its own.
///
/// # Errors
/// When it cannot be reached or does not answer within `limit` (each).
pub async fn status(endpoint: SocketAddr, limit: Duration) -> Result<Status, EtcdError> {
    EtcdClient::connect(endpoint, limit)
        .await?
        .status(limit)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, create_revision: i64, mod_revision: i64) -> KeyValue {
        KeyValue {
            key: name.into(),
            create_revision,
            mod_revision,
            lease: 0xab,
            value: Vec::new(),
        }
    }

    fn event(kind: EventKind, kv: KeyValue, prev_kv: Option<KeyValue>) -> Event {
        Event {
            kind: kind as i32,
            kv: Some(kv),
            prev_kv,
        }
    }

    #[test]
    fn a_deletion_names_the_token_that_the_key_had() {
        let deleted = event(
            EventKind::Delete,
            key("p/l0/ab", 0, 9),
            Some(key("p/l0/ab", 4, 4)),
        );
        let seen = from_event("p/", &deleted).expect("a lock's key");
        assert_eq!(
            (seen.lock.as_str(), seen.token, seen.revision, seen.lease),
            ("l0", 4, 9, 0xab)
        );
        assert_eq!(seen.phase, LeasePhase::Ended);
    }

    #[test]
    fn only_new_keys_of_locks_count() {
        assert!(from_event("p/", &event(EventKind::Put, key("p/a/b/ab", 4, 4), None)).is_some());
        assert!(
            from_event("p/", &event(EventKind::Put, key("p/l0/ab", 4, 5), None)).is_none(),
            "a change"
        );
        assert!(
            from_event("p/", &event(EventKind::Put, key("p/l0", 4, 4), None)).is_none(),
            "no lease"
        );
        assert!(
            from_event("p/", &event(EventKind::Put, key("q/l0/ab", 4, 4), None)).is_none(),
            "elsewhere"
        );
    }
}
