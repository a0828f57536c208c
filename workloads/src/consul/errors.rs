//! The one place that says what a Consul error means: definitely not done, or nobody can know.
//!
//! A wrong "definitely not" would make a correct server look guilty, so whatever the table does not know is
//! unknown. Sources: Consul 1.8.7, `agent/consul/rpc.go` (`ForwardRPC`, `raftApply`),
//! `agent/consul/{kvs,session}_endpoint.go` (what is checked before a proposal), `agent/consul/state/`
//! (what is refused when it is applied, with its transaction undone), `agent/pool/pool.go`, and the errors of
//! hashicorp/raft 1.1.2. Servers answer with a status and a text, and hand the leader's text on behind words
//! of their own, so that texts are matched wherever they stand. What must not be in here: retries.

use std::net::SocketAddr;

use crate::certainty::Certainty::{self, NotDone, Unknown};
pub use crate::certainty::Effect;
use crate::reply::{Reason, Reply};

/// An error of one request to one Consul server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("consul {endpoint}, {request}: {}", self.reason())]
pub struct ConsulError {
    /// The server.
    pub endpoint: SocketAddr,
    /// Method and path of the request, for instance `PUT /v1/txn`.
    pub request: String,
    /// What the request does to the server's data.
    pub effect: Effect,
    /// Where the error came from.
    pub cause: Cause,
    /// The words of whoever refused.
    pub text: String,
}

/// Where an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No connection could be made, or the one that was kept had ended: nothing was sent.
    NotConnected,
    /// Our own limit passed.
    Deadline,
    /// The connection broke, or its bytes made no sense.
    Transport,
    /// The server said so, with this status.
    Server(u16),
}

/// Text in the server's answer (the first row that fits counts), stable code, what it means.
const TABLE: &[(&str, &str, Certainty)] = &[
    // Held back until a leader is known, for `rpc_hold_timeout` at most, and then dropped.
    ("No cluster leader", "no-leader", NotDone),
    // Raft refused to take the proposal: it came to a server that leads no more, or hands leadership over,
    // or found no place in the leader's queue.
    ("node is not the leader", "not-leader", NotDone),
    ("leadership transfer in progress", "not-leader", NotDone),
    ("timed out enqueuing operation", "not-enqueued", NotDone),
    // The leader could not be reached: nothing was sent to it.
    ("rpc error getting client", "leader-unreachable", NotDone),
    // The proposal was made; a later leader may commit it or not.
    (
        "leadership lost while committing log",
        "leadership-lost",
        Unknown,
    ),
    (
        "snapshot restored while committing log",
        "leadership-lost",
        Unknown,
    ),
    ("raft is already shutdown", "server-stopped", Unknown),
    // Raised when the proposal is applied, before anything is changed.
    ("invalid session", "session-invalid", NotDone),
    ("Missing node registration", "node-missing", NotDone),
    ("Missing check", "check-missing", NotDone),
    ("is in critical state", "check-critical", NotDone),
    // Looked at before a proposal is made.
    ("Invalid Session TTL", "rejected", NotDone),
    ("Invalid Behavior setting", "rejected", NotDone),
    ("Not ready to serve consistent reads", "not-ready", NotDone),
    // The connection to the leader ended before its answer came ("…: EOF"). What the leader itself said is
    // behind the same words, and so must stand above.
    ("rpc error making call", "leader-silent", Unknown),
];

/// What a status means when the table has no row for the text.
fn by_status(status: u16) -> (&'static str, Certainty) {
    match status {
        // Arguments, rights, the method, the size and the rate are looked at before anything is done.
        400 | 403 | 404 | 405 | 413 | 429 => ("rejected", NotDone),
        _ => ("server-error", Unknown),
    }
}

impl ConsulError {
    fn judge(&self) -> (&'static str, Certainty) {
        match self.cause {
            Cause::NotConnected => ("connect-failed", NotDone),
            Cause::Deadline => ("timeout", Unknown),
            Cause::Transport => ("connection-broken", Unknown),
            Cause::Server(status) => TABLE
                .iter()
                .find(|(text, ..)| self.text.contains(text))
                .map_or_else(
                    || by_status(status),
                    |&(_, code, certainty)| (code, certainty),
                ),
        }
    }

    /// The stable code: `timeout`, `connect-failed`, `session-invalid` …
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

    /// Whether the Go client's lock monitor asks again after this error, if it was told to ask again at all
    /// (`api.IsRetryableError`): whatever the network did, and status 500.
    #[must_use]
    pub fn monitor_may_ask_again(&self) -> bool {
        match self.cause {
            Cause::NotConnected | Cause::Deadline | Cause::Transport => true,
            Cause::Server(status) => status == 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(cause: Cause, text: &str, effect: Effect) -> ConsulError {
        ConsulError {
            endpoint: SocketAddr::from(([127, 0, 0, 1], 8500)),
            request: "PUT /v1/test".to_owned(),
            effect,
            cause,
            text: text.to_owned(),
        }
    }

    /// Status and words of the server, our code, whether a write definitely had no effect.
    const EXPECTED: &[(u16, &str, &str, bool)] = &[
        (500, "No cluster leader", "no-leader", true),
        (
            500,
            "rpc error making call: No cluster leader",
            "no-leader",
            true,
        ),
        (500, "node is not the leader", "not-leader", true),
        (
            500,
            "rpc error making call: node is not the leader",
            "not-leader",
            true,
        ),
        (500, "leadership transfer in progress", "not-leader", true),
        (500, "timed out enqueuing operation", "not-enqueued", true),
        (
            500,
            "rpc error getting client: failed to get conn: dial tcp 198.18.0.1:8300: connection refused",
            "leader-unreachable",
            true,
        ),
        (
            500,
            "leadership lost while committing log",
            "leadership-lost",
            false,
        ),
        (
            500,
            "rpc error making call: leadership lost while committing log",
            "leadership-lost",
            false,
        ),
        (
            500,
            "snapshot restored while committing log",
            "leadership-lost",
            false,
        ),
        (500, "raft is already shutdown", "server-stopped", false),
        (500, "rpc error making call: EOF", "leader-silent", false),
        (
            500,
            "rpc error making call: stream closed",
            "leader-silent",
            false,
        ),
        (
            500,
            "invalid session \"2696811c-5110-afbd-df47-23c92695f276\"",
            "session-invalid",
            true,
        ),
        (500, "Missing node registration", "node-missing", true),
        (
            500,
            "Missing check 'serfHealth' registration",
            "check-missing",
            true,
        ),
        (
            500,
            "Check 'serfHealth' is in critical state",
            "check-critical",
            true,
        ),
        (
            500,
            "Invalid Session TTL '10000000', must be between [500ms=24h0m0s]",
            "rejected",
            true,
        ),
        (400, "Missing key name", "rejected", true),
        (
            413,
            "Request body(600000 bytes) too large",
            "rejected",
            true,
        ),
        (429, "", "rejected", true),
        (500, "never heard of", "server-error", false),
        (503, "never heard of", "server-error", false),
    ];

    #[test]
    fn each_answer_of_the_server_is_definite_or_not() {
        for &(status, text, code, definite) in EXPECTED {
            let said = |effect| error(Cause::Server(status), text, effect);
            assert_eq!(said(Effect::One).code(), code, "{text}");
            assert_eq!(said(Effect::One).is_definite(), definite, "{text}");
            assert!(said(Effect::None).is_definite(), "{text}, a read");
        }
    }

    #[test]
    fn every_row_of_the_table_can_be_reached() {
        for (row, (text, code, _)) in TABLE.iter().enumerate() {
            let said = error(Cause::Server(500), text, Effect::One);
            assert_eq!(said.code(), *code, "row {row}");
            let first = TABLE
                .iter()
                .position(|(earlier, ..)| text.contains(earlier));
            assert_eq!(first, Some(row), "`{text}` is caught by an earlier row");
        }
    }

    #[test]
    fn what_the_network_did_is_unknown_once_something_was_sent() {
        for (cause, code, definite) in [
            (Cause::NotConnected, "connect-failed", true),
            (Cause::Deadline, "timeout", false),
            (Cause::Transport, "connection-broken", false),
        ] {
            let write = error(cause, "words", Effect::One);
            assert_eq!((write.code(), write.is_definite()), (code, definite));
            assert!(error(cause, "words", Effect::None).is_definite());
            assert!(write.monitor_may_ask_again());
        }
        let words = error(Cause::Deadline, "no answer within 5 ms", Effect::One).to_string();
        assert_eq!(
            words,
            "consul 127.0.0.1:8500, PUT /v1/test: timeout: no answer within 5 ms"
        );
    }
}
