//! What a scenario says about a fault: whom it hits, when, and for how long.
//!
//! These are the words of the file in typed form, with the same JSON form as the nemesis's own types.
//! Drawing a schedule from them is the nemesis's job.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::words::TriggerEvent;

/// Whom a fault hits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The host of a client that holds a lock.
    Holder,
    /// The host of a client that waits for a lock.
    Waiter,
    /// The host of any client.
    Client,
    /// The node that leads the cluster.
    Leader,
    /// A node that follows.
    Follower,
    /// Any one node.
    One,
    /// All nodes.
    All,
    /// As many nodes as the cluster can do without.
    Minority,
    /// As many nodes as the cluster cannot do without.
    Majority,
    /// The node of this name, for instance `n1`.
    Node(String),
    /// The client host of this name, for instance `c1`.
    ClientHost(String),
}

/// The targets that are a word of their own.
const WORDS: &[(&str, Target)] = &[
    ("holder", Target::Holder),
    ("waiter", Target::Waiter),
    ("client", Target::Client),
    ("leader", Target::Leader),
    ("follower", Target::Follower),
    ("one", Target::One),
    ("all", Target::All),
    ("minority", Target::Minority),
    ("majority", Target::Majority),
];

impl Target {
    pub(super) const SYNTAX: &'static str = "holder, waiter, client, leader, follower, one, all, minority, majority, node:n1 … or client:c1 …";

    /// Reads `holder`, `node:n1`, `client:c1` …
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((_, target)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Some(target.clone());
        }
        match text.split_once(':')? {
            ("node", name) if host_number(name, 'n').is_some() => Some(Self::Node(name.to_owned())),
            ("client", name) if host_number(name, 'c').is_some() => {
                Some(Self::ClientHost(name.to_owned()))
            }
            _ => None,
        }
    }

    /// The form under which a fault lists it among its targets: the word, `node:NAME` or `client:NAME`.
    #[must_use]
    pub fn form(&self) -> &str {
        match self {
            Self::Node(_) => "node:NAME",
            Self::ClientHost(_) => "client:NAME",
            word => WORDS
                .iter()
                .find(|(_, target)| target == word)
                .map_or("", |(word, _)| word),
        }
    }

    /// The words that stand for a target, for suggestions.
    pub(super) fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(word, _)| *word)
    }

    /// The number of the named host, from 1.
    pub(super) fn host_number(&self) -> Option<u32> {
        match self {
            Self::Node(name) => host_number(name, 'n'),
            Self::ClientHost(name) => host_number(name, 'c'),
            _ => None,
        }
    }
}

/// `n3` is 3. Leading zeros, signs and 0 are no host names.
fn host_number(name: &str, prefix: char) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "node:{name}"),
            Self::ClientHost(name) => write!(f, "client:{name}"),
            word => f.write_str(word.form()),
        }
    }
}

/// A text that names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {syntax}, found \"{found}\"", syntax = Target::SYNTAX)]
pub struct TargetError {
    /// The text.
    pub found: String,
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        Self::parse(&text).ok_or(TargetError { found: text })
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

/// When a fault happens. Times count from the start of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Trigger {
    /// Again and again.
    Every {
        /// Time between two, in nanoseconds.
        every_ns: u64,
        /// The first time, in nanoseconds.
        first_ns: u64,
    },
    /// Once.
    At {
        /// The time, in nanoseconds.
        at_ns: u64,
    },
    /// On an event of the running trial.
    On {
        /// Which.
        event: TriggerEvent,
        /// Delay after the event, in nanoseconds.
        after_ns: u64,
        /// Chance that an event triggers the fault, above 0 and at most 1.
        probability: f64,
        /// How often in a trial; `None` is without limit.
        at_most: Option<u32>,
        /// Least time between two, in nanoseconds.
        spacing_ns: u64,
    },
}

/// How long a fault lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Lasts {
    /// Always the same.
    Fixed {
        /// The length, in nanoseconds.
        ns: u64,
    },
    /// Drawn uniformly.
    Uniform {
        /// The shortest, in nanoseconds.
        min_ns: u64,
        /// The longest, in nanoseconds.
        max_ns: u64,
    },
    /// Drawn from a log-normal distribution, the heavy tail of garbage collection.
    Gc {
        /// Half are shorter, in nanoseconds.
        median_ns: u64,
        /// One in a hundred is longer, in nanoseconds.
        p99_ns: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_print_and_read_back() {
        let named = ["node:n1", "node:n12", "client:c3"];
        for text in Target::words().chain(named) {
            let target = Target::parse(text).expect(text);
            assert_eq!(target.to_string(), text);
        }
        for wrong in [
            "",
            "nobody",
            "node",
            "node:",
            "node:c1",
            "node:n0",
            "node:n01",
            "node:n+1",
            "client:n1",
            "link:a",
        ] {
            assert_eq!(Target::parse(wrong), None, "{wrong}");
        }
    }
}
