//! The history: everything that happened in one trial, one event a line.

pub mod event;

pub use event::{
    Access, ClientOpened, Completion, End, EndReason, Event, FaultEvent, FaultPhase, FinalRead, Function, Header, Invoke,
    LeaseEvent, LeasePhase, LeaderSeen, Lost, Ns, Outcome,
};
