//! Triggers: when a fault strikes, by the clock, by what the workload does, or by the luck of the draw.
//!
//! Times are nanoseconds after the start of the workload. A trigger says nothing about chance beyond
//! its probability; the draws themselves are made in [`schedule`](crate::schedule).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A moment of the workload that a fault can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TriggerEvent {
    /// A client acquired a lock.
    Acquired,
    /// A client is about to write under a lock.
    BeforeWrite,
    /// Another node was seen to lead.
    LeaderChanged,
}

impl TriggerEvent {
    /// Every name in scenario files.
    pub const NAMES: &[&str] = &["acquired", "before-write", "leader-changed"];

    /// The event of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let all = [Self::Acquired, Self::BeforeWrite, Self::LeaderChanged];
        all.into_iter().find(|event| event.name() == name)
    }

    /// As scenario files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::BeforeWrite => "before-write",
            Self::LeaderChanged => "leader-changed",
        }
    }
}

impl fmt::Display for TriggerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a fault strikes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "when", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Trigger {
    /// Again and again, as long as the workload runs.
    Every {
        /// Distance between two firings.
        every_ns: u64,
        /// The first firing.
        first_ns: u64,
    },
    /// Once.
    At {
        /// The moment.
        at_ns: u64,
    },
    /// Whenever the [`Generator`](crate::Generator) draws it.
    Drawn {
        /// How often it is drawn, against the weights of the others; with 0 never.
        weight: u32,
    },
    /// On an event of the workload.
    On {
        /// The event.
        event: TriggerEvent,
        /// How long after the event the fault strikes. With 0 the workload can wait for it.
        after_ns: u64,
        /// Chance that an event fires at all, from 0 to 1.
        probability: f64,
        /// At most so many firings in a trial. One that found nobody to strike does not count.
        at_most: Option<u32>,
        /// Events closer than this to the one that fired last are passed over, without a draw.
        spacing_ns: u64,
    },
}
