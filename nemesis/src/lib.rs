//! The nemesis: faults, how the kernel is made to do them, when they strike, and the proof that they did.
//!
//! What this crate is for: a [`Schedule`] is drawn from a seed and a list of [`FaultPlan`]s; an
//! [`Engine`] carries it out on the hosts that a [`World`] names, and sends a [`Notice`] with a
//! measured receipt for every step. A *fault* ([`fault`]) says what happens to whom and proves it; a
//! *mechanism* ([`mechanism`]) is how the kernel is made to do it. What this crate must not do: know
//! the name of a backend, start a sandbox, or need an asynchronous runtime.
//!
//! Invariant: whatever was injected is healed, also when the engine is stopped in the middle, dropped,
//! or when a fault's thread panics.

#[cfg_attr(not(target_arch = "x86_64"), path = "clock/elsewhere.rs")]
pub mod clock;
pub mod engine;
pub mod fault;
pub mod generator;
pub mod host;
pub mod lasts;
pub mod mechanism;
pub mod need;
pub mod notice;
pub mod param;
pub mod peers;
pub mod plan;
pub mod receipt;
pub mod schedule;
pub mod target;
pub mod ticking;
pub mod trigger;

mod draw;
mod link_receipt;

pub use engine::{Engine, EngineError, Triggered};
pub use fault::{FAULTS, FaultSpec};
pub use generator::{Generator, HealRhythm};
pub use host::{ClientOf, HostControl, Roster, World};
pub use lasts::Lasts;
pub use need::Need;
pub use notice::{FiringId, Notice};
pub use param::{ParamKind, ParamSpec, ParamValue, Params};
pub use peers::Peers;
pub use plan::{FaultPlan, PlanError};
pub use schedule::Schedule;
pub use target::Target;
pub use trigger::{Trigger, TriggerEvent};

/// Reads truth time: nanoseconds of the host's `CLOCK_MONOTONIC`, out of reach of every clock fault.
pub type Now = fn() -> u64;
