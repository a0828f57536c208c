//! What the controller sees of a cluster: who holds which lock.
//!
//! It only looks, and so may ask again after an error, which no lock client's request may. It reads through
//! one server what that server itself has heard (`?stale`): behind a partition or a pause it sees everything
//! later, so run one a server and believe the earliest. Consul shows states, not events: two changes between
//! two answers are one, and a lock that was given back and taken again meanwhile shows as both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use checkers::history::{LeasePhase, Ns};

use super::client::{ConsulClient, Entry, Mode, Query};
use super::errors::ConsulError;
use super::options::Token;
use crate::truth;

/// How long one read waits for changes.
const WAIT: Duration = Duration::from_secs(60);

/// A lock began or ceased to be held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSeen {
    /// The lock, for instance `l0`.
    pub lock: String,
    /// The holder's fencing token, of the kind that the holder says it uses.
    pub token: u64,
    /// The holder's session.
    pub session: String,
    /// Whether it began or ceased.
    pub phase: LeasePhase,
    /// Truth time at which the observer heard of it.
    pub at_ns: Ns,
}

/// The locks below a prefix as one server knows them.
pub struct LockWatch {
    client: ConsulClient,
    prefix: String,
    limit: Duration,
    index: u64,
    held: BTreeMap<String, Tenure>,
}

/// A holder's time with a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tenure {
    session: String,
    acquires: u64,
    token: u64,
}

/// Watches the locks below `prefix` (see [`LOCK_PREFIX`](super::LOCK_PREFIX)) through one server. Locks that
/// are held already come first, as if they had just been taken.
///
/// # Errors
/// When the server cannot be reached within `limit`, which is also that of each read.
pub async fn watch_locks(
    endpoint: SocketAddr,
    prefix: &str,
    limit: Duration,
) -> Result<LockWatch, ConsulError> {
    Ok(LockWatch {
        client: ConsulClient::connect(endpoint, limit).await?,
        prefix: prefix.to_owned(),
        limit,
        index: 0,
        held: BTreeMap::new(),
    })
}

impl LockWatch {
    /// Waits for changes, for a minute at most, and returns them.
    ///
    /// # Errors
    /// The read's; the next call goes on.
    pub async fn next(&mut self) -> Result<Vec<LockSeen>, ConsulError> {
        let query = Query {
            mode: Mode::Stale,
            index: self.index,
            wait: WAIT,
        };
        let read = self.client.list(&self.prefix, query, self.limit).await;
        let (entries, index) = read.inspect_err(|_| self.index = 0)?;
        // A server that was restarted counts from where its log ends (Consul, "Blocking Queries").
        self.index = if index < self.index { 0 } else { index };
        Ok(self.changes(&entries, truth::now_ns()))
    }

    fn changes(&mut self, entries: &[Entry], at_ns: Ns) -> Vec<LockSeen> {
        let prefix = &self.prefix;
        let now: BTreeMap<String, Tenure> = entries
            .iter()
            .filter_map(|entry| tenure(prefix, entry))
            .collect();
        let mut seen = Vec::new();
        let mut see = |lock: &str, tenure: &Tenure, phase| {
            seen.push(LockSeen {
                lock: lock.to_owned(),
                token: tenure.token,
                session: tenure.session.clone(),
                phase,
                at_ns,
            });
        };
        for (lock, before) in &self.held {
            if now.get(lock).is_none_or(|now| !before.goes_on_as(now)) {
                see(lock, before, LeasePhase::Ended);
            }
        }
        for (lock, now) in &now {
            if self
                .held
                .get(lock)
                .is_none_or(|before| !before.goes_on_as(now))
            {
                see(lock, now, LeasePhase::Granted);
            }
        }
        self.held = now
            .into_iter()
            .map(|(lock, now)| {
                // A plain put changes both indices of a tenure; its token is what they were at its start.
                let before = self
                    .held
                    .get(&lock)
                    .filter(|before| before.goes_on_as(&now));
                let token = before.map_or(now.token, |before| before.token);
                (lock, Tenure { token, ..now })
            })
            .collect();
        seen
    }
}

impl Tenure {
    fn goes_on_as(&self, later: &Self) -> bool {
        // A plain put resets the count of acquires to 0, which is no new acquire.
        self.session == later.session && (self.acquires == later.acquires || later.acquires == 0)
    }
}

/// The lock of a key and who holds it, if anybody does. The value's first word is the kind of token.
fn tenure(prefix: &str, entry: &Entry) -> Option<(String, Tenure)> {
    let lock = entry.key.strip_prefix(prefix)?;
    if entry.session.is_empty() {
        return None;
    }
    let value = String::from_utf8(entry.bytes().ok()?).ok()?;
    let token = match Token::find(value.split(' ').next()?)? {
        Token::ModifyIndex => entry.modify_index,
        Token::LockIndex => entry.lock_index,
    };
    let tenure = Tenure {
        session: entry.session.clone(),
        acquires: entry.lock_index,
        token,
    };
    Some((lock.to_owned(), tenure))
}
