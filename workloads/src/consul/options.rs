//! What a scenario may say about a Consul lock, and what the server is told of it.

use std::time::Duration;

use serde_json::json;

use crate::lock::LockConfig;
use crate::option::{OptionKind, OptionSpec};

/// The longest lock-delay (`structs.MaxLockDelay`); the server takes a longer one and cuts it down in silence.
const MAX_LOCK_DELAY_MS: u64 = 60_000;

/// Option `lock-delay`.
pub(crate) const LOCK_DELAY: OptionSpec = OptionSpec {
    name: "lock-delay",
    kind: OptionKind::Millis {
        min: 0,
        max: MAX_LOCK_DELAY_MS,
    },
    default: "15000",
    about: "For how long nobody gets a lock whose session ended without giving it back (the Go client cannot \
            ask for 0, which its users get only by the HTTP API).",
};

/// Option `behaviour`.
pub(crate) const BEHAVIOUR: OptionSpec = OptionSpec {
    name: "behaviour",
    kind: OptionKind::Word(&["release", "delete"]),
    default: "release",
    about: "What happens to the lock's key when its session ends.",
};

/// Option `checks`.
pub(crate) const CHECKS: OptionSpec = OptionSpec {
    name: "checks",
    kind: OptionKind::Word(&["serf-health", "none"]),
    default: "serf-health",
    about: "Whether a session also ends when gossip takes the server that it was created through for dead, as \
            sessions do unless they ask for no checks.",
};

/// Option `token`.
pub(crate) const TOKEN: OptionSpec = OptionSpec {
    name: "token",
    kind: OptionKind::Word(&["modify-index", "lock-index"]),
    default: "modify-index",
    about: "The fencing token: the key's ModifyIndex, or the LockIndex of the documented sequencer.",
};

/// Option `publish`.
pub(crate) const PUBLISH: OptionSpec = OptionSpec {
    name: "publish",
    kind: OptionKind::Flag,
    default: "false",
    about: "Whether a holder then writes to its lock's key by a plain put, as services do that publish their \
            address there.",
};

/// Which of a key's numbers is the fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// `ModifyIndex`, the raft index of the acquire.
    ModifyIndex,
    /// `LockIndex`, which counts acquires.
    LockIndex,
}

impl Token {
    /// As options and lock keys say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Token::ModifyIndex => "modify-index",
            Token::LockIndex => "lock-index",
        }
    }

    /// The token of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        [Token::ModifyIndex, Token::LockIndex]
            .into_iter()
            .find(|token| token.name() == name)
    }
}

/// What a session is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAsk {
    /// Time-to-live; the server ends a session twice this long after its last renewal.
    pub ttl: Duration,
    /// For how long nobody gets its keys once it has ended.
    pub lock_delay: Duration,
    /// `release` or `delete`.
    pub behaviour: String,
    /// Whether it ends when gossip takes its server for dead.
    pub serf_health: bool,
}

impl SessionAsk {
    /// From a lock's configuration.
    #[must_use]
    pub fn new(config: &LockConfig) -> Self {
        let options = &config.options;
        Self {
            ttl: config.ttl(),
            lock_delay: Duration::from_millis(options.number(&LOCK_DELAY)),
            behaviour: options.text(&BEHAVIOUR).to_owned(),
            serf_health: options.text(&CHECKS) == "serf-health",
        }
    }

    /// The request's body.
    pub(super) fn body(&self) -> String {
        let mut body = json!({
            "Name": "fencepost",
            "TTL": format!("{}ms", self.ttl.as_millis()),
            "LockDelay": format!("{}ms", self.lock_delay.as_millis()),
            "Behavior": self.behaviour,
        });
        // Without a word about checks the server adds its own node's `serfHealth`.
        if !self.serf_health {
            body["Checks"] = json!([]);
        }
        body.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_as_the_options_say() {
        let mut config = LockConfig {
            ttl_ms: 2_000,
            ..LockConfig::default()
        };
        assert_eq!(
            SessionAsk::new(&config).body(),
            r#"{"Behavior":"release","LockDelay":"15000ms","Name":"fencepost","TTL":"2000ms"}"#
        );
        for (name, value) in [
            ("lock-delay", "0"),
            ("behaviour", "delete"),
            ("checks", "none"),
        ] {
            config.options.0.insert(name.to_owned(), value.to_owned());
        }
        assert_eq!(
            SessionAsk::new(&config).body(),
            r#"{"Behavior":"delete","Checks":[],"LockDelay":"0ms","Name":"fencepost","TTL":"2000ms"}"#
        );
    }

    #[test]
    fn the_token_is_one_of_the_option() {
        let OptionKind::Word(words) = TOKEN.kind else {
            panic!("{:?}", TOKEN.kind);
        };
        let names = [Token::ModifyIndex, Token::LockIndex].map(Token::name);
        assert_eq!(words, names);
        assert!(names.iter().all(|name| Token::find(name).is_some()));
    }
}
