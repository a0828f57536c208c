//! `fencepost export`: a stored history in the form of other checkers.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use checkers::export::{Audience, edn};
use checkers::history::History;
use clap::{Args, ValueEnum};

use crate::exit::Exit;
use crate::store::names;

/// Write a history in a form that other checkers read
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fencepost export results/latest/unfenced/trial-1 --edn > history.edn
  fencepost export results/latest/unfenced/trial-1 --edn --for elle -o txns.edn")]
pub struct ExportArgs {
    /// The folder of a trial, or a history file
    path: PathBuf,
    /// Write EDN, one operation map a line (the only form so far)
    #[arg(long, required = true)]
    edn: bool,
    /// Whom it is for
    #[arg(long = "for", value_enum, default_value = "knossos")]
    audience: For,
    /// Only the operations on this lock
    #[arg(long)]
    lock: Option<String>,
    /// Write to this file instead of the standard output
    #[arg(long, short)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum For {
    /// Acquires and releases, for Knossos's lock models (and `fencepost check --model`)
    Knossos,
    /// Reads and writes of the resource as transactions, for Elle's rw-register
    Elle,
}

/// Does it.
///
/// # Errors
/// When the output cannot be written. A bad history is exit code 2.
pub fn run(args: &ExportArgs) -> Result<Exit> {
    let file = if args.path.is_dir() {
        args.path.join(names::HISTORY)
    } else {
        args.path.clone()
    };
    let history = match History::read(&file) {
        Ok(history) => history,
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(Exit::Usage);
        }
    };
    if let Some(lock) = &args.lock
        && history.locks.id(lock).is_none()
    {
        eprintln!("error: there is no lock `{lock}` in {}", file.display());
        return Ok(Exit::Usage);
    }
    let audience = match args.audience {
        For::Knossos => Audience::Knossos,
        For::Elle => Audience::Elle,
    };
    let sink: Box<dyn Write> = match &args.out {
        Some(path) => Box::new(
            File::create(path).with_context(|| format!("cannot create {}", path.display()))?,
        ),
        None => Box::new(std::io::stdout().lock()),
    };
    let mut sink = BufWriter::new(sink);
    edn(&history, audience, args.lock.as_deref(), &mut sink).context("cannot write the export")?;
    sink.flush().context("cannot write the export")?;
    Ok(Exit::Met)
}
