//! Notices: what the engine tells the run loop, each with an event that is ready for the history.

use checkers::history::{FaultEvent, FaultPhase};

/// Number of one injection within a trial, from 1. The same as [`FaultEvent::id`].
pub type FiringId = u32;

/// One step of one firing.
///
/// Each firing says exactly one of `Injected`, `Skipped`, `Failed` first; after `Injected` exactly one
/// of `Healed`, `Failed` follows. In all of them `requested_ns` is when the injection was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The fault is in force since `at_ns`, when that was confirmed.
    Injected(FaultEvent),
    /// It was lifted at `at_ns`; the receipt covers all of it.
    Healed(FaultEvent),
    /// Nothing was done, and the receipt says why.
    Skipped(FaultEvent),
    /// Injecting or healing went wrong, and the receipt says how. What could be undone is undone.
    Failed(FaultEvent),
}

impl Notice {
    /// Wraps an event by its phase.
    #[must_use]
    pub fn new(event: FaultEvent) -> Self {
        match event.phase {
            FaultPhase::Injected => Self::Injected(event),
            FaultPhase::Healed => Self::Healed(event),
            FaultPhase::Skipped => Self::Skipped(event),
            FaultPhase::Failed => Self::Failed(event),
        }
    }

    /// The event for the history.
    #[must_use]
    pub fn event(&self) -> &FaultEvent {
        match self {
            Self::Injected(event)
            | Self::Healed(event)
            | Self::Skipped(event)
            | Self::Failed(event) => event,
        }
    }

    /// Takes the event for the history.
    #[must_use]
    pub fn into_event(self) -> FaultEvent {
        match self {
            Self::Injected(event)
            | Self::Healed(event)
            | Self::Skipped(event)
            | Self::Failed(event) => event,
        }
    }

    /// The firing that it is about.
    #[must_use]
    pub fn id(&self) -> FiringId {
        self.event().id
    }
}
