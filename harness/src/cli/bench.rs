//! `fencepost bench`: what the harness itself can do. It prints what it measured and judges nothing.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::Exit;

pub mod clock;
pub mod faults;
pub mod run_loop;

/// Measure the harness itself
#[derive(Debug, Args)]
#[command(after_help = "Example:
  fencepost bench loop --seconds 5
  fencepost bench faults
  fencepost bench clock")]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Loop(run_loop::LoopArgs),
    Faults(faults::FaultsArgs),
    Clock(clock::ClockArgs),
}

/// Does it.
///
/// # Errors
/// What keeps the measurement from running.
pub fn run(args: &BenchArgs) -> Result<Exit> {
    match &args.bench {
        Bench::Loop(args) => run_loop::run(args),
        Bench::Faults(args) => faults::run(args),
        Bench::Clock(args) => clock::run(args),
    }
}
