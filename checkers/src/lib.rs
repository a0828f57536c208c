//! Checkers: a history goes in, verdicts come out.
//!
//! What this crate is for: the types of a recorded history, reading and writing it, and the checks
//! that decide whether a lock kept its promise. What it must not do: read a clock, open a socket,
//! start a thread pool, or know the name of a backend. The same history always gives the same verdict.

pub mod check;
pub mod history;
