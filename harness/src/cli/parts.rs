//! The hidden verbs: the parts of a run that are processes of their own.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use tokio::io::BufReader;
use tokio::net::unix::pipe;
use workloads::lock::builtin::server::{self, Bug};
use workloads::worker::serve::serve;

use crate::exit::Exit;
use crate::run::controller;

/// Run one trial inside a sandbox; started by `fencepost run`
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The trial's folder
    folder: PathBuf,
}

/// Serve the model lock server; started by the backend `builtin`
#[derive(Debug, Args)]
pub struct BuiltinServerArgs {
    /// Where to listen
    #[arg(long)]
    listen: SocketAddr,
    /// What must survive a restart
    #[arg(long)]
    state: PathBuf,
    /// How to be wrong
    #[arg(long)]
    bug: Option<String>,
}

/// `fencepost controller`.
#[must_use]
pub fn controller(args: &ControllerArgs) -> Exit {
    controller::main(&args.folder, Some(controller::inherited_pipe()))
}

/// `fencepost worker`: one thread, so that a pause stops all of it.
///
/// # Errors
/// A controller that does not keep to the protocol.
pub fn worker() -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let input = std::io::stdin().as_fd().try_clone_to_owned()?;
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        let input = pipe::Receiver::from_owned_fd(input)
            .context("standard input must be a pipe from a controller")?;
        let output = pipe::Sender::from_owned_fd(output)
            .context("standard output must be a pipe to a controller")?;
        let name = concat!("fencepost ", env!("CARGO_PKG_VERSION"));
        serve(BufReader::with_capacity(64 << 10, input), output, name)
            .await
            .map_err(anyhow::Error::from)
    });
    // Sessions that are still open end with the process, as they do when any client ends.
    runtime.shutdown_background();
    served.map(|()| Exit::Met)
}

/// `fencepost builtin-server`.
///
/// # Errors
/// An address that cannot be bound, an unknown bug, or a state that cannot be read.
pub fn builtin_server(args: &BuiltinServerArgs) -> Result<Exit> {
    let bug = match &args.bug {
        None => None,
        Some(name) => Some(Bug::find(name).ok_or_else(|| anyhow!("no bug is called \"{name}\""))?),
    };
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    server::serve(listener, &args.state, bug)
        .with_context(|| format!("cannot read {}", args.state.display()))?;
    Ok(Exit::Met)
}
