//! A server of JSON lines: one reader and one writer thread a connection.
//!
//! Writers have a thread of their own because a client may be frozen on purpose: a full socket must
//! never stop the others.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Longest line that is accepted, in bytes.
const MAX_LINE: usize = 64 << 20;

/// The way back to one client. Cheap to clone; sending never blocks and never fails.
#[derive(Clone, Debug)]
pub struct Outbox(Sender<Vec<u8>>);

impl Outbox {
    /// Queues bytes (whole lines) for the client. They are dropped when it is gone.
    pub fn send(&self, lines: Vec<u8>) {
        let _ = self.0.send(lines);
    }
}

/// What a server does with its lines.
pub trait Handler: Send + Sync + 'static {
    /// Handles one line (without its end) of connection `connection`. Answers that are ready at once go
    /// to `answers`; later ones go through `outbox`.
    ///
    /// # Errors
    /// A text for the client; the connection is closed after it.
    fn line(
        &self,
        connection: u64,
        line: &[u8],
        answers: &mut Vec<u8>,
        outbox: &Outbox,
    ) -> Result<(), String>;

    /// The connection is gone.
    fn closed(&self, connection: u64);
}

/// A stream that can be split between two threads.
pub trait Stream: Read + Write + Send + Sized + 'static {
    /// A second handle on the same stream.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    fn duplicate(&self) -> io::Result<Self>;
    /// Ends both directions, so that the other thread's blocked call returns.
    fn end(&self);
}

impl Stream for UnixStream {
    fn duplicate(&self) -> io::Result<Self> {
        self.try_clone()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for TcpStream {
    fn duplicate(&self) -> io::Result<Self> {
        self.set_nodelay(true)?;
        self.try_clone()
    }
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Serves a Unix socket until the process ends.
pub fn serve_unix(listener: UnixListener, handler: Arc<dyn Handler>) {
    serve(move || listener.accept().map(|(stream, _)| stream), handler);
}

/// Serves a TCP socket until the process ends.
pub fn serve_tcp(listener: TcpListener, handler: Arc<dyn Handler>) {
    serve(move || listener.accept().map(|(stream, _)| stream), handler);
}

fn serve<S: Stream>(
    accept: impl Fn() -> io::Result<S> + Send + 'static,
    handler: Arc<dyn Handler>,
) {
    thread::spawn(move || {
        for connection in 0u64.. {
            let Ok(stream) = accept() else { return };
            let Ok(writer) = stream.duplicate() else {
                continue;
            };
            let (sender, receiver) = channel();
            thread::spawn(move || write_all(writer, &receiver));
            let handler = Arc::clone(&handler);
            thread::spawn(move || {
                read_all(stream, connection, handler.as_ref(), &Outbox(sender));
                handler.closed(connection);
            });
        }
    });
}

fn write_all<S: Stream>(mut stream: S, receiver: &Receiver<Vec<u8>>) {
    while let Ok(mut bytes) = receiver.recv() {
        while let Ok(more) = receiver.try_recv() {
            bytes.extend_from_slice(&more);
        }
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
    stream.end();
}

fn read_all<S: Stream>(mut stream: S, connection: u64, handler: &dyn Handler, outbox: &Outbox) {
    let mut buffer = Vec::with_capacity(64 << 10);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        buffer.extend_from_slice(&chunk[..count]);
        let mut answers = Vec::new();
        let mut start = 0;
        while let Some(length) = buffer[start..].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[start..start + length];
            start += length + 1;
            if let Err(text) = handler.line(connection, line, &mut answers, outbox) {
                answers
                    .extend_from_slice(serde_json::json!({ "error": text }).to_string().as_bytes());
                answers.push(b'\n');
                outbox.send(answers);
                return;
            }
        }
        buffer.drain(..start);
        if !answers.is_empty() {
            outbox.send(answers);
        }
        if buffer.len() > MAX_LINE {
            outbox.send(b"{\"error\":\"line too long\"}\n".to_vec());
            return;
        }
    }
}
