//! Writing a history: JSON lines in one zstd frame.
//!
//! The writer is fast enough to stay out of the way and honest about what is safe: after
//! [`HistoryWriter::flush`] everything written so far can be decoded, even if the process is killed
//! in the next instant. It knows nothing of files, clocks or threads; the recorder does.

use std::io::{self, Write};

use super::encode::encode;
use super::event::Event;

/// Compression level: the fastest of the ordinary ones; a history shrinks to about a tenth already.
const ZSTD_LEVEL: i32 = 1;

/// Lines are handed to the compressor in pieces of this size: a call for each line would cost more
/// than encoding it.
const BATCH_BYTES: usize = 64 * 1024;

/// Writes events as `history.jsonl.zst`.
pub struct HistoryWriter<W: Write> {
    compressor: zstd::Encoder<'static, W>,
    pending: Vec<u8>,
}

impl<W: Write> HistoryWriter<W> {
    /// Starts a history in `sink`.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn new(sink: W) -> io::Result<Self> {
        let mut compressor = zstd::Encoder::new(sink, ZSTD_LEVEL)?;
        compressor.include_checksum(true)?;
        Ok(Self {
            compressor,
            pending: Vec::with_capacity(BATCH_BYTES + 4096),
        })
    }

    /// Appends one event. It is safe only after the next [`flush`](Self::flush) or
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// When the sink refuses the data.
    pub fn write(&mut self, event: &Event) -> io::Result<()> {
        encode(event, &mut self.pending)?;
        if self.pending.len() >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Makes everything written so far decodable from what is in the sink.
    ///
    /// # Errors
    /// When the sink refuses the data.
    pub fn flush(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.compressor.flush()
    }

    /// Ends the frame and gives the sink back.
    ///
    /// # Errors
    /// When the sink refuses the data.
    pub fn finish(mut self) -> io::Result<W> {
        self.hand_over()?;
        let mut sink = self.compressor.finish()?;
        sink.flush()?;
        Ok(sink)
    }

    fn hand_over(&mut self) -> io::Result<()> {
        self.compressor.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}
