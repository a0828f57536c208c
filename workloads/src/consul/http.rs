//! Bare HTTP/1.1 to one server, one request at a time on each connection.
//!
//! Go's client opens a connection for each request that is under way and keeps it for the next; so does
//! this. A request that was sent is never sent again: when its connection breaks, or its limit passes, that
//! is its end, and the connection is closed. Only one that could not be written because the connection had
//! already ended goes to another connection. What must not be in here: what requests mean.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::errors::Cause;

/// Go's dialler (`cleanhttp.DefaultPooledTransport`) has the kernel ask a silent peer for a sign of life
/// every 30 s; Linux gives it up after nine questions. It is the only end of a blocking query whose server
/// has vanished without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Connections to one server.
pub(super) struct Http {
    endpoint: SocketAddr,
    connect_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
}

type Connection = SendRequest<Full<Bytes>>;

/// An answer, whatever its status.
pub(super) struct Answer {
    pub(super) status: u16,
    /// `X-Consul-Index`.
    pub(super) index: Option<u64>,
    pub(super) body: Bytes,
}

/// Why there is no answer, and the words for it.
pub(super) type NoAnswer = (Cause, String);

impl Http {
    /// Connects, so that a server that cannot be reached is noticed at once.
    pub(super) async fn connect(endpoint: SocketAddr, timeout: Duration) -> Result<Self, NoAnswer> {
        let http = Self {
            endpoint,
            connect_timeout: timeout,
            idle: Mutex::default(),
        };
        let connection = http.open(Instant::now() + timeout).await?;
        http.keep(connection);
        Ok(http)
    }

    pub(super) fn endpoint(&self) -> SocketAddr {
        self.endpoint
    }

    /// Sends one request and waits for its answer until `limit` has passed.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Answer, NoAnswer> {
        let deadline = Instant::now() + limit;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.to_string())
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| (Cause::NotConnected, format!("{path}: {error}")))?;
        loop {
            let (mut connection, kept) = match self.kept().await {
                Some(connection) => (connection, true),
                None => (self.open(deadline).await?, false),
            };
            let exchange = async {
                let answer = connection
                    .try_send_request(request)
                    .await
                    .map_err(|mut error| {
                        let unsent = error.take_message();
                        (unsent, innermost(error.error()))
                    })?;
                read(answer)
                    .await
                    .map_err(|error| (None, innermost(&error)))
            };
            match timeout_at(deadline, exchange).await {
                Ok(Ok(answer)) => {
                    self.keep(connection);
                    return Ok(answer);
                }
                Ok(Err((Some(unsent), _))) if kept => request = unsent,
                Ok(Err((Some(_), text))) => return Err((Cause::NotConnected, text)),
                Ok(Err((None, text))) => return Err((Cause::Transport, text)),
                // Dropping the connection is all that HTTP/1.1 has to take a request back.
                Err(_) => {
                    let text = format!("no answer within {} ms", limit.as_millis());
                    return Err((Cause::Deadline, text));
                }
            }
        }
    }

    /// A connection that was kept and still stands, as far as can be known.
    async fn kept(&self) -> Option<Connection> {
        loop {
            let mut connection = self.lock().pop()?;
            if !connection.is_closed() && connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        if !connection.is_closed() {
            self.lock().push(connection);
        }
    }

    async fn open(&self, deadline: Instant) -> Result<Connection, NoAnswer> {
        let failed = |text: String| (Cause::NotConnected, text);
        let until = deadline.min(Instant::now() + self.connect_timeout);
        let start = Instant::now();
        let stream = timeout_at(until, TcpStream::connect(self.endpoint))
            .await
            .map_err(|_| failed(format!("no connection within {:?}", start.elapsed())))?
            .map_err(|error| failed(error.to_string()))?;
        configure(&stream).map_err(|error| failed(error.to_string()))?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(innermost(&error)))?;
        // It ends with the connection; whoever waits for an answer learns why.
        tokio::spawn(driver);
        Ok(connection)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn configure(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let seconds = u32::try_from(KEEP_ALIVE.as_secs()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &seconds)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &seconds)?;
    Ok(())
}

async fn read(answer: hyper::Response<hyper::body::Incoming>) -> hyper::Result<Answer> {
    let (head, body) = answer.into_parts();
    let index = head
        .headers
        .get("x-consul-index")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Answer {
        status: head.status.as_u16(),
        index,
        body: body.collect().await?.to_bytes(),
    })
}

/// The words of the last error in the chain: the ones that say what happened.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}
