//! Getting server binaries, against stand-ins for apt and against the real one.

mod choice;
mod faults;
mod machine;
mod processes;
mod real;
