//! Workloads: lock clients, protected resources, the scripts that use them, and the worker process.
//!
//! What this crate is for: everything that a client of a lock does, the way the documented client does
//! it. What it must not do: start servers, inject faults, or judge a history.

pub mod belief;
pub mod certainty;
pub mod consul;
pub mod discipline;
pub mod etcd;
pub mod line;
pub mod lock;
pub mod option;
pub mod redis;
pub mod reply;
pub mod resource;
pub mod script;
pub mod truth;
pub mod worker;
pub mod zookeeper;
