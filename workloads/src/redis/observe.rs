//! What the controller sees of a Redis: which lock was taken and when it ended, and what a server is.
//!
//! It only looks, and may therefore connect again, which no lock client's command may. Ends of keys come from
//! keyspace notifications (`notify-keyspace-events Eg$x`); Redis tells of an expiry when it removes the key, up to
//! a tenth of a second after its time. Only grants that count a token can be told apart, so only those are reported.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use checkers::history::{LeasePhase, Ns};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::command::Command;
use super::connection::Connection;
use super::errors::RedisError;
use super::resp::Value;
use super::route::Route;
use super::sentinel::{self, PRIMARY_NAME, SentinelView};
use super::{LOCK_PREFIX, TOKEN_PREFIX};
use crate::truth;

/// What a server is at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes and has this many replicas that are connected and in step.
    Primary {
        /// How many.
        replicas: usize,
    },
    /// It follows another one.
    Replica {
        /// Whom.
        primary: SocketAddr,
        /// Whether it has caught up and hears of each write.
        linked: bool,
    },
}

/// A lock was taken, or its key vanished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSeen {
    /// The lock, for instance `l0`.
    pub lock: String,
    /// The number of the grant.
    pub token: u64,
    /// Which of the two.
    pub phase: LeasePhase,
    /// Truth time at which the observer heard of it.
    pub at_ns: Ns,
}

/// The locks of one server. Ends with its drop.
pub struct LockWatch {
    events: UnboundedReceiver<LockSeen>,
    task: tokio::task::AbortHandle,
}

impl LockWatch {
    /// The next event; `None` when the connection is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<LockSeen> {
        self.events.recv().await
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks one server or Sentinel what it is, again and again, over a connection that it opens when it needs to.
#[derive(Debug)]
pub struct Asker {
    endpoint: SocketAddr,
    route: Route,
    limit: Duration,
}

impl Asker {
    /// Asks this one; `limit` is how long it may take to answer.
    #[must_use]
    pub fn to(endpoint: SocketAddr, limit: Duration) -> Self {
        Self {
            endpoint,
            route: Route::to(endpoint, limit),
            limit,
        }
    }

    /// The role of a server.
    ///
    /// # Errors
    /// When it does not answer in time, or what it answers makes no sense. The same for the others.
    pub async fn role(&self) -> Result<Role, RedisError> {
        let command = Command::read("ROLE", &["ROLE"]);
        let answer = self.ask(&command).await?;
        read_role(&answer).ok_or_else(|| self.malformed(&command, &answer))
    }

    /// Whether a server takes writes: writes to a key of its own.
    ///
    /// # Errors
    /// When it does not.
    pub async fn accepts_writes(&self) -> Result<(), RedisError> {
        let command = Command::write("SET", &["SET", "fencepost:ready", "1"]);
        self.ask(&command).await.map(drop)
    }

    /// What a Sentinel knows.
    ///
    /// # Errors
    /// When it watches nothing of that name.
    pub async fn sentinel_view(&self) -> Result<SentinelView, RedisError> {
        let command = Command::read("SENTINEL MASTER", &["SENTINEL", "MASTER", PRIMARY_NAME]);
        let answer = self.ask(&command).await?;
        sentinel::read_view(&answer).ok_or_else(|| self.malformed(&command, &answer))
    }

    /// Makes a Sentinel look and tell at other intervals than its own, until it is started again.
    ///
    /// # Errors
    /// When it does not know the command, as before 7.0.
    pub async fn hasten(&self, periods: &[(&str, Duration)]) -> Result<(), RedisError> {
        let values = periods
            .iter()
            .map(|(_, period)| period.as_millis().to_string());
        let values: Vec<String> = values.collect();
        let mut words = vec!["SENTINEL", "DEBUG"];
        for ((name, _), value) in periods.iter().zip(&values) {
            words.extend([*name, value.as_str()]);
        }
        // It changes how the Sentinel works, not what it keeps.
        self.ask(&Command::read("SENTINEL DEBUG", &words))
            .await
            .map(drop)
    }

    async fn ask(&self, command: &Command) -> Result<Value, RedisError> {
        self.route.call(command, self.limit).await
    }

    fn malformed(&self, command: &Command, answer: &Value) -> RedisError {
        RedisError::malformed(self.endpoint, command.name, command.effect, answer)
    }
}

/// `["master", offset, [[ip, port, offset] …]]` or `["slave", ip, port, state, offset]`.
fn read_role(answer: &Value) -> Option<Role> {
    let parts = answer.elements();
    match parts.first()?.text()? {
        "master" => Some(Role::Primary {
            replicas: parts.get(2)?.elements().len(),
        }),
        "slave" => {
            let ip = parts.get(1)?.text()?.parse().ok()?;
            let port = u16::try_from(parts.get(2)?.integer()?).ok()?;
            Some(Role::Replica {
                primary: SocketAddr::new(ip, port),
                linked: parts.get(3)?.text()? == "connected",
            })
        }
        _ => None,
    }
}

/// Watches the locks of one server from now on.
///
/// # Errors
/// When it cannot be reached, or does not answer, within `limit`.
pub async fn watch_locks(endpoint: SocketAddr, limit: Duration) -> Result<LockWatch, RedisError> {
    let asks = Connection::open(endpoint, limit).await?;
    let hears = Connection::open(endpoint, limit).await?;
    let messages = hears.subscribe(&[
        "__keyevent@0__:incrby",
        "__keyevent@0__:del",
        "__keyevent@0__:expired",
    ]);
    let (sender, events) = unbounded_channel();
    let watching = async move {
        // Kept until the watch ends: dropped, it would close.
        let _hears = hears;
        forward(&asks, limit, messages, &sender).await;
    };
    let task = tokio::spawn(watching).abort_handle();
    Ok(LockWatch { events, task })
}

/// Hands events on until the connection ends or nobody listens.
async fn forward(
    asks: &Connection,
    limit: Duration,
    mut messages: UnboundedReceiver<Value>,
    sender: &UnboundedSender<LockSeen>,
) {
    let mut grants = Grants::default();
    while let Some(message) = messages.recv().await {
        let at_ns = truth::now_ns();
        let Some((event, key)) = key_event(&message) else {
            continue; // the answer to the subscription
        };
        let seen = if let Some(lock) = key.strip_prefix(TOKEN_PREFIX) {
            let get = Command::read("GET", &["GET", key]);
            let Ok(found) = asks.call(&get, limit).await else {
                return;
            };
            let counter = found.text().and_then(|text| text.parse().ok());
            // A replica that catches up tells of many grants at once: which of them the counter belongs to is known
            // only when no other event has come since.
            let certain = grants.knows(lock) || messages.is_empty();
            counter
                .filter(|_| certain)
                .map(|counter| (lock, grants.granted(lock, counter), LeasePhase::Granted))
        } else if let Some(lock) = key.strip_prefix(LOCK_PREFIX).filter(|_| event != "incrby") {
            let ended = grants.ended(lock);
            ended.map(|token| (lock, token, LeasePhase::Ended))
        } else {
            None
        };
        if let Some((lock, token, phase)) = seen {
            let lock = lock.to_owned();
            let seen = LockSeen {
                lock,
                token,
                phase,
                at_ns,
            };
            if sender.send(seen).is_err() {
                return;
            }
        }
    }
}

/// `["pmessage", pattern, "__keyevent@0__:del", key]`: the event and its key.
fn key_event(message: &Value) -> Option<(&str, &str)> {
    match message.elements() {
        [kind, _, channel, key] if kind.text() == Some("pmessage") => {
            let (_, event) = channel.text()?.rsplit_once(':')?;
            Some((event, key.text()?))
        }
        _ => None,
    }
}

/// The latest grant of each lock.
#[derive(Debug, Default)]
struct Grants(HashMap<String, Latest>);

#[derive(Debug)]
struct Latest {
    token: u64,
    held: bool,
}

impl Grants {
    /// Whether an earlier grant of the lock was seen.
    fn knows(&self, lock: &str) -> bool {
        self.0.contains_key(lock)
    }

    /// The token of a grant, from the value of its counter, which was read a little after: it may have moved on
    /// by then, but the count has not skipped any.
    fn granted(&mut self, lock: &str, counter: u64) -> u64 {
        let next = self.0.get(lock).map(|latest| latest.token + 1);
        // A smaller counter is one that was lost with its server's data and began anew.
        let token = next.filter(|next| *next <= counter).unwrap_or(counter);
        self.0.insert(lock.to_owned(), Latest { token, held: true });
        token
    }

    /// The token of the grant that ended, if one was seen.
    fn ended(&mut self, lock: &str) -> Option<u64> {
        let latest = self.0.get_mut(lock).filter(|latest| latest.held)?;
        latest.held = false;
        Some(latest.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    #[test]
    fn roles_are_read_as_redis_writes_them() {
        let replicas = Value::Array(vec![Value::Array(vec![
            bulk("198.18.0.2"),
            bulk("6379"),
            bulk("42"),
        ])]);
        let primary = Value::Array(vec![bulk("master"), Value::Integer(42), replicas]);
        assert_eq!(read_role(&primary), Some(Role::Primary { replicas: 1 }));
        let replica = |state| {
            Value::Array(vec![
                bulk("slave"),
                bulk("198.18.0.1"),
                Value::Integer(6379),
                bulk(state),
                Value::Integer(42),
            ])
        };
        for (state, linked) in [("connected", true), ("sync", false)] {
            let primary = SocketAddr::from(([198, 18, 0, 1], 6379));
            let expected = Role::Replica { primary, linked };
            assert_eq!(read_role(&replica(state)), Some(expected));
        }
        assert_eq!(read_role(&Value::Array(vec![bulk("sentinel")])), None);
    }

    #[test]
    fn grants_are_numbered_even_when_the_counter_is_read_late() {
        let mut grants = Grants::default();
        assert_eq!(grants.ended("l0"), None, "nobody was seen to take it");
        assert_eq!(grants.granted("l0", 7), 7);
        assert_eq!(grants.granted("l0", 9), 8, "the counter had moved on");
        assert_eq!(grants.granted("l0", 9), 9);
        assert_eq!(grants.ended("l0"), Some(9));
        assert_eq!(grants.ended("l0"), None, "it ends once");
        assert_eq!(grants.granted("l0", 1), 1, "the server lost its data");
    }

    #[test]
    fn only_events_of_keys_are_taken() {
        let message = Value::Array(vec![
            bulk("pmessage"),
            bulk("__keyevent@0__:del"),
            bulk("__keyevent@0__:del"),
            bulk("fencepost:lock:l0"),
        ]);
        assert_eq!(key_event(&message), Some(("del", "fencepost:lock:l0")));
        let subscribed = Value::Array(vec![bulk("psubscribe"), bulk("x"), Value::Integer(1)]);
        assert_eq!(key_event(&subscribed), None);
    }
}
