//! One bare TCP connection to one Redis or Sentinel: many commands at once, answered in their order.
//!
//! It sends each command once. A command that gets no answer within its limit, or whose connection ends,
//! stays unknown (a command that changes nothing did nothing); nothing is sent again, and a connection that
//! broke is not opened again: that is its user's next step ([`Route`](super::Route)).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::command::Command;
use super::errors::{Cause, RedisError};
use super::resp::{self, Value};

/// An open connection. It is closed when the last user drops it.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoint: SocketAddr,
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Who waits for an answer, in the order in which the commands were handed over.
    waiting: VecDeque<oneshot::Sender<Value>>,
    /// Answers that belong to no command: messages to a subscriber.
    messages: Option<mpsc::UnboundedSender<Value>>,
    /// Why the connection ended.
    ended: Option<String>,
    /// Set when a command got no answer in time, or was told that this is the wrong server.
    spoilt: bool,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When no TCP connection comes about within `limit`.
    pub(crate) async fn open(endpoint: SocketAddr, limit: Duration) -> Result<Self, RedisError> {
        let failed = |why: String| RedisError::not_connected(endpoint, why);
        let stream = tokio::time::timeout(limit, TcpStream::connect(endpoint))
            .await
            .map_err(|_| failed(format!("no connection within {} ms", limit.as_millis())))?
            .map_err(|error| failed(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| failed(error.to_string()))?;
        let (reader, writer) = stream.into_split();
        let shared = Arc::new(Shared::default());
        let (outgoing, queue) = mpsc::unbounded_channel();
        let reads = tokio::spawn(read(reader, Arc::clone(&shared)));
        let writes = tokio::spawn(write(writer, queue, Arc::clone(&shared)));
        Ok(Self {
            endpoint,
            shared,
            outgoing,
            tasks: [reads.abort_handle(), writes.abort_handle()],
        })
    }

    /// The server.
    pub(crate) fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// The answer to a command does not hold what the protocol promises.
    pub(crate) fn malformed(&self, command: &Command, found: &Value) -> RedisError {
        RedisError::malformed(self.endpoint, command.name, command.effect, found)
    }

    /// False when the next command had better use another connection.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.shared.lock();
        state.ended.is_none() && !state.spoilt
    }

    /// Sends one command and waits for its answer.
    ///
    /// # Errors
    /// [`RedisError`]; what can be known about the command's effect is in it.
    pub(crate) async fn call(
        &self,
        command: &Command,
        limit: Duration,
    ) -> Result<Value, RedisError> {
        let error = |cause, text: String| {
            let error = RedisError::new(self.endpoint, command.name, command.effect, cause, text);
            if error.spoils_connection() {
                self.shared.lock().spoilt = true;
            }
            error
        };
        let answer = self
            .send(command)
            .map_err(|why| error(Cause::NotConnected, why))?;
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Value::Error(text))) => Err(error(Cause::Server, text)),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => {
                let why = self.shared.lock().ended.clone();
                Err(error(Cause::Transport, why.unwrap_or_default()))
            }
            Err(_) => {
                let text = format!("no answer within {} ms", limit.as_millis());
                Err(error(Cause::Deadline, text))
            }
        }
    }

    /// Subscribes to patterns. From then on every answer is a message; no further command may be sent.
    pub(crate) fn subscribe(&self, patterns: &[&str]) -> mpsc::UnboundedReceiver<Value> {
        let (sender, messages) = mpsc::unbounded_channel();
        self.shared.lock().messages = Some(sender);
        let words: Vec<&str> = std::iter::once("PSUBSCRIBE")
            .chain(patterns.iter().copied())
            .collect();
        let command = Command::read("PSUBSCRIBE", &words);
        // The channel ends only with the connection, which then ends the messages too.
        let _ = self.outgoing.send(command.bytes());
        messages
    }

    /// Hands a command over; an error means that it was not and never will be.
    fn send(&self, command: &Command) -> Result<oneshot::Receiver<Value>, String> {
        let mut state = self.shared.lock();
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        let (sender, answer) = oneshot::channel();
        // Under one lock: answers are matched by their order.
        self.outgoing
            .send(command.bytes())
            .map_err(|_| "the connection just ended".to_owned())?;
        state.waiting.push_back(sender);
        Ok(answer)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: String) {
        let mut state = self.lock();
        state.ended.get_or_insert(why);
        state.waiting.clear();
        state.messages = None;
    }

    /// Hands an answer to whoever waits for it; false when nobody does.
    fn deliver(&self, value: Value) -> bool {
        let mut state = self.lock();
        if let Some(messages) = &state.messages {
            return messages.send(value).is_ok();
        }
        let Some(waiting) = state.waiting.pop_front() else {
            return false;
        };
        // Whoever gave up waiting does not want it any more.
        let _ = waiting.send(value);
        true
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    shared: Arc<Shared>,
) {
    while let Some(mut bytes) = queue.recv().await {
        while let Ok(more) = queue.try_recv() {
            bytes.extend_from_slice(&more);
        }
        if let Err(error) = writer.write_all(&bytes).await {
            return shared.end(error.to_string());
        }
    }
}

async fn read(mut reader: OwnedReadHalf, shared: Arc<Shared>) {
    let mut bytes: Vec<u8> = Vec::with_capacity(4 << 10);
    loop {
        loop {
            match resp::decode(&bytes) {
                Ok(None) => break,
                Ok(Some((value, used))) => {
                    bytes.drain(..used);
                    // A server that refuses a connection says why without being asked.
                    let unasked = format!("{value:?} without a command");
                    if !shared.deliver(value) {
                        return shared.end(unasked);
                    }
                }
                Err(error) => return shared.end(error.to_string()),
            }
        }
        match reader.read_buf(&mut bytes).await {
            Ok(0) => return shared.end("closed by the server".to_owned()),
            Ok(_) => {}
            Err(error) => return shared.end(error.to_string()),
        }
    }
}
