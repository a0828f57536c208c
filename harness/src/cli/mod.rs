//! The command line: one file a verb. It parses, calls, and turns results into exit codes.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::provision::ProvisionError;
use crate::replay::ReplayError;
use crate::store::StoreError;

pub mod backends;
pub mod bench;
pub mod check;
pub mod check_file;
pub mod doctor;
pub mod export;
pub mod list;
pub mod parts;
pub mod run;

/// Breaks distributed locks on purpose and counts what it cost.
///
/// fencepost starts real lock services, drives lock workloads from separate client processes, injects
/// faults with receipts, and explains each lost write from cause to effect.
#[derive(Debug, Parser)]
#[command(name = "fencepost", version, after_help = Exit::HELP, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Export(export::ExportArgs),
    List(list::ListArgs),
    Backends(backends::BackendsArgs),
    Doctor(doctor::DoctorArgs),
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    DoctorInside,
    #[command(hide = true)]
    Worker,
    #[command(hide = true)]
    ClockCanary,
    #[command(hide = true)]
    ClockSubject(bench::clock::subject::SubjectArgs),
    #[command(hide = true)]
    Controller(parts::ControllerArgs),
    #[command(hide = true)]
    BuiltinServer(parts::BuiltinServerArgs),
}

/// Parses the command line and does what it says.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            // Help that cannot be printed has no reader.
            let _ = error.print();
            return if asked {
                Exit::Met.into()
            } else {
                Exit::Usage.into()
            };
        }
    };
    let done = match cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Check(args) => check::run(&args),
        Verb::Export(args) => export::run(&args),
        Verb::List(args) => list::run(&args),
        Verb::Backends(args) => backends::run(args).map(|()| Exit::Met),
        Verb::Bench(args) => bench::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::DoctorInside => Ok(crate::doctor::inside::main(crate::doctor::inherited_pipe())),
        Verb::Worker => parts::worker(),
        Verb::ClockCanary => return nemesis::clock::canary::main(),
        Verb::ClockSubject(args) => return bench::clock::subject::main(&args),
        Verb::Controller(args) => Ok(parts::controller(&args)),
        Verb::BuiltinServer(args) => parts::builtin_server(&args),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            let usage = error
                .downcast_ref::<ProvisionError>()
                .is_some_and(ProvisionError::is_usage)
                || matches!(error.downcast_ref(), Some(StoreError::NoRun(_)))
                || error.downcast_ref::<ReplayError>().is_some();
            if usage {
                Exit::Usage.into()
            } else {
                Exit::SetUp.into()
            }
        }
    }
}
