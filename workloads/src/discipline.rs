//! Holder disciplines: what a holder does about the possibility that its lock is gone.
//!
//! It is a parameter because it is what users choose. The discipline is applied in the worker, right
//! before a write, by what the client knows at that moment; it must not ask the service.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::belief::Belief;
use crate::reply::Reason;

/// What a holder does before it acts on its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Never looks: once acquired, held until released.
    Ignore,
    /// Stops when its client library tells it that the session is lost.
    Session,
    /// Stops when its own clock says that the lease may be over, or when told.
    Deadline,
    /// Never looks, but sends its fencing token with each write; the resource refuses stale ones.
    Token,
    /// Never looks, but makes each write depend on its lock key, in the store's own transaction.
    Txn,
}

impl Discipline {
    /// Every discipline.
    pub const ALL: &[Discipline] = &[
        Discipline::Ignore,
        Discipline::Session,
        Discipline::Deadline,
        Discipline::Token,
        Discipline::Txn,
    ];

    /// Every name, in the order of [`Self::ALL`].
    pub const NAMES: &[&str] = &["ignore", "session", "deadline", "token", "txn"];

    /// Name in scenario files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Discipline::Ignore => "ignore",
            Discipline::Session => "session",
            Discipline::Deadline => "deadline",
            Discipline::Token => "token",
            Discipline::Txn => "txn",
        }
    }

    /// The discipline of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|discipline| discipline.name() == name)
    }

    /// Whether the holder may act now, by what it believes.
    ///
    /// # Errors
    /// The reason to stop.
    pub fn permits(self, belief: &Belief) -> Result<(), Reason> {
        if !matches!(self, Discipline::Session | Discipline::Deadline) {
            return Ok(());
        }
        if let Some((_, why)) = belief.told_lost() {
            return Err(Reason::new("lease-lost", why));
        }
        if self == Discipline::Deadline
            && belief
                .deadline()
                .is_some_and(|deadline| deadline <= Instant::now())
        {
            return Err(Reason::new(
                "lease-deadline",
                "the lease may be over by the holder's own clock",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::belief::Moment;

    #[test]
    fn names_are_those_of_the_values() {
        let names: Vec<_> = Discipline::ALL
            .iter()
            .map(|discipline| discipline.name())
            .collect();
        assert_eq!(names, Discipline::NAMES);
    }

    #[test]
    fn only_session_and_deadline_look() {
        let belief = Belief::new();
        belief.granted(Moment::now(), Duration::ZERO);
        assert_eq!(
            Discipline::Deadline.permits(&belief).unwrap_err().code,
            "lease-deadline"
        );
        assert!(Discipline::Session.permits(&belief).is_ok());
        belief.lost("told");
        for discipline in Discipline::ALL {
            let stops = matches!(discipline, Discipline::Session | Discipline::Deadline);
            assert_eq!(
                discipline.permits(&belief).is_err(),
                stops,
                "{}",
                discipline.name()
            );
        }
    }
}
