//! The recorder: the only thing that writes a trial's history.
//!
//! Events come from several threads and are written in the order of their arrival; what is on disk
//! when the controller is killed can be checked. It must not look into the events.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use checkers::history::{Event, HistoryWriter};

/// How much of a history a killed controller can lose, at most.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// A handle on the recorder; clones write to the same history.
#[derive(Clone, Debug)]
pub struct Recorder(Sender<Message>);

#[derive(Debug)]
enum Message {
    Events(Vec<Event>),
    Close,
}

/// The thread that writes.
#[derive(Debug)]
pub struct RecorderThread(JoinHandle<io::Result<u64>>);

impl Recorder {
    /// Creates the history file and starts writing.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn start(path: &Path) -> io::Result<(Self, RecorderThread)> {
        let writer = HistoryWriter::new(File::create(path)?)?;
        let (sender, receiver) = channel();
        let thread = thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(writer, &receiver))?;
        Ok((Self(sender), RecorderThread(thread)))
    }

    /// Records one event.
    pub fn record(&self, event: Event) {
        // A recorder that stopped (disk full) is reported by `RecorderThread::finish`.
        let _ = self.0.send(Message::Events(vec![event]));
    }

    /// Records several events in their order.
    pub fn record_all(&self, events: Vec<Event>) {
        if !events.is_empty() {
            let _ = self.0.send(Message::Events(events));
        }
    }

    /// Ends the history after what was recorded so far; later events are dropped.
    pub fn close(&self) {
        let _ = self.0.send(Message::Close);
    }
}

impl RecorderThread {
    /// Waits until every event before [`Recorder::close`] is on disk. Gives their number.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(self) -> io::Result<u64> {
        self.0
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the recorder thread panicked")))
    }
}

fn write(mut writer: HistoryWriter<File>, events: &Receiver<Message>) -> io::Result<u64> {
    let mut count = 0;
    let mut flushed = Instant::now();
    let mut dirty = false;
    loop {
        match events.recv_timeout(FLUSH_EVERY) {
            Ok(Message::Events(batch)) => {
                for event in &batch {
                    writer.write(event)?;
                }
                count += batch.len() as u64;
                dirty = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => {
                writer.finish()?;
                return Ok(count);
            }
        }
        if dirty && flushed.elapsed() >= FLUSH_EVERY {
            writer.flush()?;
            flushed = Instant::now();
            dirty = false;
        }
    }
}
