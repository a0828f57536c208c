//! Running a scenario: every trial of every arm in a sandbox of its own, then the verdict.
//!
//! `launcher` is outside of the sandbox and shows progress; `controller` and what it uses are inside.

pub mod clients;
pub mod cluster;
pub mod controller;
pub mod drive;
pub mod environment;
pub mod host;
pub mod launcher;
pub mod live;
pub mod observers;
pub mod place;
pub mod progress;
pub mod recorder;
pub mod slot;
pub mod wake;
pub mod worker;
pub mod world;
