//! The one place that says what an etcd error means: definitely not done, or nobody can know.
//!
//! A wrong "definitely not" would make a correct server look guilty, so whatever the table does not know is
//! unknown. Sources: etcd's `api/v3rpc/rpctypes/error.go` (texts), `server/etcdserver/v3_server.go`
//! (`processInternalRaftRequestOnce`: what is checked before a proposal, what after) and
//! `server/etcdserver/api/v3lock/lock.go`. Texts are matched, not gRPC codes: the lock service hands inner
//! errors on with the code `Unknown`. What must not be in here: retries.

use std::error::Error as _;
use std::net::SocketAddr;

use tonic::Code;

use crate::certainty::Certainty::{self, NotDone, NotDoneIfSingle, Unknown};
pub use crate::certainty::Effect;
use crate::reply::{Reason, Reply};

/// An error of one request to one etcd node.
#[derive(Clone, Debug, thiserror::Error)]
#[error("etcd {endpoint}, {request}: {}", self.reason())]
pub struct EtcdError {
    /// The node.
    pub endpoint: SocketAddr,
    /// Path of the request, for instance `/etcdserverpb.KV/Put`.
    pub request: &'static str,
    /// What the request does to the server's data.
    pub effect: Effect,
    cause: Cause,
    text: String,
}

/// Where an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// No connection could be made: nothing was sent.
    NotConnected,
    /// Our own limit passed.
    Deadline,
    /// The connection broke, or its bytes made no sense.
    Transport,
    /// The server said so.
    Server(Code),
}

/// Text in the server's message (the first row that fits counts), stable code, what it means.
const TABLE: &[(&str, &str, Certainty)] = &[
    // The recipe found its own key gone and took nothing (the lock service from 3.5 on, and the Go client).
    ("mutex: session is expired", "session-expired", NotDone),
    // Raised when the proposal is applied, before any of its operations: a txn is all or nothing. In the
    // lock service it is the first txn that fails so, before anything was put.
    ("requested lease not found", "lease-not-found", NotDone),
    ("lease already exists", "lease-exists", NotDoneIfSingle),
    ("too large lease TTL", "rejected", NotDoneIfSingle),
    // Checked before the proposal is made: the server applies too slowly and takes no more.
    ("too many requests", "too-many-requests", NotDoneIfSingle),
    ("request is too large", "rejected", NotDoneIfSingle),
    // The quota is checked before the proposal and once more in its place when it is applied.
    ("database space exceeded", "no-space", NotDoneIfSingle),
    // Raft refused to take the proposal (no leader just then, or leadership is being handed over).
    ("raft proposal dropped", "proposal-dropped", NotDoneIfSingle),
    // Refused by the interceptor, before the request reached the server proper.
    ("etcdserver: not capable", "rejected", NotDone),
    ("rpc not supported for learner", "rejected", NotDone),
    // Only the interceptor says this to a unary request, but only to those that ask for it, which ours do
    // not; from within the lock service it may come at any step.
    ("etcdserver: no leader", "no-leader", NotDoneIfSingle),
    (
        "required revision has been compacted",
        "compacted",
        NotDoneIfSingle,
    ),
    (
        "required revision is a future revision",
        "rejected",
        NotDoneIfSingle,
    ),
    // The proposal was made and was not applied in time ("…, possibly due to previous leader failure",
    // "…, possibly due to connection lost", "…, waiting for the applied index took too long" included):
    // it may be in a log that a later leader commits.
    ("etcdserver: request timed out", "server-timeout", Unknown),
    // Raised by the quorum read. A single write cannot get it; the lock service can, after it queued.
    ("etcdserver: leader changed", "leader-changed", Unknown),
    // The server was told to stop while it waited for a proposal that it had made.
    ("etcdserver: server stopped", "server-stopped", Unknown),
    // The lock service gave up waiting, and tried to remove its key.
    ("lost watcher waiting for delete", "watch-lost", Unknown),
    ("context deadline exceeded", "timeout", Unknown),
    ("context canceled", "cancelled", Unknown),
];

/// What a gRPC code means when the table has no row for the text.
fn by_code(code: Code) -> (&'static str, Certainty) {
    match code {
        Code::DeadlineExceeded => ("timeout", Unknown),
        Code::Cancelled => ("cancelled", Unknown),
        // Arguments, rights and the method are looked at before anything is done.
        Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
            ("rejected", NotDoneIfSingle)
        }
        Code::Unimplemented => ("rejected", NotDone),
        Code::Unavailable => ("unavailable", Unknown),
        _ => ("server-error", Unknown),
    }
}

impl EtcdError {
    /// The request was given up after `limit_ms` milliseconds.
    pub(crate) fn deadline(
        endpoint: SocketAddr,
        request: &'static str,
        effect: Effect,
        limit_ms: u128,
    ) -> Self {
        Self {
            endpoint,
            request,
            effect,
            cause: Cause::Deadline,
            text: format!("no answer within {limit_ms} ms"),
        }
    }

    /// The server's answer does not hold what the protocol promises.
    pub(crate) fn malformed(
        endpoint: SocketAddr,
        request: &'static str,
        effect: Effect,
        what: &str,
    ) -> Self {
        Self {
            endpoint,
            request,
            effect,
            cause: Cause::Transport,
            text: what.to_owned(),
        }
    }

    /// No connection could be made.
    pub(crate) fn not_connected(
        endpoint: SocketAddr,
        error: &(dyn std::error::Error + 'static),
    ) -> Self {
        Self {
            endpoint,
            request: "connect",
            effect: Effect::None,
            cause: Cause::NotConnected,
            text: innermost(error),
        }
    }

    /// From tonic's status, which is the server's word, a broken connection, or a connection never made.
    pub(crate) fn from_status(
        endpoint: SocketAddr,
        request: &'static str,
        effect: Effect,
        status: &tonic::Status,
    ) -> Self {
        let cause = match status.source() {
            None if status.message() == "Timeout expired" => Cause::Deadline, // tonic's own timer
            None => Cause::Server(status.code()),
            Some(source) if find::<tonic::ConnectError>(source) => Cause::NotConnected,
            Some(source) if find::<tonic::TimeoutExpired>(source) => Cause::Deadline,
            Some(_) => Cause::Transport,
        };
        let text = match (cause, status.source()) {
            (Cause::NotConnected | Cause::Transport, Some(source)) => innermost(source),
            (Cause::Deadline, _) => "no answer before the deadline".to_owned(),
            _ => status.message().to_owned(),
        };
        Self {
            endpoint,
            request,
            effect,
            cause,
            text,
        }
    }

    /// The server resets a request whose deadline passed, which may arrive before our own timer fires: a
    /// connection that seems to break at or after the deadline is the deadline.
    pub(crate) fn at_deadline(self, limit_ms: u128) -> Self {
        if self.cause == Cause::Transport {
            Self::deadline(self.endpoint, self.request, self.effect, limit_ms)
        } else {
            self
        }
    }

    fn judge(&self) -> (&'static str, Certainty) {
        match self.cause {
            Cause::NotConnected => ("connect-failed", NotDone),
            Cause::Deadline => ("timeout", Unknown),
            Cause::Transport => ("connection-broken", Unknown),
            Cause::Server(code) => TABLE
                .iter()
                .find(|(text, ..)| self.text.contains(text))
                .map_or_else(|| by_code(code), |&(_, code, certainty)| (code, certainty)),
        }
    }

    /// The stable code: `timeout`, `connect-failed`, `lease-not-found` …
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.judge().0
    }

    /// True when the request definitely had no effect.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        self.judge().1.rules_out(self.effect)
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

    /// True when a stream that ended with this error is opened again: Go's `isHaltErr` (client.go) gives up
    /// on every word of the server but `Unavailable` and `Internal`.
    pub(crate) fn reopens_stream(&self) -> bool {
        !matches!(self.cause, Cause::Server(code) if !matches!(code, Code::Unavailable | Code::Internal))
    }
}

/// An error and what caused it, outermost first.
fn chain<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// True when an error of this type is in the chain.
fn find<E: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static)) -> bool {
    chain(error).any(|error| error.is::<E>())
}

/// The words of the last error in the chain: the ones that say what happened.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: Code, text: &str, effect: Effect) -> EtcdError {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 2379));
        EtcdError::from_status(endpoint, "/test", effect, &tonic::Status::new(code, text))
    }

    /// Server's code and text, our code, definite for one proposal, definite for the lock service.
    const EXPECTED: &[(Code, &str, &str, bool, bool)] = &[
        (
            Code::Unknown,
            "mutex: session is expired",
            "session-expired",
            true,
            true,
        ),
        (
            Code::NotFound,
            "etcdserver: requested lease not found",
            "lease-not-found",
            true,
            true,
        ),
        (
            Code::Unknown,
            "etcdserver: requested lease not found",
            "lease-not-found",
            true,
            true,
        ),
        (
            Code::ResourceExhausted,
            "etcdserver: too many requests",
            "too-many-requests",
            true,
            false,
        ),
        (
            Code::InvalidArgument,
            "etcdserver: request is too large",
            "rejected",
            true,
            false,
        ),
        (
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
            "no-space",
            true,
            false,
        ),
        (
            Code::Unknown,
            "raft proposal dropped",
            "proposal-dropped",
            true,
            false,
        ),
        (
            Code::Unavailable,
            "etcdserver: no leader",
            "no-leader",
            true,
            false,
        ),
        (
            Code::Unavailable,
            "etcdserver: request timed out",
            "server-timeout",
            false,
            false,
        ),
        (
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
            "server-timeout",
            false,
            false,
        ),
        (
            Code::Unavailable,
            "etcdserver: leader changed",
            "leader-changed",
            false,
            false,
        ),
        (
            Code::Unavailable,
            "etcdserver: server stopped",
            "server-stopped",
            false,
            false,
        ),
        (
            Code::Unknown,
            "lost watcher waiting for delete",
            "watch-lost",
            false,
            false,
        ),
        (
            Code::Unknown,
            "context deadline exceeded",
            "timeout",
            false,
            false,
        ),
        (Code::DeadlineExceeded, "anything", "timeout", false, false),
        (Code::Cancelled, "anything", "cancelled", false, false),
        (
            Code::InvalidArgument,
            "etcdserver: key is not provided",
            "rejected",
            true,
            false,
        ),
        (
            Code::Unimplemented,
            "unknown service v3lockpb.Lock",
            "rejected",
            true,
            true,
        ),
        (
            Code::Unavailable,
            "never heard of",
            "unavailable",
            false,
            false,
        ),
        (
            Code::Internal,
            "never heard of",
            "server-error",
            false,
            false,
        ),
    ];

    #[test]
    fn each_answer_of_the_server_is_definite_or_not() {
        for &(code, text, ours, one, several) in EXPECTED {
            assert_eq!(said(code, text, Effect::One).code(), ours, "{text}");
            assert_eq!(
                said(code, text, Effect::One).is_definite(),
                one,
                "{text}, one proposal"
            );
            assert_eq!(
                said(code, text, Effect::Several).is_definite(),
                several,
                "{text}, lock service"
            );
            assert!(
                said(code, text, Effect::None).is_definite(),
                "{text}, a read"
            );
        }
    }

    #[test]
    fn every_row_of_the_table_can_be_reached() {
        for (row, (text, code, _)) in TABLE.iter().enumerate() {
            assert_eq!(
                said(Code::Unknown, text, Effect::One).code(),
                *code,
                "row {row}"
            );
            let first = TABLE
                .iter()
                .position(|(earlier, ..)| text.contains(earlier));
            assert_eq!(first, Some(row), "`{text}` is caught by an earlier row");
        }
    }

    #[test]
    fn a_deadline_of_our_own_is_unknown_for_writes_and_harmless_for_reads() {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 2379));
        assert!(!EtcdError::deadline(endpoint, "/test", Effect::One, 5).is_definite());
        assert!(EtcdError::deadline(endpoint, "/test", Effect::None, 5).is_definite());
        let words = EtcdError::deadline(endpoint, "/test", Effect::One, 5).to_string();
        assert_eq!(
            words,
            "etcd 127.0.0.1:2379, /test: timeout: no answer within 5 ms"
        );
    }

    #[test]
    fn only_unavailable_and_internal_words_of_the_server_reopen_a_stream() {
        assert!(said(Code::Unavailable, "etcdserver: no leader", Effect::None).reopens_stream());
        assert!(
            !said(
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Effect::None
            )
            .reopens_stream()
        );
    }
}
