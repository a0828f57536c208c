//! The `builtin` lock server: leases, a queue a lock, tokens that survive a restart, and bugs on request.
//!
//! It is a *model*, not a product: one process, no replication. It is correct unless told otherwise;
//! each [`Bug`] must be caught by the check that is meant for it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::wire::{Answer, Request, Verb};
use crate::line::server::{Handler, Outbox, serve_tcp};

/// How often leases are looked at: the most by which an expiry is late.
const EXPIRY_TICK: Duration = Duration::from_millis(5);

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bug {
    /// Every third request for a lock that is held is granted all the same. Caught by `terms`.
    DoubleGrant,
    /// A lease ends after a quarter of its TTL, before a client renews it. Caught by `terms`.
    EarlyExpiry,
    /// Every second grant repeats the token before it. Caught by `fencing`.
    RepeatedToken,
    /// After a restart nothing is held and tokens start again. Caught by `terms` and `fencing`.
    ForgetsOnRestart,
}

impl Bug {
    /// Every bug with its name in scenario files.
    pub const ALL: &[(&str, Bug)] = &[
        ("double-grant", Bug::DoubleGrant),
        ("early-expiry", Bug::EarlyExpiry),
        ("repeated-token", Bug::RepeatedToken),
        ("forgets-on-restart", Bug::ForgetsOnRestart),
    ];

    /// The bug of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bug)| *bug)
    }
}

/// Serves `listener` until the process ends. What must survive a restart is kept in `state_file`.
///
/// # Errors
/// When an earlier state cannot be read.
pub fn serve(listener: TcpListener, state_file: &Path, bug: Option<Bug>) -> io::Result<()> {
    let mut table = Table {
        bug,
        state_file: state_file.to_owned(),
        ..Table::default()
    };
    if bug != Some(Bug::ForgetsOnRestart) {
        table.load()?;
    }
    let server = Arc::new(BuiltinServer {
        table: Mutex::new(table),
    });
    serve_tcp(listener, Arc::clone(&server) as Arc<dyn Handler>);
    loop {
        thread::sleep(EXPIRY_TICK);
        server.table().expire(Instant::now());
    }
}

struct BuiltinServer {
    table: Mutex<Table>,
}

impl BuiltinServer {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Table {
    bug: Option<Bug>,
    state_file: PathBuf,
    last_token: u64,
    grants: u64,
    denials: u64,
    locks: BTreeMap<String, Lock>,
}

#[derive(Default)]
struct Lock {
    /// More than one only with [`Bug::DoubleGrant`].
    held: Vec<Held>,
    queue: VecDeque<Waiter>,
}

struct Held {
    token: u64,
    ttl: Duration,
    expires: Instant,
}

struct Waiter {
    connection: u64,
    id: u64,
    ttl: Duration,
    gives_up: Option<Instant>,
    outbox: Outbox,
}

impl Waiter {
    fn has_given_up(&self, now: Instant) -> bool {
        self.gives_up.is_some_and(|gives_up| gives_up <= now)
    }

    fn answer(self, answer: Answer) {
        let mut line = Vec::new();
        let id = self.id;
        push(&mut line, &Answer { id, ..answer });
        self.outbox.send(line);
    }
}

/// What is on disk.
#[derive(Default, Serialize, Deserialize)]
struct Saved {
    last_token: u64,
    held: Vec<(String, u64, u64)>,
}

impl Handler for BuiltinServer {
    fn line(
        &self,
        connection: u64,
        line: &[u8],
        answers: &mut Vec<u8>,
        outbox: &Outbox,
    ) -> Result<(), String> {
        let request: Request<'_> = serde_json::from_slice(line).map_err(|error| {
            format!(
                "not a lock request: {error}: {}",
                String::from_utf8_lossy(line)
            )
        })?;
        let mut table = self.table();
        let answer = match request.verb {
            Verb::Ping => Answer::default(),
            Verb::Acquire => {
                let ttl = Duration::from_millis(request.ttl_ms.ok_or("an acquire needs `ttl_ms`")?);
                let waiter = Waiter {
                    connection,
                    id: request.id,
                    ttl,
                    gives_up: request
                        .wait_ms
                        .and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms))),
                    outbox: outbox.clone(),
                };
                match table.acquire(&request.lock, waiter) {
                    Some(token) => Answer {
                        token: Some(token),
                        ..Answer::default()
                    },
                    None => return Ok(()),
                }
            }
            Verb::Renew => refused_unless(table.renew(request.token)),
            Verb::Release => refused_unless(table.release(request.token)),
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
        for lock in self.table().locks.values_mut() {
            lock.queue.retain(|waiter| waiter.connection != connection);
        }
    }
}

fn refused_unless(known: bool) -> Answer {
    Answer {
        refused: (!known).then(|| "no such lease".to_owned()),
        ..Answer::default()
    }
}

fn push(lines: &mut Vec<u8>, answer: &Answer) {
    // An answer has only numbers and text: it always serialises.
    if serde_json::to_writer(&mut *lines, answer).is_ok() {
        lines.push(b'\n');
    }
}

impl Table {
    fn acquire(&mut self, name: &str, waiter: Waiter) -> Option<u64> {
        let lock = self.locks.entry(name.to_owned()).or_default();
        if !lock.held.is_empty() {
            self.denials += 1;
            if !(self.bug == Some(Bug::DoubleGrant) && self.denials.is_multiple_of(3)) {
                lock.queue.push_back(waiter);
                return None;
            }
        }
        Some(self.grant(name, waiter.ttl))
    }

    fn grant(&mut self, name: &str, ttl: Duration) -> u64 {
        self.grants += 1;
        if !(self.bug == Some(Bug::RepeatedToken) && self.grants.is_multiple_of(2)) {
            self.last_token += 1;
        }
        let token = self.last_token;
        let lifetime = if self.bug == Some(Bug::EarlyExpiry) {
            ttl / 4
        } else {
            ttl
        };
        let held = Held {
            token,
            ttl: lifetime,
            expires: Instant::now() + lifetime,
        };
        self.locks
            .entry(name.to_owned())
            .or_default()
            .held
            .push(held);
        self.save();
        token
    }

    fn renew(&mut self, token: Option<u64>) -> bool {
        let held = self
            .locks
            .values_mut()
            .flat_map(|lock| &mut lock.held)
            .find(|held| Some(held.token) == token);
        let Some(held) = held else { return false };
        held.expires = Instant::now() + held.ttl;
        true
    }

    fn release(&mut self, token: Option<u64>) -> bool {
        self.drop_held(|held| Some(held.token) == token)
    }

    fn expire(&mut self, now: Instant) {
        for lock in self.locks.values_mut() {
            while let Some(at) = lock
                .queue
                .iter()
                .position(|waiter| waiter.has_given_up(now))
            {
                if let Some(waiter) = lock.queue.remove(at) {
                    waiter.answer(Answer {
                        refused: Some("not granted within the time to wait".to_owned()),
                        ..Answer::default()
                    });
                }
            }
        }
        self.drop_held(|held| held.expires <= now);
    }

    /// Ends the leases that `ended` picks and grants the freed locks to the next in line.
    fn drop_held(&mut self, ended: impl Fn(&Held) -> bool) -> bool {
        let mut freed = Vec::new();
        let mut any = false;
        for (name, lock) in &mut self.locks {
            let before = lock.held.len();
            lock.held.retain(|held| !ended(held));
            if lock.held.len() != before {
                any = true;
                if lock.held.is_empty()
                    && let Some(next) = lock.queue.pop_front()
                {
                    freed.push((name.clone(), next));
                }
            }
        }
        if any && freed.is_empty() {
            self.save();
        }
        for (name, next) in freed {
            let token = self.grant(&name, next.ttl);
            next.answer(Answer {
                token: Some(token),
                ..Answer::default()
            });
        }
        any
    }

    /// Reads what an earlier process left; its leases start their time anew, as after an etcd leader change.
    fn load(&mut self) -> io::Result<()> {
        let bytes = match fs::read(&self.state_file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let saved: Saved = serde_json::from_slice(&bytes)?;
        self.last_token = saved.last_token;
        for (name, token, ttl_ms) in saved.held {
            let ttl = Duration::from_millis(ttl_ms);
            self.locks.entry(name).or_default().held.push(Held {
                token,
                ttl,
                expires: Instant::now() + ttl,
            });
        }
        Ok(())
    }

    /// Replaces the state file as a whole, so that a kill leaves the old or the new one.
    fn save(&self) {
        let held = |(name, lock): (&String, &Lock)| {
            lock.held
                .iter()
                .map(|held| (name.clone(), held.token, held.ttl.as_millis() as u64))
                .collect::<Vec<_>>()
        };
        let saved = Saved {
            last_token: self.last_token,
            held: self.locks.iter().flat_map(held).collect(),
        };
        let temporary = self.state_file.with_extension("new");
        let written = serde_json::to_vec(&saved)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&temporary, bytes))
            .and_then(|()| fs::rename(&temporary, &self.state_file));
        if let Err(error) = written {
            eprintln!("cannot keep {}: {error}", self.state_file.display());
        }
    }
}
