//! The history: everything that happened in one trial, one event a line.
//!
//! [`HistoryWriter`] records it, [`History::read`] reads it back and settles every operation. What
//! must not be in here: anything that a checker concludes.

pub(crate) mod decode;
mod encode;
mod error;
pub mod event;
mod feed;
pub(crate) mod hot;
pub(crate) mod lines;
mod names;
mod reader;
mod settle;
mod settled;
mod writer;

pub use encode::encode;
pub use error::{Problem, ReadError};
pub use event::{
    Access, ClientOpened, Completion, End, EndReason, Event, FORMAT_VERSION, FaultEvent,
    FaultPhase, FinalRead, Function, Header, Invoke, LeaderSeen, LeaseEvent, LeasePhase, Lost, Ns,
    Outcome,
};
pub use lines::MAX_LINE_BYTES;
pub use names::Names;
pub use settled::{History, Operation, Truncation};
pub use writer::HistoryWriter;
