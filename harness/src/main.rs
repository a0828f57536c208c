//! The `fencepost` command. Everything is in the library; see `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Inits of the sandbox must not start threads or parse anything first.
    if let Some(code) = harness::sandbox::dispatch(std::env::args_os()) {
        return code;
    }
    harness::cli::main()
}
