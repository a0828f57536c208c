//! What people read: live progress and the story at the end. Nothing in here decides anything.

pub mod display;
pub mod story;
