//! The worker's main loop: lines in, one task a logical client, lines out.
//!
//! Everything runs on one thread: a pause that stops the process stops all of it, as a GC pause would.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::client::{Client, OwnedStep};
use super::protocol::{FromWorker, Hello, PROTOCOL_VERSION, Setup, Step, ToWorker};
use crate::belief::Belief;
use crate::lock::{self, LockConnection};
use crate::resource::{self, Resource};

/// The way out. Lines that are ready at the same time leave in one write.
#[derive(Clone, Debug, Default)]
pub struct Out(Arc<(Mutex<Vec<u8>>, Notify)>);

impl Out {
    /// Queues one line.
    pub fn line(&self, line: &FromWorker) {
        let mut pending = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A worker line has only numbers and text: it always serialises.
        if serde_json::to_writer(&mut *pending, line).is_ok() {
            pending.push(b'\n');
        }
        drop(pending);
        self.0.1.notify_one();
    }

    async fn write_to(self, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
        loop {
            self.0.1.notified().await;
            let bytes =
                std::mem::take(&mut *self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
            writer.write_all(&bytes).await?;
            writer.flush().await?;
        }
    }
}

/// What the set-up opened.
struct Connected {
    lock: Box<dyn LockConnection>,
    leased: bool,
    resource: Option<Arc<dyn Resource>>,
    setup: Setup,
}

/// Serves a controller until it closes the worker's input.
///
/// # Errors
/// A line that is not of the protocol, or a broken pipe.
pub async fn serve(
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    name: &str,
) -> io::Result<()> {
    let out = Out::default();
    let writer = tokio::spawn(out.clone().write_to(output));
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        worker: name.to_owned(),
    };
    out.line(&FromWorker {
        hello: Some(hello),
        ..FromWorker::default()
    });
    let mut connected: Option<Connected> = None;
    let mut clients: HashMap<u32, mpsc::UnboundedSender<OwnedStep>> = HashMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).await? == 0 {
            writer.abort();
            return Ok(());
        }
        match parse(&line)? {
            ToWorker::Setup { setup } => match connect(*setup).await {
                Ok(connection) => {
                    connected = Some(connection);
                    out.line(&FromWorker {
                        ready: true,
                        ..FromWorker::default()
                    });
                }
                Err(why) => out.line(&FromWorker {
                    refused: Some(why),
                    ..FromWorker::default()
                }),
            },
            ToWorker::Close { close } => {
                clients.remove(&close);
            }
            ToWorker::Step(step) => {
                let Some(connected) = &connected else {
                    return Err(io::Error::other("a step came before the set-up succeeded"));
                };
                let queue = clients
                    .entry(step.client)
                    .or_insert_with(|| open(connected, step.client, &out));
                let Step {
                    op,
                    f,
                    lock,
                    key,
                    element,
                    ..
                } = step;
                let step = OwnedStep {
                    op,
                    f,
                    lock: lock.into_owned(),
                    key: key.map(Into::into),
                    element,
                };
                // A client's task ends only when its queue is dropped.
                let _ = queue.send(step);
            }
        }
    }
}

fn parse(line: &[u8]) -> io::Result<ToWorker<'_>> {
    // Steps are nearly all of the lines; the untagged form would buffer each of them.
    if line.starts_with(b"{\"op\"") {
        return serde_json::from_slice(line)
            .map(ToWorker::Step)
            .map_err(|error| bad_line(line, &error));
    }
    serde_json::from_slice(line).map_err(|error| bad_line(line, &error))
}

fn bad_line(line: &[u8], error: &serde_json::Error) -> io::Error {
    io::Error::other(format!(
        "not a line of the worker protocol: {error}: {}",
        String::from_utf8_lossy(line).trim_end()
    ))
}

async fn connect(setup: Setup) -> Result<Connected, String> {
    if setup.protocol != PROTOCOL_VERSION {
        return Err(format!(
            "expected protocol {PROTOCOL_VERSION}, found {}",
            setup.protocol
        ));
    }
    let spec =
        lock::find(&setup.lock).ok_or_else(|| format!("no lock is called `{}`", setup.lock))?;
    setup
        .lock_config
        .options
        .check(spec.options)
        .map_err(|why| format!("lock `{}`: {why}", spec.name))?;
    let lock = (spec.connect)(setup.lock_config.clone()).await?;
    let resource = match &setup.resource {
        None => None,
        Some(name) => {
            let spec =
                resource::find(name).ok_or_else(|| format!("no resource is called `{name}`"))?;
            Some((spec.connect)(setup.resource_config.clone()).await?)
        }
    };
    Ok(Connected {
        lock,
        leased: spec.leased,
        resource,
        setup,
    })
}

fn open(connected: &Connected, id: u32, out: &Out) -> mpsc::UnboundedSender<OwnedStep> {
    let belief = Arc::new(Belief::new());
    let lock = connected.lock.client(id, Arc::clone(&belief));
    let discipline = connected.setup.discipline;
    let mut client = Client::new(
        id,
        lock,
        connected.leased,
        connected.resource.clone(),
        discipline,
        belief,
        out.clone(),
    );
    let (sender, mut steps) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(step) = steps.recv().await {
            client.step(step).await;
        }
        client.close().await;
    });
    sender
}
