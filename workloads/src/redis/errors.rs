//! The one place that says what an error of Redis means: definitely not done, or nobody can know.
//!
//! A wrong "definitely not" would make a correct server look guilty, so whatever the table does not know is
//! unknown. Sources: `src/server.c` of Redis (`createSharedObjects` for the texts, `processCommand` for what
//! is checked before a command runs) and `src/script.c` (`scriptCall`; up to 6.2 `src/scripting.c`,
//! `luaRedisGenericCommand`), which checks the same before each write of a script. What must not be in here:
//! retries.

use std::net::SocketAddr;

use crate::certainty::Certainty::{self, NotDone, NotDoneIfSingle, Unknown};
pub use crate::certainty::Effect;
use crate::reply::{Reason, Reply};

/// An error of one command to one Redis or Sentinel.
#[derive(Clone, Debug, thiserror::Error)]
#[error("redis {endpoint}, {command}: {}", self.reason())]
pub struct RedisError {
    /// The server.
    pub endpoint: SocketAddr,
    /// The command, for instance `SET`.
    pub command: &'static str,
    /// What the command does to the server's data.
    pub effect: Effect,
    pub(super) cause: Cause,
    pub(super) text: String,
}

/// Where an error came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// No connection could be made: nothing was sent.
    NotConnected,
    /// Our own limit passed.
    Deadline,
    /// The connection broke after the command was handed to it, or its bytes made no sense.
    Transport,
    /// Whoever answered is not the primary that it was taken for: the command was not sent.
    NotPrimary,
    /// The server said so.
    Server,
}

/// First word of the server's message, stable code, what it means. An error within a script is found by its
/// word too: Redis up to 6.2 quotes it (`… @user_script: 1: -READONLY You can't …`).
const TABLE: &[(&str, &str, Certainty)] = &[
    // `processCommand` refuses these before the command runs, and a script's write before it is made; the
    // state behind them cannot change within a script, so its first write is the one refused.
    ("LOADING", "loading", NotDone),
    ("READONLY", "read-only", NotDone),
    ("NOREPLICAS", "no-replicas", NotDone),
    ("MISCONF", "misconf", NotDone),
    ("MASTERDOWN", "master-down", NotDone),
    ("OOM", "out-of-memory", NotDone),
    // Another script runs for too long; this command was not begun.
    ("BUSY", "busy", NotDone),
    ("NOSCRIPT", "rejected", NotDone),
    ("EXECABORT", "rejected", NotDone),
    ("NOAUTH", "refused", NotDone),
    ("NOPERM", "refused", NotDone),
    ("WRONGPASS", "refused", NotDone),
    ("DENIED", "refused", NotDone),
    // Redis Cluster's redirections.
    ("MOVED", "redirected", NotDone),
    ("ASK", "redirected", NotDone),
    ("TRYAGAIN", "redirected", NotDone),
    ("CLUSTERDOWN", "redirected", NotDone),
    // Said to a connection, which is then closed.
    ("ERR max number of clients", "max-clients", NotDone),
    ("ERR unknown command", "rejected", NotDone),
    ("ERR Error compiling script", "rejected", NotDone),
    // A single command finds these out before it changes anything; a script may have come further.
    ("WRONGTYPE", "wrong-type", NotDoneIfSingle),
    // A command that waits was ended because its server changed its role.
    ("UNBLOCKED", "role-changed", Unknown),
    ("ERR", "rejected", NotDoneIfSingle),
];

impl RedisError {
    pub(super) fn new(
        endpoint: SocketAddr,
        command: &'static str,
        effect: Effect,
        cause: Cause,
        text: impl Into<String>,
    ) -> Self {
        Self {
            endpoint,
            command,
            effect,
            cause,
            text: text.into(),
        }
    }

    /// No connection could be made.
    pub(super) fn not_connected(endpoint: SocketAddr, why: impl Into<String>) -> Self {
        Self::new(endpoint, "connect", Effect::None, Cause::NotConnected, why)
    }

    /// The answer does not hold what the protocol promises.
    pub(crate) fn malformed(
        endpoint: SocketAddr,
        command: &'static str,
        effect: Effect,
        found: &impl std::fmt::Debug,
    ) -> Self {
        let text = format!("an answer that makes no sense: {found:?}");
        Self::new(endpoint, command, effect, Cause::Transport, text)
    }

    fn judge(&self) -> (&'static str, Certainty) {
        match self.cause {
            Cause::NotConnected => ("connect-failed", NotDone),
            Cause::NotPrimary => ("not-primary", NotDone),
            Cause::Deadline => ("timeout", Unknown),
            Cause::Transport => ("connection-broken", Unknown),
            Cause::Server => TABLE
                .iter()
                .find(|(word, ..)| says(&self.text, word))
                .map_or(("server-error", Unknown), |&(_, code, certainty)| {
                    (code, certainty)
                }),
        }
    }

    /// The stable code: `timeout`, `connect-failed`, `read-only` …
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.judge().0
    }

    /// True when the command definitely had no effect.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        self.judge().1.rules_out(self.effect)
    }

    /// True when the connection is of no more use, or leads to the wrong server: the next command needs
    /// another one.
    pub(super) fn spoils_connection(&self) -> bool {
        self.cause != Cause::Server || matches!(self.code(), "read-only" | "max-clients")
    }

    /// Code and words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::new(self.code(), self.text.clone())
    }

    /// The outcome of the operation that consisted of this command.
    #[must_use]
    pub fn reply<T>(&self) -> Reply<T> {
        Reply::of_error(self.is_definite(), self.reason())
    }
}

/// Whether a message begins with these words, or quotes an error that does.
fn says(message: &str, words: &str) -> bool {
    let begins = |text: &str| {
        text.strip_prefix(words)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_uppercase()))
    };
    begins(message) || message.split(": -").skip(1).any(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, effect: Effect) -> RedisError {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 6379));
        RedisError::new(endpoint, "TEST", effect, Cause::Server, text)
    }

    /// The server's words (7.0.15 unless said), our code, definite for one command, definite for a script.
    const EXPECTED: &[(&str, &str, bool, bool)] = &[
        (
            "LOADING Redis is loading the dataset in memory",
            "loading",
            true,
            true,
        ),
        (
            "READONLY You can't write against a read only replica.",
            "read-only",
            true,
            true,
        ),
        (
            "READONLY You can't write against a read only replica. script: 9f5, on @user_script:1.",
            "read-only",
            true,
            true,
        ),
        // 6.0.16
        (
            "ERR Error running script (call to f_9f5): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
            "read-only",
            true,
            true,
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            "no-replicas",
            true,
            true,
        ),
        (
            "MISCONF Errors writing to the AOF file: No space left on device",
            "misconf",
            true,
            true,
        ),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "master-down",
            true,
            true,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            "out-of-memory",
            true,
            true,
        ),
        ("BUSY Redis is busy running a script.", "busy", true, true),
        (
            "BUSYKEY Target key name already exists.",
            "server-error",
            false,
            false,
        ),
        ("NOAUTH Authentication required.", "refused", true, true),
        ("MOVED 3999 127.0.0.1:6381", "redirected", true, true),
        (
            "ERR max number of clients reached",
            "max-clients",
            true,
            true,
        ),
        ("ERR unknown command 'SENTINEL'", "rejected", true, true),
        ("ERR syntax error", "rejected", true, false),
        (
            "ERR Error running script (call to f_9f5): @user_script:1: oops",
            "rejected",
            true,
            false,
        ),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "wrong-type",
            true,
            false,
        ),
        (
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            "role-changed",
            false,
            false,
        ),
        ("NEVERHEARD of it", "server-error", false, false),
    ];

    #[test]
    fn each_answer_of_the_server_is_definite_or_not() {
        for &(text, code, one, script) in EXPECTED {
            assert_eq!(said(text, Effect::One).code(), code, "{text}");
            assert_eq!(
                said(text, Effect::One).is_definite(),
                one,
                "{text}, one command"
            );
            assert_eq!(
                said(text, Effect::Several).is_definite(),
                script,
                "{text}, a script"
            );
            assert!(said(text, Effect::None).is_definite(), "{text}, a read");
        }
    }

    #[test]
    fn every_row_of_the_table_can_be_reached() {
        for (row, (text, code, _)) in TABLE.iter().enumerate() {
            assert_eq!(said(text, Effect::One).code(), *code, "row {row}");
            let first = TABLE.iter().position(|(earlier, ..)| says(text, earlier));
            assert_eq!(first, Some(row), "`{text}` is caught by an earlier row");
        }
    }

    #[test]
    fn what_broke_on_the_way_is_unknown_and_what_was_never_sent_is_not() {
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 6379));
        for (cause, definite) in [
            (Cause::NotConnected, true),
            (Cause::NotPrimary, true),
            (Cause::Deadline, false),
            (Cause::Transport, false),
        ] {
            let error = RedisError::new(endpoint, "SET", Effect::One, cause, "why");
            assert_eq!(error.is_definite(), definite, "{cause:?}");
            assert!(error.spoils_connection());
        }
        let words = RedisError::new(endpoint, "SET", Effect::One, Cause::Deadline, "why");
        assert_eq!(words.to_string(), "redis 127.0.0.1:6379, SET: timeout: why");
        assert!(!said("LOADING", Effect::One).spoils_connection());
        assert!(said("READONLY", Effect::One).spoils_connection());
    }
}
