//! The worker: the process that lock clients live in, and the lines it speaks with the controller.
//!
//! `PROTOCOL.md` describes the lines for those who write a worker in another language.

pub mod client;
pub mod protocol;
pub mod serve;
