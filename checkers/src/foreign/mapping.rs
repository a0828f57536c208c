//! What a file calls its operations.

use std::str::FromStr;

use thiserror::Error;

use crate::model::op::Action;

/// What the operations of a history are about. It decides how names and values are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `acquire`, `release`.
    Lock,
    /// `read`, `write`, `cas`.
    Register,
    /// `add`, `read`.
    Set,
}

impl Shape {
    /// Our names and what they mean.
    #[must_use]
    pub fn actions(self) -> &'static [(&'static str, Action)] {
        match self {
            Shape::Lock => &[("acquire", Action::Acquire), ("release", Action::Release)],
            Shape::Register => &[
                ("read", Action::Read),
                ("write", Action::Write),
                ("cas", Action::Cas),
            ],
            Shape::Set => &[("add", Action::Add), ("read", Action::ReadAll)],
        }
    }
}

/// Other names: from `--map acquire=lock,release=unlock,ignore=ping`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Our name, the file's name.
    pairs: Vec<(String, String)>,
}

/// A mapping that cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "`{0}` is no mapping: expected OURS=THEIRS with OURS one of acquire, release, read, write, cas, add, ignore; for instance acquire=lock,release=unlock"
)]
pub struct BadMap(String);

impl FromStr for Mapping {
    type Err = BadMap;

    fn from_str(text: &str) -> Result<Self, BadMap> {
        let mut pairs = Vec::new();
        for part in text.split(',') {
            let (ours, theirs) = part
                .split_once('=')
                .ok_or_else(|| BadMap(part.to_owned()))?;
            let known = [
                "acquire", "release", "read", "write", "cas", "add", "ignore",
            ];
            if !known.contains(&ours) || theirs.is_empty() {
                return Err(BadMap(part.to_owned()));
            }
            // A keyword may be given with its colon.
            let theirs = theirs.strip_prefix(':').unwrap_or(theirs);
            pairs.push((ours.to_owned(), theirs.to_owned()));
        }
        Ok(Self { pairs })
    }
}

/// What the file's name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// An operation of the model.
    Action(Action),
    /// One that was asked to be ignored.
    Ignored,
    /// Nobody knows.
    Unknown,
}

impl Mapping {
    pub(super) fn named(&self, shape: Shape, theirs: &str) -> Named {
        let ours = self.pairs.iter().find(|(_, name)| name == theirs);
        let ours = match ours {
            Some((ours, _)) if ours == "ignore" => return Named::Ignored,
            Some((ours, _)) => ours.as_str(),
            None => theirs,
        };
        let action = shape.actions().iter().find(|(name, _)| *name == ours);
        action.map_or(Named::Unknown, |&(_, action)| Named::Action(action))
    }
}
