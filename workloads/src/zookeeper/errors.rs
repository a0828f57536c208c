//! The one place that says what a ZooKeeper error means: definitely not done, or nobody can know.
//!
//! A wrong "definitely not" would make a correct server look guilty, so whatever the table does not know is
//! unknown. Sources: `KeeperException.java` (codes), `PrepRequestProcessor.java` (what is checked before a
//! transaction is proposed: a failed check becomes an error transaction, which changes nothing) and
//! `FinalRequestProcessor.java`. What must not be in here: retries.

use std::net::SocketAddr;

use crate::certainty::Certainty::{self, NotDone, Unknown};
pub use crate::certainty::Effect;
use crate::reply::{Reason, Reply};

/// An error of one request to one ZooKeeper server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("zookeeper {endpoint}, {request}: {}", self.reason())]
pub struct ZkError {
    /// The server.
    pub endpoint: SocketAddr,
    /// Name of the request, for instance `create`.
    pub request: &'static str,
    /// What the request does to the server's data.
    pub effect: Effect,
    pub(super) cause: Cause,
    pub(super) text: String,
}

/// Where an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// No connection could be made, or none was there within our limit: nothing was sent.
    NotConnected,
    /// The session is over, as the server said or the client concluded: nothing was sent.
    SessionOver,
    /// Our own limit passed after the request was sent.
    Deadline,
    /// The connection broke after the request was sent, or its bytes made no sense.
    ConnectionLost,
    /// The server said so.
    Server(i32),
}

/// Code of `KeeperException`, our code, what it means.
const TABLE: &[(i32, &str, Certainty)] = &[
    // Checked before the transaction is made, in its place in the order of all transactions.
    (NO_NODE, "no-node", NotDone),
    (NODE_EXISTS, "node-exists", NotDone),
    (-103, "bad-version", NotDone),
    (-111, "not-empty", NotDone),
    (-108, "no-children-for-ephemerals", NotDone),
    (-8, "bad-arguments", NotDone),
    // The session was looked up, and was not there, before the transaction was made.
    (SESSION_EXPIRED, "session-expired", NotDone),
    // The session is now served elsewhere; refused in the same place.
    (SESSION_MOVED, "session-moved", NotDone),
    // The server shut its request processors down, or gave up on a request that it may have proposed.
    (-4, "connection-loss", Unknown),
    (-7, "server-timeout", Unknown),
    (-122, "server-timeout", Unknown),
];

/// `KeeperException.Code.NONODE`.
const NO_NODE: i32 = -101;
/// `KeeperException.Code.NODEEXISTS`.
const NODE_EXISTS: i32 = -110;
/// `KeeperException.Code.SESSIONEXPIRED`.
pub(super) const SESSION_EXPIRED: i32 = -112;
/// `KeeperException.Code.SESSIONMOVED`.
pub(super) const SESSION_MOVED: i32 = -118;

impl ZkError {
    fn judge(&self) -> (&'static str, Certainty) {
        match self.cause {
            Cause::NotConnected => ("connect-failed", NotDone),
            Cause::SessionOver => ("session-expired", NotDone),
            Cause::Deadline => ("timeout", Unknown),
            Cause::ConnectionLost => ("connection-loss", Unknown),
            Cause::Server(code) => TABLE
                .iter()
                .find(|row| row.0 == code)
                .map_or(("server-error", Unknown), |row| (row.1, row.2)),
        }
    }

    /// The stable code: `timeout`, `connection-loss`, `no-node` …
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.judge().0
    }

    /// True when the request definitely had no effect.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        self.judge().1.rules_out(self.effect)
    }

    /// True when the node, or its parent, is not there.
    #[must_use]
    pub fn is_no_node(&self) -> bool {
        self.cause == Cause::Server(NO_NODE)
    }

    /// True when the node is there already.
    #[must_use]
    pub fn is_node_exists(&self) -> bool {
        self.cause == Cause::Server(NODE_EXISTS)
    }

    /// Code and words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::new(self.code(), self.text.clone())
    }

    /// The outcome of the operation that consisted of this request.
    #[must_use]
    pub fn reply<T>(&self) -> Reply<T> {
        Reply::of_error(self.is_definite(), self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(cause: Cause, effect: Effect) -> ZkError {
        ZkError {
            endpoint: SocketAddr::from(([127, 0, 0, 1], 2181)),
            request: "create",
            effect,
            cause,
            text: "words".to_owned(),
        }
    }

    #[test]
    fn what_is_not_known_to_have_failed_is_unknown() {
        for (cause, code, definite) in [
            (Cause::NotConnected, "connect-failed", true),
            (Cause::SessionOver, "session-expired", true),
            (Cause::Deadline, "timeout", false),
            (Cause::ConnectionLost, "connection-loss", false),
            (Cause::Server(-110), "node-exists", true),
            (Cause::Server(-4), "connection-loss", false),
            (Cause::Server(-112), "session-expired", true),
            (Cause::Server(-1), "server-error", false),
            (Cause::Server(-9999), "server-error", false),
        ] {
            let write = error(cause, Effect::One);
            assert_eq!((write.code(), write.is_definite()), (code, definite));
            assert!(error(cause, Effect::None).is_definite(), "{cause:?}");
            let info = matches!(write.reply::<()>(), Reply::Info(_));
            assert_eq!(info, !definite, "{cause:?}");
        }
        assert_eq!(
            error(Cause::Deadline, Effect::One).to_string(),
            "zookeeper 127.0.0.1:2181, create: timeout: words"
        );
    }

    #[test]
    fn no_code_stands_twice() {
        let mut codes: Vec<_> = TABLE.iter().map(|row| row.0).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), TABLE.len());
    }
}
