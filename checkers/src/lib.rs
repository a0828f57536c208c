//! Checkers: a history goes in, verdicts come out.
//!
//! What this crate is for: the types of a recorded history, reading and writing it, and the checks
//! that decide whether a lock kept its promise. What it must not do: read a clock, open a socket,
//! start a thread pool, or know the name of a backend. The same history always gives the same verdict.
//!
//! Start at [`history::History::read`], then [`check::run_all`].

pub mod cause;
pub mod check;
pub mod evidence;
pub mod export;
pub mod foreign;
pub mod history;
pub mod judge;
pub mod model;
pub mod register;
pub mod search;
pub mod set_full;
mod slots;
pub mod stats;
pub mod sweep;
pub mod term;
