//! Targets: whom a fault is meant for, as scenario files write it.
//!
//! A target is only a name here. Who that is at a given moment (who holds the lock, who leads) is
//! known to the harness, which answers through [`World::resolve`](crate::World::resolve).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whom a fault is meant for. Written as a string: `holder`, `node:n1`, `client:c1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The client host whose logical client holds a lock.
    Holder,
    /// A client host whose logical client waits for a lock.
    Waiter,
    /// Any client host.
    Client,
    /// Every client host.
    Clients,
    /// The node that leads the lock service.
    Leader,
    /// Any node that does not lead.
    Follower,
    /// Any one node.
    One,
    /// Every node.
    All,
    /// A random set of fewer than half of the nodes.
    Minority,
    /// A random set of more than half of the nodes.
    Majority,
    /// The node of that name.
    Node(String),
    /// The client host of that name.
    ClientHost(String),
}

/// The targets that are a single word, with that word. The only place where the two meet.
const WORDS: [(&str, Target); 10] = [
    ("holder", Target::Holder),
    ("waiter", Target::Waiter),
    ("client", Target::Client),
    ("clients", Target::Clients),
    ("leader", Target::Leader),
    ("follower", Target::Follower),
    ("one", Target::One),
    ("all", Target::All),
    ("minority", Target::Minority),
    ("majority", Target::Majority),
];

/// How a named node is written, up to its name.
const NODE_PREFIX: &str = "node:";
/// How a named client host is written, up to its name.
const CLIENT_PREFIX: &str = "client:";

/// The forms of every target, for a fault's [`targets`](crate::FaultSpec::targets) and for messages.
pub const ALL_FORMS: &[&str] = &[
    "holder",
    "waiter",
    "client",
    "clients",
    "leader",
    "follower",
    "one",
    "all",
    "minority",
    "majority",
    "node:NAME",
    "client:NAME",
];

/// The forms of the targets that are nodes, which are the ones that keep anything on a disk.
pub const NODE_FORMS: &[&str] = &[
    "leader",
    "follower",
    "one",
    "all",
    "minority",
    "majority",
    "node:NAME",
];

/// A text that is no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a target, found \"{found}\"; write one of {}",
    ALL_FORMS.join(", ")
)]
pub struct TargetError {
    /// What was found.
    pub found: String,
}

impl Target {
    /// The form of this target as listed in [`ALL_FORMS`]: its word, `node:NAME` or `client:NAME`.
    #[must_use]
    pub fn form(&self) -> &'static str {
        match self {
            Self::Node(_) => "node:NAME",
            Self::ClientHost(_) => "client:NAME",
            word => {
                let listed = WORDS.iter().find(|(_, target)| target == word);
                listed.expect("every target without a name is in WORDS").0
            }
        }
    }

    /// Whether this is client hosts, and not nodes.
    #[must_use]
    pub fn is_client(&self) -> bool {
        !NODE_FORMS.contains(&self.form())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "{NODE_PREFIX}{name}"),
            Self::ClientHost(name) => write!(f, "{CLIENT_PREFIX}{name}"),
            word => f.write_str(word.form()),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let named = |prefix| {
            let name: &str = text.strip_prefix(prefix)?;
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            (!name.is_empty() && name.chars().all(legal)).then(|| name.to_owned())
        };
        if let Some((_, target)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(target.clone());
        }
        if let Some(name) = named(NODE_PREFIX) {
            return Ok(Self::Node(name));
        }
        if let Some(name) = named(CLIENT_PREFIX) {
            return Ok(Self::ClientHost(name));
        }
        Err(TargetError {
            found: text.to_owned(),
        })
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_text_and_json() {
        for form in ALL_FORMS {
            let text = form.replace("NAME", "x-1");
            let target: Target = text.parse().expect("a listed form parses");
            assert_eq!(target.to_string(), text);
            assert_eq!(target.form(), *form);
            let json = serde_json::to_string(&target).expect("serialises");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(
                serde_json::from_str::<Target>(&json).expect("reads back"),
                target
            );
        }
    }

    #[test]
    fn rubbish_is_refused_with_what_to_write() {
        for bad in [
            "", "Holder", "node:", "node", "node:a b", "leader ", "link:a",
        ] {
            let error = bad.parse::<Target>().expect_err(bad).to_string();
            assert!(error.contains(&format!("found \"{bad}\"")), "{error}");
            assert!(error.contains("node:NAME"), "{error}");
        }
    }
}
