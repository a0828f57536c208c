//! A session of ZooKeeper: the lease behind every lock node, and the handle that requests go through.
//!
//! It behaves as the handle of the official Java client does that knows one server (`ClientCnxn.java`):
//! - one connection at a time; after it broke, the same server is tried again and again, and the session is
//!   taken up there if it still lives. Requests that were under way end with an error, never with a second
//!   attempt; new ones wait for the connection until their own limit;
//! - a ping when nothing was sent for a third of the timeout; a server that is silent for two thirds of it
//!   counts as lost;
//! - watches are set again on each new connection;
//! - *that the session has expired is learnt from a server only*, on the next connection.
//!
//! When its holder hears of a loss is [`Told`]. It must not open a second session by itself, nor decide what
//! a holder does about a lost one. All of it runs by the process's own clock: in a paused process no ping
//! is sent and nothing is noticed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::{self, Opened, Ticket};
use super::errors::{Cause, Effect, ZkError};
use super::handle::Driver;
use super::jute::Writer;
use super::wire::{OpCode, WatchEvent};
use crate::belief::{Belief, Moment};

/// When a holder is told that its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// When a server says that the session has expired: all that ZooKeeper itself ever says.
    Expired,
    /// Also when the connection was gone for as long as the session's timeout, by the own clock: Curator's
    /// `ConnectionState.LOST` since 3.0. The session is then given up.
    Lost,
    /// As soon as the connection is gone: what Curator's documentation asks of a careful holder on
    /// `ConnectionState.SUSPENDED`. The session may live on.
    Suspended,
}

/// What a session is opened with.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// The one server.
    pub endpoint: SocketAddr,
    /// The timeout to ask for; the server forces it between its own bounds.
    pub timeout: Duration,
    /// Whether pings keep it alive. Without, only requests do.
    pub keep_alive: bool,
    /// When its holder is told of a loss.
    pub told: Told,
}

/// What happened to a session or its watches, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A watch went off.
    Watch(WatchEvent),
    /// The connection is gone.
    Suspended(String),
    /// There is a connection again, and the session lives.
    Connected,
    /// The session is over, and why.
    Over(String),
}

/// A session. Dropped, it is left to itself, and expires.
pub struct Session {
    pub(super) shared: Arc<Shared>,
    requests: UnboundedSender<Request>,
    events: UnboundedReceiver<SessionEvent>,
    task: tokio::task::AbortHandle,
}

/// What the handle and its task share.
pub(super) struct Shared {
    pub(super) endpoint: SocketAddr,
    /// Who is told; nobody once the handle was closed, for the same belief may serve the next session.
    belief: Mutex<Option<Arc<Belief>>>,
    pub(super) session: i64,
    /// The timeout that the server granted.
    pub(super) timeout: Duration,
    /// When the latest request was sent that was answered.
    pub(super) renewed: Mutex<Moment>,
    /// Why the session is over.
    pub(super) over: OnceLock<String>,
}

/// Which watch a request sets when it is answered well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WatchKind {
    Data,
    Children,
}

/// A request on its way to the connection.
pub(super) struct Request {
    pub(super) op: OpCode,
    pub(super) body: Writer,
    pub(super) watch: Option<(WatchKind, String)>,
    pub(super) fate: Arc<Fate>,
    pub(super) answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    pub(super) text: String,
}

/// Whether a request was sent: decided once, by whoever comes first.
#[derive(Default)]
pub(super) struct Fate(AtomicU8);

const SENT: u8 = 1;
const ABANDONED: u8 = 2;

impl Fate {
    fn decide(&self, fate: u8) -> bool {
        self.0
            .compare_exchange(0, fate, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// True unless its caller has given it up.
    pub(super) fn send(&self) -> bool {
        self.decide(SENT)
    }

    /// True unless it was sent.
    fn abandon(&self) -> bool {
        self.decide(ABANDONED)
    }
}

impl Session {
    /// Opens a session within `limit` and tells `belief` of it.
    ///
    /// # Errors
    /// When the server cannot be reached or does not answer in time; always definite, for a session alone
    /// holds nothing.
    pub async fn open(
        config: SessionConfig,
        belief: Arc<Belief>,
        limit: Duration,
    ) -> Result<Self, ZkError> {
        let refused = |text: String| ZkError {
            endpoint: config.endpoint,
            request: "connect",
            effect: Effect::None,
            cause: Cause::NotConnected,
            text,
        };
        let sent = Moment::now();
        let new = Ticket {
            session: 0,
            password: vec![0; 16],
        };
        let opened = connection::open(config.endpoint, &new, config.timeout, 0, limit).await;
        let (connection, ticket, timeout) = match opened {
            Ok(Opened::Session(connection, ticket, timeout)) => (connection, ticket, timeout),
            Ok(Opened::Expired) => return Err(refused("a session without a timeout".to_owned())),
            Err(error) => return Err(refused(error.to_string())),
        };
        belief.granted(sent, timeout);
        let shared = Arc::new(Shared {
            endpoint: config.endpoint,
            belief: Mutex::new(Some(belief)),
            session: ticket.session,
            timeout,
            renewed: Mutex::new(sent),
            over: OnceLock::new(),
        });
        let (requests, to_send) = unbounded_channel();
        let (tell, events) = unbounded_channel();
        let driver = Driver::new(Arc::clone(&shared), config, ticket, to_send, tell);
        let task = tokio::spawn(driver.run(connection)).abort_handle();
        Ok(Self {
            shared,
            requests,
            events,
            task,
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.shared.session
    }

    /// The timeout that the server granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Why it is over, if it is.
    #[must_use]
    pub fn over(&self) -> Option<&str> {
        self.shared.over.get().map(String::as_str)
    }

    /// What happened next. Safe to cancel. `None` after the session's end was told.
    pub async fn event(&mut self) -> Option<SessionEvent> {
        self.events.recv().await
    }

    /// Forgets the events that were not looked at.
    pub fn forget_events(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// A suspicion that the session was lost is over, because a server has answered since: the belief goes
    /// on from the latest renewal.
    pub fn clear_suspicion(&self) {
        if self.over().is_none() {
            self.shared.tell(|belief| {
                if belief.told_lost().is_some() {
                    belief.granted(*self.shared.renewed(), self.shared.timeout);
                }
            });
        }
    }

    /// Ends the session, and with it every node of its own.
    ///
    /// # Errors
    /// The request's. The session then expires by itself.
    pub async fn close(self, limit: Duration) -> Result<(), ZkError> {
        self.shared.part();
        let call = Call {
            name: "closeSession",
            op: OpCode::CloseSession,
            effect: Effect::One,
            watch: None,
        };
        self.call(call, Writer::new(), limit).await.map(drop)
    }

    /// Ends the session without waiting for it. Nobody learns whether it worked: if not, it expires.
    pub fn close_in_background(self, limit: Duration) {
        self.shared.part();
        tokio::spawn(self.close(limit));
    }

    /// Sends one request and waits for its answer.
    pub(super) async fn call(
        &self,
        call: Call,
        body: Writer,
        limit: Duration,
    ) -> Result<Vec<u8>, ZkError> {
        let error = |cause, text| ZkError {
            endpoint: self.shared.endpoint,
            request: call.name,
            effect: call.effect,
            cause,
            text,
        };
        let over = || {
            let why = self.over().unwrap_or("the session has ended").to_owned();
            error(Cause::SessionOver, why)
        };
        let (answer, receiver) = oneshot::channel();
        let fate = Arc::new(Fate::default());
        let request = Request {
            op: call.op,
            body,
            watch: call.watch,
            fate: Arc::clone(&fate),
            answer,
        };
        if self.requests.send(request).is_err() {
            return Err(over());
        }
        match timeout(limit, receiver).await {
            Ok(Ok(Ok(body))) => Ok(body),
            Ok(Ok(Err(Failure { cause, text }))) => Err(error(cause, text)),
            Ok(Err(_)) if fate.abandon() => Err(over()),
            Ok(Err(_)) => Err(error(Cause::ConnectionLost, "the session ended".to_owned())),
            Err(_) => {
                let (cause, what) = if fate.abandon() {
                    (Cause::NotConnected, "connection")
                } else {
                    (Cause::Deadline, "answer")
                };
                Err(error(
                    cause,
                    format!("no {what} within {} ms", limit.as_millis()),
                ))
            }
        }
    }
}

/// What the errors of a request, and its watch, need to know.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) op: OpCode,
    pub(super) effect: Effect,
    pub(super) watch: Option<(WatchKind, String)>,
}

impl Shared {
    /// Tells the belief something, if it still listens.
    pub(super) fn tell(&self, what: impl FnOnce(&Belief)) {
        let belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(belief) = belief.as_deref() {
            what(belief);
        }
    }

    /// The client gave the session up: its belief is told nothing more of it.
    fn part(&self) {
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(belief) = belief.take() {
            belief.cleared();
        }
    }

    pub(super) fn renewed(&self) -> std::sync::MutexGuard<'_, Moment> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}
