//! Which server a client's commands go to, and the connection to it.
//!
//! Either always the same one, or, with Sentinel, whatever primary the Sentinels name when a connection is
//! opened ("Guidelines for Redis clients with support for Redis Sentinel", redis.io: ask them in turn, the
//! one that answered first next time, then ask the server itself for its role; again at every reconnection). A
//! connection that broke, timed out or led to a replica is replaced before the *next* command; no command is
//! ever sent twice.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::command::Command;
use super::connection::Connection;
use super::errors::{Cause, Effect, RedisError};
use super::resp::Value;
use super::sentinel;

/// A Sentinel that does not answer at once is passed over.
const SENTINEL_LIMIT: Duration = Duration::from_millis(300);

/// The way to a server. Clones of the [`Arc`] around it share its connection.
#[derive(Debug)]
pub(crate) struct Route {
    to: To,
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// As in the route, but the Sentinel that answered last comes first.
    to: To,
    open: Option<Arc<Connection>>,
    /// When the latest attempt to connect failed, and how.
    failed: Option<(Instant, RedisError)>,
}

#[derive(Clone, Debug)]
enum To {
    Node(SocketAddr),
    PrimaryBy(Vec<SocketAddr>),
}

impl Route {
    /// To one server; `limit` is how long connecting may take.
    pub(crate) fn to(node: SocketAddr, limit: Duration) -> Self {
        Self::new(To::Node(node), limit)
    }

    /// To the primary that these Sentinels name.
    pub(crate) fn by_sentinels(sentinels: Vec<SocketAddr>, limit: Duration) -> Self {
        Self::new(To::PrimaryBy(sentinels), limit)
    }

    fn new(to: To, limit: Duration) -> Self {
        let state = State {
            to: to.clone(),
            open: None,
            failed: None,
        };
        Self {
            to,
            limit,
            state: Mutex::new(state),
        }
    }

    /// Another route to the same place, with a connection of its own.
    pub(crate) fn separate(&self) -> Self {
        Self::new(self.to.clone(), self.limit)
    }

    /// Sends one command over the present connection, or over a new one if that is of no more use.
    pub(crate) async fn call(
        &self,
        command: &Command,
        limit: Duration,
    ) -> Result<Value, RedisError> {
        self.connection().await?.call(command, limit).await
    }

    /// The present connection, or a new one if that is of no more use.
    ///
    /// # Errors
    /// When there is none to be had: nothing was sent.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, RedisError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = state.open.as_ref().filter(|open| open.is_usable()) {
            return Ok(Arc::clone(open));
        }
        // Whoever waited while an attempt failed shares its failure, or a thousand of them would fail in turn.
        if let Some((_, error)) = state.failed.as_ref().filter(|(when, _)| *when >= asked) {
            return Err(error.clone());
        }
        state.open = None;
        match state.open(self.limit).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.open = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

impl State {
    async fn open(&mut self, limit: Duration) -> Result<Connection, RedisError> {
        match &mut self.to {
            To::Node(node) => Connection::open(*node, limit).await,
            To::PrimaryBy(sentinels) => {
                let primary = primary_by(sentinels, limit).await?;
                let connection = Connection::open(primary, limit).await?;
                check_role(&connection, limit).await?;
                Ok(connection)
            }
        }
    }
}

/// The primary by the word of the first Sentinel that names one, which is then asked first.
async fn primary_by(
    sentinels: &mut [SocketAddr],
    limit: Duration,
) -> Result<SocketAddr, RedisError> {
    let limit = limit.min(SENTINEL_LIMIT);
    let mut last = None;
    for index in 0..sentinels.len() {
        match sentinel::primary(sentinels[index], limit).await {
            Ok(Some(primary)) => {
                sentinels[..=index].rotate_right(1);
                return Ok(primary);
            }
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
    }
    let nobody = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
    let endpoint = sentinels.first().copied().unwrap_or(nobody);
    let why = last.map_or_else(
        || "none knows a primary".to_owned(),
        |error| error.to_string(),
    );
    let text = format!("no Sentinel of {} names a primary: {why}", sentinels.len());
    Err(RedisError::not_connected(endpoint, text))
}

/// Sentinels may still name a server that was demoted: it is asked itself.
async fn check_role(connection: &Connection, limit: Duration) -> Result<(), RedisError> {
    let answer = connection
        .call(&Command::read("ROLE", &["ROLE"]), limit)
        .await?;
    let role = answer.elements().first().and_then(Value::text);
    if role == Some("master") {
        return Ok(());
    }
    let text = format!(
        "expected a primary, found the role {:?}",
        role.unwrap_or("none")
    );
    let endpoint = connection.endpoint();
    Err(RedisError::new(
        endpoint,
        "ROLE",
        Effect::None,
        Cause::NotPrimary,
        text,
    ))
}
