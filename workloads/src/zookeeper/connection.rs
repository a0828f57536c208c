//! One TCP connection to one ZooKeeper server: frames, and the handshake that opens a session or takes one
//! up again. It never connects by itself; that is the [session](super::session)'s decision.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::wire::{ConnectRequest, ConnectResponse};

/// Largest frame that is accepted: far above the 1 MiB that a node may hold.
const MAX_FRAME: usize = 64 << 20;

/// The name and secret of a session, by which it is taken up again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
}

/// A connection on which a session lives.
pub(super) struct Connection {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    buffer: Vec<u8>,
}

/// What a server said to the handshake.
pub(super) enum Opened {
    /// The session lives on this connection, with this timeout.
    Session(Connection, Ticket, Duration),
    /// There is no such session (any more).
    Expired,
}

/// Connects and does the handshake, all within `limit`. `last_zxid` is the last transaction that the session
/// has seen: a server that is behind refuses.
///
/// # Errors
/// When there is no connection or no answer in time. A server without a quorum closes the connection.
pub(super) async fn open(
    endpoint: SocketAddr,
    ticket: &Ticket,
    session_timeout: Duration,
    last_zxid: i64,
    limit: Duration,
) -> io::Result<Opened> {
    let request = ConnectRequest {
        last_zxid,
        timeout_ms: i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX),
        session: ticket.session,
        password: &ticket.password,
    };
    let handshake = async {
        let stream = TcpStream::connect(endpoint).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let mut connection = Connection {
            read,
            write,
            buffer: Vec::new(),
        };
        connection.write.write_all(&request.frame()).await?;
        let answer = connection.frame().await?;
        let answer = ConnectResponse::read(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let Some(timeout_ms) = u64::try_from(answer.timeout_ms).ok().filter(|ms| *ms > 0) else {
            return Ok(Opened::Expired);
        };
        let ticket = Ticket {
            session: answer.session,
            password: answer.password,
        };
        let timeout = Duration::from_millis(timeout_ms);
        Ok(Opened::Session(connection, ticket, timeout))
    };
    match timeout(limit, handshake).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer to the handshake within {} ms", limit.as_millis()),
        )),
    }
}

impl Connection {
    /// The body of the next frame. Safe to cancel: what was read so far stays.
    pub(super) async fn frame(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ));
            }
        }
    }

    /// A frame that has arrived whole.
    fn buffered(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("expected a frame of at most {MAX_FRAME} bytes, found {length}"),
            ));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.buffer.drain(..4 + length);
        Ok(Some(frame))
    }

    /// Sends a frame. A server that takes nothing for `limit` counts as gone.
    pub(super) async fn send(&mut self, frame: &[u8], limit: Duration) -> io::Result<()> {
        timeout(limit, self.write.write_all(frame))
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it takes nothing")))
    }
}
