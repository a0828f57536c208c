//! A logical client that contends for Consul locks: what `consul-lock` and `consul-kv` do in the same way.
//!
//! How a client waits for a lock, and what it does about a lost one, is each lock's own and not for here.

use std::sync::Arc;
use std::time::Duration;

use super::client::{ConsulClient, Mode, Query};
use super::errors::ConsulError;
use super::options::{PUBLISH, SessionAsk, TOKEN, Token};
use super::session::{Renewals, Session};
use crate::belief::Belief;
use crate::lock::{Grant, Guard, LockClient, LockConfig, LockConnection};
use crate::option::OptionKind;
use crate::reply::{Reason, Reply};

/// How long a client may sleep that was refused a lock which nobody holds.
pub(crate) const RETRY_KIND: OptionKind = OptionKind::Millis {
    min: 10,
    max: 60_000,
};

/// Opens the connection that a lock's configuration asks for; `client` makes a client of the lock.
pub(crate) async fn connect(
    lock: &str,
    config: LockConfig,
    client: fn(Contender) -> Box<dyn LockClient>,
) -> Result<Box<dyn LockConnection>, String> {
    let endpoint = config.endpoint.ok_or_else(|| {
        format!("lock `{lock}` expects the address of a Consul server, found none: give its cluster at least one node")
    })?;
    let connected = ConsulClient::connect(endpoint, config.request_timeout()).await;
    let consul = connected.map_err(|error| {
        format!("lock `{lock}` expects a Consul server that accepts connections: {error}; see the node's log")
    })?;
    Ok(Box::new(Connection {
        consul,
        config: Arc::new(config),
        client,
    }))
}

struct Connection {
    consul: ConsulClient,
    config: Arc<LockConfig>,
    client: fn(Contender) -> Box<dyn LockClient>,
}

impl LockConnection for Connection {
    fn client(&self, _client: u32, belief: Arc<Belief>) -> Box<dyn LockClient> {
        (self.client)(Contender {
            consul: self.consul.clone(),
            config: Arc::clone(&self.config),
            belief,
        })
    }
}

/// A client, without what it holds.
pub(crate) struct Contender {
    pub(crate) consul: ConsulClient,
    pub(crate) config: Arc<LockConfig>,
    pub(crate) belief: Arc<Belief>,
}

impl Contender {
    /// The limit of one request.
    pub(crate) fn limit(&self) -> Duration {
        self.config.request_timeout()
    }

    /// Opens a session, renewed as given unless the configuration asks for none.
    pub(crate) async fn open_session(&self, renewals: Renewals) -> Result<Session, ConsulError> {
        let ask = SessionAsk::new(&self.config);
        let renewals = if self.config.keep_alive {
            renewals
        } else {
            Renewals::None
        };
        Session::open(&self.consul, &self.belief, &ask, renewals, self.limit()).await
    }

    /// Asks once for a key: whether the session got it.
    pub(crate) async fn take(&self, key: &str, session: &str) -> Result<bool, ConsulError> {
        let value = self.token().name();
        self.consul.acquire(key, session, value, self.limit()).await
    }

    /// Gives a key back: whether the session held it.
    pub(crate) async fn give_back(&self, key: &str, session: &str) -> Result<bool, ConsulError> {
        let value = self.token().name();
        self.consul.release(key, session, value, self.limit()).await
    }

    /// Why a client that waited for as long as it may has no lock.
    pub(crate) fn out_of_time(&self) -> Reason {
        let text = format!("not free within {} ms", self.config.acquire_timeout_ms);
        Reason::new("timeout", text)
    }

    /// The kind of token that the lock's configuration asks for.
    fn token(&self) -> Token {
        Token::find(self.config.options.text(&TOKEN)).unwrap_or(Token::ModifyIndex)
    }

    /// What a holder does first: it reads its fencing token from the lock's key, and, with the option
    /// `publish`, then writes to that key. An error leaves a lock that was granted but cannot be used as it is
    /// meant to be.
    pub(crate) async fn first_look(&self, key: &str, session: &str) -> Reply<Grant> {
        let unusable = |error: ConsulError| {
            let reason = error.reason();
            Reply::info(
                reason.code,
                format!("granted, but its key could not be used: {}", reason.text),
            )
        };
        let (token, limit) = (self.token(), self.limit());
        let read = self.consul.get(key, Query::now(Mode::Consistent), limit);
        let entry = match read.await {
            Ok((entry, _)) => entry.filter(|entry| entry.session == session),
            Err(error) => return unusable(error),
        };
        let Some(entry) = entry else {
            return Reply::Ok(Grant {
                dead_on_arrival: true,
                ..Grant::default()
            });
        };
        if self.config.options.flag(&PUBLISH) {
            let value = format!("{} published", token.name());
            if let Err(error) = self.consul.put(key, &value, limit).await {
                return unusable(error);
            }
        }
        Reply::Ok(Grant {
            token: Some(match token {
                Token::ModifyIndex => entry.modify_index,
                Token::LockIndex => entry.lock_index,
            }),
            dead_on_arrival: false,
            guard: Some(Guard::Consul {
                key: key.to_owned(),
                session: session.to_owned(),
            }),
        })
    }
}
