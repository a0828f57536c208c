//! One call each for what fencepost asks of a Consul server.
//!
//! Paths and fields are those of the HTTP API (`agent/{kvs,session,txn,status}_endpoint.go`). Every call
//! has an explicit limit. What must not be in here: loops, retries, or what an answer means to a lock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::errors::{Cause, ConsulError, Effect};
use super::http::{Answer, Http};
use super::options::SessionAsk;

/// Marks a key as a lock of the Go client (`api.LockFlagValue`): it refuses to lock any other.
pub(crate) const LOCK_FLAG: u64 = 0x2ddc_cbc0_58a5_0c18;

/// A client of one Consul server. Clones share its connections.
#[derive(Clone)]
pub struct ConsulClient {
    http: Arc<Http>,
}

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value, in base64; absent when it is empty.
    pub value: Option<String>,
    /// A number of the client's own.
    pub flags: u64,
    /// How often it was acquired since it was created, or last written by a plain put.
    pub lock_index: u64,
    /// Raft index at which it was created.
    pub create_index: u64,
    /// Raft index of its latest change.
    pub modify_index: u64,
    /// The session that holds it; empty for none.
    #[serde(default)]
    pub session: String,
}

impl Entry {
    /// The value, decoded.
    ///
    /// # Errors
    /// When it is no base64, which Consul does not send.
    pub fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        BASE64.decode(self.value.as_deref().unwrap_or_default())
    }
}

/// How a read is answered (`?consistent`, `?stale`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the leader, without asking whether it still leads.
    Default,
    /// By the leader, once a majority has confirmed it: linearizable.
    Consistent,
    /// By the server itself, from what it has heard so far.
    Stale,
}

/// A read that waits until what is read has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// How it is answered.
    pub mode: Mode,
    /// Wait until the index is above this; 0 not to wait at all.
    pub index: u64,
    /// For so long at most; the server's own default is 300 s.
    pub wait: Duration,
}

impl Query {
    /// A read that is answered at once.
    #[must_use]
    pub fn now(mode: Mode) -> Self {
        Self {
            mode,
            index: 0,
            wait: Duration::ZERO,
        }
    }

    fn text(self) -> String {
        let mode = match self.mode {
            Mode::Default => "",
            Mode::Consistent => "&consistent",
            Mode::Stale => "&stale",
        };
        if self.index == 0 {
            mode.to_owned()
        } else {
            let (index, wait_ms) = (self.index, self.wait.as_millis());
            format!("&index={index}&wait={wait_ms}ms{mode}")
        }
    }

    /// How long the answer may take: the server adds up to a sixteenth to the wait
    /// (`rpc.go`, `jitterFraction`), and `limit` is for everything else.
    fn limit(self, limit: Duration) -> Duration {
        if self.index == 0 {
            limit
        } else {
            self.wait + self.wait / 16 + limit
        }
    }
}

/// How a write in a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was done, at this raft index.
    At(u64),
    /// The guard did not hold, in the server's words; nothing was done.
    Refused(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TxnAnswer {
    results: Option<Vec<TxnResult>>,
    errors: Option<Vec<TxnError>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct TxnResult {
    kv: Option<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TxnError {
    what: String,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: String,
}

impl ConsulClient {
    /// Connects to one server.
    ///
    /// # Errors
    /// When no TCP connection comes about within `timeout`.
    pub async fn connect(endpoint: SocketAddr, timeout: Duration) -> Result<Self, ConsulError> {
        let http = Http::connect(endpoint, timeout)
            .await
            .map_err(|(cause, text)| ConsulError {
                endpoint,
                request: "connect".to_owned(),
                effect: Effect::None,
                cause,
                text,
            })?;
        Ok(Self {
            http: Arc::new(http),
        })
    }

    /// The server.
    #[must_use]
    pub fn endpoint(&self) -> SocketAddr {
        self.http.endpoint()
    }

    /// Creates a session; returns its id.
    ///
    /// # Errors
    /// The request's.
    pub async fn create_session(
        &self,
        ask: &SessionAsk,
        limit: Duration,
    ) -> Result<String, ConsulError> {
        let call = self.put_call("/v1/session/create", ask.body().into_bytes());
        let answer = call.expect(limit, &[200]).await?;
        call.json::<Created>(&answer).map(|created| created.id)
    }

    /// Renews a session; false when there is no such session.
    ///
    /// # Errors
    /// The request's.
    pub async fn renew_session(&self, session: &str, limit: Duration) -> Result<bool, ConsulError> {
        let call = self.put_call(format!("/v1/session/renew/{session}"), Vec::new());
        Ok(call.expect(limit, &[200, 404]).await?.status == 200)
    }

    /// Ends a session: keys that it holds are released or deleted, and their lock-delay begins.
    ///
    /// # Errors
    /// The request's.
    pub async fn destroy_session(&self, session: &str, limit: Duration) -> Result<(), ConsulError> {
        let call = self.put_call(format!("/v1/session/destroy/{session}"), Vec::new());
        call.expect(limit, &[200]).await.map(drop)
    }

    /// Reads a key, if it is there, and the index to wait behind.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn get(
        &self,
        key: &str,
        query: Query,
        limit: Duration,
    ) -> Result<(Option<Entry>, u64), ConsulError> {
        let (entries, index) = self.read(key, "", query, limit).await?;
        Ok((entries.into_iter().next(), index))
    }

    /// Reads every key below a prefix, and the index to wait behind.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn list(
        &self,
        prefix: &str,
        query: Query,
        limit: Duration,
    ) -> Result<(Vec<Entry>, u64), ConsulError> {
        self.read(prefix, "&recurse", query, limit).await
    }

    async fn read(
        &self,
        key: &str,
        what: &str,
        query: Query,
        limit: Duration,
    ) -> Result<(Vec<Entry>, u64), ConsulError> {
        let text = format!("{what}{}", query.text());
        let path = format!("/v1/kv/{key}?{}", text.trim_start_matches('&'));
        let call = self.call(Method::GET, path, Vec::new(), Effect::None);
        let answer = call.expect(query.limit(limit), &[200, 404]).await?;
        let entries = if answer.status == 200 {
            call.json(&answer)?
        } else {
            Vec::new()
        };
        let index = answer
            .index
            .ok_or_else(|| call.malformed("an answer without X-Consul-Index"))?;
        Ok((entries, index))
    }

    /// Takes a key for a session; false when another session holds it, or its lock-delay is not over.
    ///
    /// # Errors
    /// The request's.
    pub async fn acquire(
        &self,
        key: &str,
        session: &str,
        value: &str,
        limit: Duration,
    ) -> Result<bool, ConsulError> {
        let path = format!("/v1/kv/{key}?acquire={session}&flags={LOCK_FLAG}");
        self.put_bool(path, value, limit).await
    }

    /// Gives a key back; false when the session does not hold it.
    ///
    /// # Errors
    /// The request's.
    pub async fn release(
        &self,
        key: &str,
        session: &str,
        value: &str,
        limit: Duration,
    ) -> Result<bool, ConsulError> {
        let path = format!("/v1/kv/{key}?release={session}&flags={LOCK_FLAG}");
        self.put_bool(path, value, limit).await
    }

    /// Writes a key by a plain put, whoever holds it: locks are advisory.
    ///
    /// # Errors
    /// The request's.
    pub async fn put(&self, key: &str, value: &str, limit: Duration) -> Result<(), ConsulError> {
        let path = format!("/v1/kv/{key}?flags={LOCK_FLAG}");
        self.put_bool(path, value, limit).await.map(drop)
    }

    async fn put_bool(
        &self,
        path: String,
        value: &str,
        limit: Duration,
    ) -> Result<bool, ConsulError> {
        let call = self.put_call(path, value.as_bytes().to_vec());
        let answer = call.expect(limit, &[200]).await?;
        call.json(&answer)
    }

    /// Writes a key in a transaction, which tells the index of the write, and, with a guard, only while
    /// that session holds that key.
    ///
    /// # Errors
    /// The request's.
    pub async fn set(
        &self,
        key: &str,
        value: &str,
        guard: Option<(&str, &str)>,
        limit: Duration,
    ) -> Result<Written, ConsulError> {
        let check = guard.map(|(key, session)| {
            json!({"KV": {"Verb": "check-session", "Key": key, "Session": session}})
        });
        let set = json!({"KV": {"Verb": "set", "Key": key, "Value": BASE64.encode(value)}});
        let operations: Vec<_> = check.into_iter().chain([set]).collect();
        let call = self.put_call("/v1/txn", json!(operations).to_string().into_bytes());
        let answer = call.expect(limit, &[200, 409]).await?;
        let body: TxnAnswer = call.json(&answer)?;
        if answer.status == 409 {
            let mut errors = body.errors.unwrap_or_default().into_iter();
            let refused = errors.next().map(|error| error.what);
            return Ok(Written::Refused(refused.unwrap_or_default()));
        }
        let results = body.results.unwrap_or_default();
        let written = results.into_iter().next_back().and_then(|last| last.kv);
        written
            .map(|entry| Written::At(entry.modify_index))
            .ok_or_else(|| call.malformed("a transaction without its result"))
    }

    /// The leader's address for servers (port 8300) as this server knows it; absent for none.
    ///
    /// # Errors
    /// The request's, always definite.
    pub async fn leader(&self, limit: Duration) -> Result<Option<SocketAddr>, ConsulError> {
        let call = self.call(Method::GET, "/v1/status/leader", Vec::new(), Effect::None);
        let answer = call.expect(limit, &[200]).await?;
        let leader: String = call.json(&answer)?;
        if leader.is_empty() {
            return Ok(None);
        }
        leader
            .parse()
            .map(Some)
            .map_err(|_| call.malformed(&format!("`{leader}` for the leader's address")))
    }

    fn put_call(&self, path: impl Into<String>, body: Vec<u8>) -> Call<'_> {
        self.call(Method::PUT, path, body, Effect::One)
    }

    fn call(
        &self,
        method: Method,
        path: impl Into<String>,
        body: Vec<u8>,
        effect: Effect,
    ) -> Call<'_> {
        Call {
            http: &self.http,
            method,
            path: path.into(),
            body,
            effect,
        }
    }
}

/// A request that is about to be sent, or was.
struct Call<'a> {
    http: &'a Http,
    method: Method,
    path: String,
    body: Vec<u8>,
    effect: Effect,
}

impl Call<'_> {
    /// Sends it; any status besides `wanted` is the server's refusal.
    async fn expect(&self, limit: Duration, wanted: &[u16]) -> Result<Answer, ConsulError> {
        let sent = self
            .http
            .call(self.method.clone(), &self.path, self.body.clone(), limit);
        let answer = sent
            .await
            .map_err(|(cause, text)| self.error(cause, text))?;
        if wanted.contains(&answer.status) {
            return Ok(answer);
        }
        let text = String::from_utf8_lossy(&answer.body).trim().to_owned();
        let text = if text.is_empty() {
            format!("status {}", answer.status)
        } else {
            text
        };
        Err(self.error(Cause::Server(answer.status), text))
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, answer: &Answer) -> Result<T, ConsulError> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            let body = String::from_utf8_lossy(&answer.body);
            self.malformed(&format!("{error} in `{body}`"))
        })
    }

    /// The server's answer does not hold what the API promises.
    fn malformed(&self, what: &str) -> ConsulError {
        self.error(Cause::Transport, what.to_owned())
    }

    fn error(&self, cause: Cause, text: String) -> ConsulError {
        let path = self.path.split('?').next().unwrap_or_default();
        ConsulError {
            endpoint: self.http.endpoint(),
            request: format!("{} {path}", self.method),
            effect: self.effect,
            cause,
            text,
        }
    }
}
