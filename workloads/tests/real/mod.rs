//! What the tests on real servers have in common: finding the servers, running them, and clients of their locks.
//!
//! Loopback only. What one kind of server has of its own is in its `*_real/server.rs`, not here.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod clients;
pub(crate) mod search;
pub(crate) mod server;
