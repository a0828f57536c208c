//! The controller's side of the memory store: the socket, and the lock `memory` with its queue.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkers::history::Access;

use super::store::{Store, TokenPolicy};
use super::wire::{Answer, Refusal, Request, Verb};
use crate::line::server::{Handler, Outbox, serve_unix};
use crate::resource::Snapshot;
use crate::truth;

/// Told of each access, in the store's order.
pub type AccessSink = Box<dyn Fn(Access) + Send + Sync>;

/// The running store.
#[derive(Clone)]
pub struct MemoryServer {
    handler: Arc<MemoryHandler>,
}

impl MemoryServer {
    /// Binds `socket` and serves it until the process ends.
    ///
    /// # Errors
    /// When the socket cannot be bound.
    pub fn start(socket: &Path, policy: TokenPolicy, sink: AccessSink) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let state = State {
            store: Store::new(policy),
            locks: HashMap::new(),
            next_token: 1,
        };
        let handler = Arc::new(MemoryHandler {
            state: Mutex::new(state),
            sink,
        });
        serve_unix(listener, Arc::clone(&handler) as Arc<dyn Handler>);
        Ok(Self { handler })
    }

    /// Every register as it is now.
    #[must_use]
    pub fn registers(&self) -> Vec<(String, Snapshot)> {
        self.handler.state().store.registers()
    }
}

struct MemoryHandler {
    state: Mutex<State>,
    sink: AccessSink,
}

struct State {
    store: Store,
    locks: HashMap<String, MemoryLock>,
    next_token: u64,
}

/// A lock without a lease: held until it is released or its holder's connection ends.
#[derive(Default)]
struct MemoryLock {
    holder: Option<(u64, u64)>,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    connection: u64,
    id: u64,
    outbox: Outbox,
}

impl MemoryHandler {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for MemoryHandler {
    fn line(
        &self,
        connection: u64,
        line: &[u8],
        answers: &mut Vec<u8>,
        outbox: &Outbox,
    ) -> Result<(), String> {
        let request: Request<'_> = serde_json::from_slice(line).map_err(|error| {
            format!(
                "not a memory request: {error}: {}",
                String::from_utf8_lossy(line)
            )
        })?;
        let key = request
            .key
            .as_deref()
            .ok_or("a memory request needs a `key`")?;
        let mut state = self.state();
        let answer = match request.verb {
            Verb::Read => {
                match state
                    .store
                    .read(key, request.op, request.token, truth::now_ns())
                {
                    Ok((register, access)) => {
                        access.into_iter().for_each(&self.sink);
                        Answer {
                            version: Some(register.version),
                            elements: Some(register.elements),
                            ..Answer::default()
                        }
                    }
                    Err((refusal, access)) => {
                        (self.sink)(access);
                        Answer {
                            refused: Some(refusal),
                            ..Answer::default()
                        }
                    }
                }
            }
            Verb::Write => {
                let op = request.op.ok_or("a write needs its `op`")?;
                let elements = request
                    .elements
                    .ok_or("a write needs `elements`")?
                    .into_owned();
                let (answer, access) =
                    match state
                        .store
                        .write(key, op, elements, request.token, truth::now_ns())
                    {
                        Ok((version, access)) => (
                            Answer {
                                version: Some(version),
                                ..Answer::default()
                            },
                            access,
                        ),
                        Err((refusal, access)) => (
                            Answer {
                                refused: Some(refusal),
                                ..Answer::default()
                            },
                            access,
                        ),
                    };
                (self.sink)(access);
                answer
            }
            Verb::Acquire => match state.acquire(key, connection, request.id, outbox) {
                Some(token) => Answer {
                    token: Some(token),
                    ..Answer::default()
                },
                None => return Ok(()),
            },
            Verb::Release => {
                let token = request
                    .token
                    .ok_or("a release needs the `token` of its grant")?;
                match state.release(key, (connection, token)) {
                    true => Answer::default(),
                    false => Answer {
                        refused: Some(Refusal::NotHeld),
                        ..Answer::default()
                    },
                }
            }
        };
        push(
            answers,
            &Answer {
                id: request.id,
                ..answer
            },
        );
        Ok(())
    }

    fn closed(&self, connection: u64) {
        let mut state = self.state();
        for lock in state.locks.values_mut() {
            lock.queue.retain(|waiter| waiter.connection != connection);
        }
        let held: Vec<(String, (u64, u64))> = state
            .locks
            .iter()
            .filter_map(|(name, lock)| {
                lock.holder
                    .filter(|holder| holder.0 == connection)
                    .map(|h| (name.clone(), h))
            })
            .collect();
        for (name, holder) in held {
            state.release(&name, holder);
        }
    }
}

impl State {
    /// Takes the lock, or queues the request and gives nothing.
    fn acquire(&mut self, name: &str, connection: u64, id: u64, outbox: &Outbox) -> Option<u64> {
        if !self.locks.contains_key(name) {
            self.locks.insert(name.to_owned(), MemoryLock::default());
        }
        let lock = self.locks.get_mut(name)?;
        if lock.holder.is_some() {
            lock.queue.push_back(Waiter {
                connection,
                id,
                outbox: outbox.clone(),
            });
            return None;
        }
        let token = self.next_token;
        self.next_token += 1;
        lock.holder = Some((connection, token));
        Some(token)
    }

    fn release(&mut self, name: &str, holder: (u64, u64)) -> bool {
        let Some(lock) = self
            .locks
            .get_mut(name)
            .filter(|lock| lock.holder == Some(holder))
        else {
            return false;
        };
        lock.holder = None;
        if let Some(next) = lock.queue.pop_front() {
            let token = self.next_token;
            self.next_token += 1;
            lock.holder = Some((next.connection, token));
            let mut line = Vec::new();
            push(
                &mut line,
                &Answer {
                    id: next.id,
                    token: Some(token),
                    ..Answer::default()
                },
            );
            next.outbox.send(line);
        }
        true
    }
}

fn push(lines: &mut Vec<u8>, answer: &Answer) {
    // An answer has only numbers and fixed words: it always serialises.
    if serde_json::to_writer(&mut *lines, answer).is_ok() {
        lines.push(b'\n');
    }
}
