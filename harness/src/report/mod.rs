//! What people read: live progress and the story at the end. Nothing in here decides anything.

pub mod display;
pub mod say;
pub mod story;
