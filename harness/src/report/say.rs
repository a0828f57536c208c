//! Printing to standard output. A reader that has gone away (`fencepost list | head`) is no error.

use std::fmt::Arguments;
use std::io::Write;

/// Prints text as it is.
pub fn write(text: Arguments<'_>) {
    // Nobody is left to be told that nobody reads.
    let _ = std::io::stdout().write_fmt(text);
}

/// Prints one line.
#[macro_export]
macro_rules! say {
    () => { $crate::report::say::write(format_args!("\n")) };
    ($($words:tt)*) => { $crate::report::say::write(format_args!("{}\n", format_args!($($words)*))) };
}
