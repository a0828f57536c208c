//! The other end of a fault on links: whom the target is cut off from, or reaches badly.

use std::fmt;
use std::str::FromStr;

use crate::Target;

/// Who is at the other end. Written as a word or a target: `nodes`, `its-node`, `follower`, `node:n2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Every other node and client host.
    Everyone,
    /// Every other node.
    Nodes,
    /// Every other client host.
    Clients,
    /// The node that a client host talks to.
    ItsNode,
    /// Whoever a target means at that moment.
    Only(Target),
}

/// The forms that are a single word and no target.
const WORDS: [(&str, Peers); 4] = [
    ("everyone", Peers::Everyone),
    ("nodes", Peers::Nodes),
    ("clients", Peers::Clients),
    ("its-node", Peers::ItsNode),
];

/// How all forms are written, for messages.
pub const SYNTAX: &str =
    "everyone, nodes, clients, its-node, or a target such as follower or node:n2";

/// A text that names nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {SYNTAX}, found \"{found}\"")]
pub struct PeersError {
    /// What was found.
    pub found: String,
}

impl FromStr for Peers {
    type Err = PeersError;

    fn from_str(text: &str) -> Result<Self, PeersError> {
        if let Some((_, peers)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(peers.clone());
        }
        text.parse().map(Self::Only).map_err(|_| PeersError {
            found: text.to_owned(),
        })
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(target) => target.fmt(f),
            word => {
                let listed = WORDS.iter().find(|(_, peers)| peers == word);
                f.write_str(listed.expect("every other form is in WORDS").0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_text() {
        for text in [
            "everyone", "nodes", "clients", "its-node", "leader", "node:n2",
        ] {
            assert_eq!(text.parse::<Peers>().expect(text).to_string(), text);
        }
        let error = "node".parse::<Peers>().expect_err("no form").to_string();
        assert!(
            error.contains("its-node") && error.contains("\"node\""),
            "{error}"
        );
    }
}
