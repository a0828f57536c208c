//! Searching for an order of operations: for models that no direct algorithm decides, and as the oracle
//! that the direct ones are held to.

pub mod exhaustive;
pub mod spec;
pub mod wgl;
