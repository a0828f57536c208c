//! The names of models, as `--model` takes them.

use std::str::FromStr;

use thiserror::Error;

use super::Model;
use super::owner::OwnerLock;

/// Names with what each is, for help texts.
pub const NAMES: &[(&str, &str)] = &[
    ("mutex", "a mutex that anybody may release (Knossos's)"),
    ("owner-mutex", "a mutex that only its holder may release"),
    (
        "reentrant:N",
        "a mutex that its holder may take up to N times",
    ),
    ("semaphore:K", "K permits, each released by who took it"),
    ("ownerless-semaphore:K", "K permits, released by anybody"),
    (
        "fenced",
        "an owner mutex whose known tokens strictly increase",
    ),
    (
        "reentrant-fenced[:N]",
        "the same, up to N deep (2 without N, as in Jepsen's Hazelcast suite)",
    ),
    (
        "cas-register",
        "a register with read, write and compare-and-set",
    ),
    ("register", "the same as cas-register"),
    (
        "set",
        "add, and reads of the whole set: lost, stale, never read, duplicated",
    ),
];

/// What `--model` may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// A lock without owners.
    Ownerless {
        /// How many permits there are.
        permits: u32,
    },
    /// A lock with owners.
    Owner(OwnerLock),
    /// A semaphore with owners.
    Semaphore {
        /// How many permits there are.
        permits: u32,
    },
    /// A register.
    Register,
    /// A set.
    Set,
}

/// A name that is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no model `{found}`{why}; expected one of {}", names())]
pub struct NoModel {
    /// What was given.
    pub found: String,
    why: &'static str,
}

fn names() -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

impl ModelName {
    /// The lock model, if it is one.
    #[must_use]
    pub fn lock(self) -> Option<Model> {
        match self {
            ModelName::Ownerless { permits } => Some(Model::Ownerless { permits }),
            ModelName::Owner(lock) => Some(Model::Owner(lock)),
            ModelName::Semaphore { permits } => Some(Model::Semaphore { permits }),
            ModelName::Register | ModelName::Set => None,
        }
    }
}

impl FromStr for ModelName {
    type Err = NoModel;

    fn from_str(text: &str) -> Result<Self, NoModel> {
        let fail = |why| NoModel {
            found: text.to_owned(),
            why,
        };
        let (name, number) = match text.split_once(':') {
            None => (text, None),
            Some((name, number)) => match number.parse::<u32>() {
                Ok(number @ 1..) => (name, Some(number)),
                _ => return Err(fail(" (the number after the colon must be 1 or more)")),
            },
        };
        let owner = |cap, fenced| ModelName::Owner(OwnerLock { cap, fenced });
        Ok(match (name, number) {
            ("mutex", None) => ModelName::Ownerless { permits: 1 },
            ("owner-mutex", None) => owner(1, false),
            ("fenced", None) => owner(1, true),
            ("reentrant", Some(cap)) => owner(cap, false),
            ("reentrant-fenced", cap) => owner(cap.unwrap_or(2), true),
            ("semaphore", Some(permits)) => ModelName::Semaphore { permits },
            ("ownerless-semaphore", Some(permits)) => ModelName::Ownerless { permits },
            ("cas-register" | "register", None) => ModelName::Register,
            ("set", None) => ModelName::Set,
            ("reentrant" | "semaphore" | "ownerless-semaphore", None) => {
                return Err(fail(" (it needs a number, for instance semaphore:2)"));
            }
            _ => return Err(fail("")),
        })
    }
}
