//! The client hosts of a trial: a worker process each, set up and ready.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use nemesis::clock::HostClock;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use workloads::worker::protocol::Setup;

use super::cluster::{append, base_env, note_command};
use super::host::ManagedHost;
use super::place::{Place, small};
use super::wake::{Wake, Wakes};
use super::worker::Worker;
use crate::backend::CommandLine;
use crate::sandbox::{Host, ProcessSpec, Under, client_address};

/// What every worker of a trial has in common.
pub struct ClientSpec {
    /// Number of workers.
    pub workers: u32,
    /// The worker's command line.
    pub argv: Vec<OsString>,
    /// The set-up of the worker with this index, and the name of its node.
    pub setup: Box<dyn Fn(usize) -> (Setup, String)>,
}

/// Starts every worker. A worker that the nemesis kills can be started again; the run loop is told.
///
/// # Errors
/// A host or worker that cannot be started, or a worker that refuses its set-up.
pub fn start(
    spec: &ClientSpec,
    place: &Place,
    wakes: &Wakes,
) -> Result<(Vec<Arc<ManagedHost>>, Vec<Worker>)> {
    let (mut hosts, mut workers) = (Vec::new(), Vec::new());
    for index in 0..spec.workers as usize {
        let name = format!("c{}", index + 1);
        let number = small(u32::try_from(index + 1).unwrap_or(u32::MAX));
        let host = place.host(&name, client_address(number))?;
        note_command(
            &place.logs,
            &name,
            &CommandLine {
                argv: spec.argv.clone(),
                env: Vec::new(),
            },
        )?;
        let (setup, node) = (spec.setup)(index);
        let clock = place.client_clock(&name);
        let launch = Launch {
            clock: clock.clone(),
            argv: spec.argv.clone(),
            log: place.logs.join(format!("{name}.log")),
            node,
            setup,
        };
        workers.push(
            launch
                .start(&host, &place.inside.scratch)
                .with_context(|| format!("cannot start worker {name}"))?,
        );
        let (wakes, scratch) = (wakes.clone(), place.inside.scratch.clone());
        let restart = move |host: &Host| {
            let worker = launch.start(host, &scratch)?;
            wakes.push(Wake::WorkerRestarted(Box::new(worker)));
            Ok(())
        };
        let host = ManagedHost::new(host, Box::new(restart)).with_clock(clock);
        hosts.push(Arc::new(host));
    }
    Ok((hosts, workers))
}

/// How one worker is started, and started again.
struct Launch {
    clock: Option<HostClock>,
    argv: Vec<OsString>,
    log: PathBuf,
    node: String,
    setup: Setup,
}

impl Launch {
    fn start(&self, host: &Host, home: &Path) -> io::Result<Worker> {
        let (input_reader, input) = pipe2(OFlag::O_CLOEXEC)?;
        let (output, output_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let spec = ProcessSpec {
            argv: self.argv.clone(),
            env: base_env(home),
            cwd: Some(home.to_owned()),
            stdin: input_reader,
            stdout: output_writer,
            stderr: OwnedFd::from(append(&self.log)?),
        };
        let under = Under {
            clock: self.clock.as_ref(),
            gate: None,
        };
        host.spawn_under(spec, under)?;
        let mut worker = Worker::new(host.name().to_owned(), self.node.clone(), input, output)?;
        worker.set_up(&self.setup).map_err(io::Error::other)?;
        Ok(worker)
    }
}
