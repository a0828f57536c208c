//! The client of a line server: many requests at once over one connection, matched by their `id`.
//!
//! It does not retry: a request in flight when the connection breaks ends as unknown, and the next
//! request opens a new connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};

/// Where the server is.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP socket; the duration limits connecting.
    Tcp(SocketAddr, Duration),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The request was never sent.
    NotSent(String),
    /// It was sent, and the connection ended before the answer came.
    Broken(String),
}

/// An answer that says which request it belongs to.
pub trait Answer: DeserializeOwned + Send + 'static {
    /// The request's `id`.
    fn id(&self) -> u64;
}

/// A connection that opens itself when it is needed.
#[derive(Debug)]
pub struct LineClient<A> {
    address: Address,
    link: tokio::sync::Mutex<Option<Link<A>>>,
}

#[derive(Debug)]
struct Link<A> {
    requests: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Mutex<Waiting<A>>>,
}

#[derive(Debug)]
struct Waiting<A> {
    next_id: u64,
    answers: HashMap<u64, oneshot::Sender<A>>,
    broken: Option<String>,
}

impl<A: Answer> LineClient<A> {
    /// A client of the server at `address`; connects with the first request.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            link: tokio::sync::Mutex::new(None),
        }
    }

    /// Sends the request that `build` makes of a fresh id, and waits for its answer.
    ///
    /// # Errors
    /// [`CallError`]: whether the request can have had an effect is in its kind.
    pub async fn call<R: Serialize>(&self, build: impl FnOnce(u64) -> R) -> Result<A, CallError> {
        let answer = self.send(build).await?;
        answer
            .await
            .map_err(|_| CallError::Broken(format!("the connection to {:?} ended", self.address)))
    }

    async fn send<R: Serialize>(
        &self,
        build: impl FnOnce(u64) -> R,
    ) -> Result<oneshot::Receiver<A>, CallError> {
        let mut slot = self.link.lock().await;
        if slot
            .as_ref()
            .is_none_or(|link| lock(&link.waiting).broken.is_some())
        {
            *slot = Some(self.open().await?);
        }
        let link = slot
            .as_ref()
            .ok_or_else(|| CallError::NotSent("no connection".into()))?;
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut waiting = lock(&link.waiting);
            let id = waiting.next_id;
            waiting.next_id += 1;
            waiting.answers.insert(id, sender);
            id
        };
        let mut line = serde_json::to_vec(&build(id))
            .map_err(|error| CallError::NotSent(error.to_string()))?;
        line.push(b'\n');
        link.requests
            .send(line)
            .map_err(|_| CallError::NotSent("the connection just ended".into()))?;
        Ok(receiver)
    }

    async fn open(&self) -> Result<Link<A>, CallError> {
        let failed = |error: std::io::Error| {
            CallError::NotSent(format!("cannot connect to {:?}: {error}", self.address))
        };
        match &self.address {
            Address::Unix(path) => Ok(start(
                UnixStream::connect(path)
                    .await
                    .map_err(failed)?
                    .into_split(),
            )),
            Address::Tcp(address, limit) => {
                let stream = tokio::time::timeout(*limit, TcpStream::connect(address))
                    .await
                    .map_err(|_| {
                        CallError::NotSent(format!("no connection to {address} within {limit:?}"))
                    })?
                    .map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Ok(start(stream.into_split()))
            }
        }
    }
}

fn start<A, R, W>((reader, writer): (R, W)) -> Link<A>
where
    A: Answer,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (requests, queue) = mpsc::unbounded_channel();
    let waiting = Arc::new(Mutex::new(Waiting {
        next_id: 1,
        answers: HashMap::new(),
        broken: None,
    }));
    tokio::spawn(write(writer, queue));
    tokio::spawn(read(reader, Arc::clone(&waiting)));
    Link { requests, waiting }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(mut bytes) = queue.recv().await {
        while let Ok(more) = queue.try_recv() {
            bytes.extend_from_slice(&more);
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn read<A: Answer>(reader: impl AsyncRead + Unpin, waiting: Arc<Mutex<Waiting<A>>>) {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let mut line = Vec::new();
    let why = loop {
        line.clear();
        match reader.read_until(b'\n', &mut line).await {
            Ok(0) => break "closed by the server".to_owned(),
            Err(error) => break error.to_string(),
            Ok(_) => {}
        }
        match serde_json::from_slice::<A>(&line) {
            Ok(answer) => {
                let sender = lock(&waiting).answers.remove(&answer.id());
                if let Some(sender) = sender {
                    let _ = sender.send(answer);
                }
            }
            Err(error) => {
                break format!("{error} in {}", String::from_utf8_lossy(&line).trim_end());
            }
        }
    };
    let mut waiting = lock(&waiting);
    waiting.broken = Some(why);
    waiting.answers.clear();
}

fn lock<A>(waiting: &Mutex<Waiting<A>>) -> MutexGuard<'_, Waiting<A>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
