//! The `fencepost` harness: scenario files, the sandbox, backends, the run loop, the store, reports and
//! the command line. `ARCHITECTURE.md` in this crate is the map.

pub mod backend;
pub mod cli;
pub mod doctor;
pub mod evaluate;
pub mod exit;
pub mod known;
pub mod provision;
pub mod replay;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod scenario;
pub mod store;
pub mod sweep;
pub mod trial;
