//! One logical client of `zookeeper-lock`: enters the queue, waits for its turn, and leaves.
//!
//! What must not be in here: any look at the lease besides the recipe's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout_at};

use super::Recipe;
use crate::belief::Belief;
use crate::lock::{Grant, Guard, LockClient, LockConfig};
use crate::reply::{Reason, Reply};
use crate::zookeeper::{
    CreateMode, LOCK_ROOT, Session, SessionConfig, SessionEvent, ZkError, node_name,
};

pub(super) struct Client {
    endpoint: SocketAddr,
    recipe: Recipe,
    config: Arc<LockConfig>,
    belief: Arc<Belief>,
    session: Option<Session>,
    /// The own node of the lock that is held.
    held: Option<String>,
    /// Acquires so far.
    turns: u64,
    /// How often the latest of them was woken.
    wakes: u64,
}

/// The own place in the queue.
struct Place {
    /// The lock's node.
    parent: String,
    /// Name of the own node below it.
    name: String,
    czxid: u64,
}

impl Place {
    fn path(&self) -> String {
        format!("{}/{}", self.parent, self.name)
    }
}

/// Why waiting ended without the lock.
enum Unlucky {
    /// The own node may still be in the queue.
    Queued(Reason),
    /// The own node is gone.
    Gone(Reason),
}

impl From<ZkError> for Unlucky {
    fn from(error: ZkError) -> Self {
        match error.code() {
            "session-expired" => Unlucky::Gone(error.reason()),
            _ => Unlucky::Queued(error.reason()),
        }
    }
}

impl Client {
    pub(super) fn new(
        endpoint: SocketAddr,
        recipe: Recipe,
        config: Arc<LockConfig>,
        belief: Arc<Belief>,
    ) -> Self {
        Self {
            endpoint,
            recipe,
            config,
            belief,
            session: None,
            held: None,
            turns: 0,
            wakes: 0,
        }
    }

    fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    async fn acquire(&mut self, lock: &str) -> Reply<Grant> {
        let deadline = Instant::now() + self.config.acquire_timeout();
        self.turns += 1;
        self.wakes = 0;
        let mut session = match self.session().await {
            Ok(session) => session,
            // A session alone takes no lock.
            Err(error) => return Reply::Fail(error.reason()),
        };
        let parent = format!("{LOCK_ROOT}/{}", node_name(lock));
        let place = match self.enter(&session, parent).await {
            Ok(place) => place,
            Err(reply) => {
                self.session = Some(session);
                return reply;
            }
        };
        let turn = self.await_turn(&mut session, &place);
        let waited = match timeout_at(deadline, turn).await {
            Ok(waited) => waited,
            Err(_) => {
                let text = format!("still queued after {} ms", self.config.acquire_timeout_ms);
                Err(Unlucky::Queued(Reason::new("timeout", text)))
            }
        };
        let reply = match waited {
            Ok(()) => {
                session.clear_suspicion();
                self.held = Some(place.path());
                Reply::Ok(grant(&place))
            }
            Err(Unlucky::Gone(reason)) => Reply::Fail(reason),
            Err(Unlucky::Queued(reason)) => self.leave(&session, &place, reason).await,
        };
        self.session = Some(session);
        reply
    }

    /// The session, which is opened if there is none or the old one is over.
    async fn session(&mut self) -> Result<Session, ZkError> {
        if let Some(session) = self
            .session
            .take()
            .filter(|session| session.over().is_none())
        {
            return Ok(session);
        }
        let config = SessionConfig {
            endpoint: self.endpoint,
            timeout: self.config.ttl(),
            keep_alive: self.config.keep_alive,
            told: self.recipe.told,
        };
        Session::open(config, Arc::clone(&self.belief), self.limit()).await
    }

    /// Creates the own node, and the lock's if this is its first use.
    async fn enter(&self, session: &Session, parent: String) -> Result<Place, Reply<Grant>> {
        let stem = self.recipe.names.stem(session.id(), self.turns);
        let path = format!("{parent}/{stem}");
        let create = || session.create(&path, b"", CreateMode::EphemeralSequential, self.limit());
        let mut created = create().await;
        if created.as_ref().is_err_and(ZkError::is_no_node) {
            let made = session.make_path(&parent, self.limit()).await;
            made.map_err(|error| Reply::Fail(error.reason()))?;
            created = create().await;
        }
        let name = match created {
            Ok(path) => path.rsplit('/').next().unwrap_or_default().to_owned(),
            Err(error) if !error.is_definite() && self.recipe.names.finds_again() => {
                let found = self.find_again(session, &parent, &stem).await;
                found.ok_or_else(|| error.reply())?
            }
            Err(error) => return Err(error.reply()),
        };
        let mut place = Place {
            parent,
            name,
            czxid: 0,
        };
        match session.exists(&place.path(), self.limit()).await {
            Ok(Some(stat)) => {
                place.czxid = stat.czxid.unsigned_abs();
                Ok(place)
            }
            Ok(None) => Err(gone()),
            Err(error) => match Unlucky::from(error) {
                Unlucky::Gone(reason) => Err(Reply::Fail(reason)),
                Unlucky::Queued(reason) => Err(self.leave(session, &place, reason).await),
            },
        }
    }

    /// The own node, whose creation was not answered. If it is not there, it may still come.
    async fn find_again(&self, session: &Session, parent: &str, stem: &str) -> Option<String> {
        session.sync(parent, self.limit()).await.ok()?;
        let names = session.children(parent, false, self.limit()).await.ok()?;
        names.into_iter().find(|name| name.starts_with(stem))
    }

    /// Waits until the own node is the first of the queue.
    async fn await_turn(&mut self, session: &mut Session, place: &Place) -> Result<(), Unlucky> {
        let Recipe {
            herd,
            ordering,
            look_again,
            ..
        } = self.recipe;
        loop {
            session.forget_events();
            let names = session.children(&place.parent, herd, self.limit()).await?;
            let queue = ordering.sort(names);
            let Some(position) = queue.iter().position(|name| *name == place.name) else {
                let text = "the own node is no longer in the queue";
                return Err(Unlucky::Gone(Reason::new("session-expired", text)));
            };
            let Some(before) = position.checked_sub(1) else {
                return Ok(());
            };
            let watched = if herd {
                place.parent.clone()
            } else {
                let path = format!("{}/{}", place.parent, queue[before]);
                // Curator reads the data where the recipe asks whether the node exists: that would leave a
                // watch behind on a node which has gone meanwhile.
                if session.get_data(&path, true, self.limit()).await?.is_none() {
                    continue;
                }
                path
            };
            self.await_event(session, &watched).await?;
            if !look_again {
                return Ok(());
            }
        }
    }

    /// Waits for the watch on this node. A lost connection is no news: the watch is set again on the next.
    async fn await_event(&mut self, session: &mut Session, watched: &str) -> Result<(), Unlucky> {
        loop {
            match session.event().await {
                Some(SessionEvent::Watch(event)) if event.path == watched => {
                    self.wakes += 1;
                    return Ok(());
                }
                Some(
                    SessionEvent::Watch(_) | SessionEvent::Suspended(_) | SessionEvent::Connected,
                ) => {}
                Some(SessionEvent::Over(why)) => {
                    return Err(Unlucky::Gone(Reason::new("session-expired", why)));
                }
                None => return Err(Unlucky::Gone(Reason::new("session-expired", "it is over"))),
            }
        }
    }

    /// Takes the own node out of the queue again. Only then is it certain that the lock does not become ours
    /// later.
    async fn leave(&self, session: &Session, place: &Place, reason: Reason) -> Reply<Grant> {
        match session.delete(&place.path(), self.limit()).await {
            Ok(_) => Reply::Fail(reason),
            Err(error) if error.code() == "session-expired" => Reply::Fail(reason),
            Err(error) => Reply::info(
                reason.code,
                format!("{}; own node not removed: {}", reason.text, error.reason()),
            ),
        }
    }

    async fn release(&mut self) -> Reply<()> {
        let (Some(path), Some(session)) = (self.held.take(), self.session.take()) else {
            return Reply::fail("not-held", "this client holds no lock");
        };
        let deleted = session.delete(&path, self.limit()).await;
        if deleted.is_ok() && self.config.keep_alive {
            self.session = Some(session);
        } else {
            // Nobody renews it, or its node is still in the queue: it must not go on.
            session.close_in_background(self.config.request_timeout());
        }
        deleted.map_or_else(|error| error.reply(), |_| Reply::Ok(()))
    }
}

fn gone() -> Reply<Grant> {
    Reply::fail(
        "session-expired",
        "the own node was gone right after it was created",
    )
}

fn grant(place: &Place) -> Grant {
    let guard = Guard::ZooKeeper { path: place.path() };
    Grant {
        token: Some(place.czxid),
        dead_on_arrival: false,
        guard: Some(guard),
    }
}

impl LockClient for Client {
    fn acquire<'a>(&'a mut self, lock: &'a str) -> BoxFuture<'a, Reply<Grant>> {
        self.acquire(lock).boxed()
    }

    fn release<'a>(&'a mut self, _lock: &'a str) -> BoxFuture<'a, Reply<()>> {
        self.release().boxed()
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.wakes)
    }

    /// Ends the session, which deletes every node of this client.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Some(session) = self.session.take() {
                // If that fails, the session expires by itself.
                let _ = session.close(self.config.request_timeout()).await;
            }
        }
        .boxed()
    }
}
