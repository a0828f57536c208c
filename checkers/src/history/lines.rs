//! Lines of a file, compressed or not, of bounded length.
//!
//! It tells a stream that merely stops (its recorder was killed) from one that is damaged. It knows
//! nothing of events.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::Problem;

/// The longest line that is read. A final read of some million elements fits.
pub const MAX_LINE_BYTES: usize = 64 << 20;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 * 1024;

/// What the next read gave.
pub(crate) enum Line {
    /// A whole line is in the buffer, without its line feed.
    Whole,
    /// The file ends with these bytes and no line feed.
    Unterminated,
    /// The file ends.
    End,
    /// The compressed stream stops in the middle of its frame; the buffer holds the beginning of a line.
    CutOff,
}

/// A source of lines.
pub(crate) struct Lines<'r> {
    source: Box<dyn BufRead + 'r>,
    compressed: bool,
    /// The line last read.
    pub(crate) buffer: Vec<u8>,
    /// Its number, from 1.
    pub(crate) number: u64,
    /// True once the compressed stream was found to stop in the middle (only [`chunk`](Self::chunk) sets it).
    pub(crate) cut_off: bool,
}

impl<'r> Lines<'r> {
    /// Opens a file; its first bytes say whether it is compressed.
    pub(crate) fn open(path: &Path) -> Result<Lines<'static>, Problem> {
        let file = File::open(path).map_err(Problem::Io)?;
        let expect_zstd = path.extension().is_some_and(|extension| extension == "zst");
        Lines::new(file, expect_zstd)
    }

    /// Reads from any source.
    pub(crate) fn new(source: impl Read + 'r, expect_zstd: bool) -> Result<Self, Problem> {
        let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
        let start = source.fill_buf().map_err(Problem::Io)?;
        if start.is_empty() {
            return Err(Problem::Empty);
        }
        let compressed = start.starts_with(&ZSTD_MAGIC);
        if expect_zstd && !compressed {
            let first = &start[..start.len().min(4)];
            let found = first.iter().map(|b| format!("{b:02x}"));
            return Err(Problem::NotZstd {
                found: found.collect::<Vec<_>>().join(" "),
            });
        }
        let source: Box<dyn BufRead + 'r> = if compressed {
            let decoder = zstd::Decoder::with_buffer(source).map_err(Problem::Io)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(source)
        };
        Ok(Self {
            source,
            compressed,
            buffer: Vec::new(),
            number: 0,
            cut_off: false,
        })
    }

    /// What comes next, at least a byte of it, without taking it.
    pub(crate) fn peek(&mut self) -> Result<&[u8], Problem> {
        self.source.fill_buf().map_err(Problem::Io)
    }

    /// The next bytes, for readers that do not go by lines; `None` at the end. [`consume`](Self::consume)
    /// takes them.
    pub(crate) fn chunk(&mut self) -> Result<Option<&[u8]>, Problem> {
        // The borrow checker refuses to return from within a match on `fill_buf`.
        if let Err(error) = self.source.fill_buf() {
            if self.compressed && error.kind() == io::ErrorKind::UnexpectedEof {
                self.cut_off = true;
                return Ok(None);
            }
            return Err(match self.compressed {
                true => Problem::Corrupt(error),
                false => Problem::Io(error),
            });
        }
        let chunk = self.source.fill_buf().map_err(Problem::Io)?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    /// Takes `bytes` of the chunk.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.source.consume(bytes);
    }

    /// Reads the next line into the buffer.
    pub(crate) fn advance(&mut self) -> Result<Line, Problem> {
        self.buffer.clear();
        self.number += 1;
        match self.read_line() {
            Err(error) if self.compressed && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Line::CutOff);
            }
            Err(error) if self.compressed => return Err(Problem::Corrupt(error)),
            Err(error) => return Err(Problem::Io(error)),
            Ok(()) => {}
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            Ok(Line::Whole)
        } else if self.buffer.is_empty() {
            Ok(Line::End)
        } else if self.buffer.len() > MAX_LINE_BYTES {
            Err(Problem::LineTooLong {
                found: shorten(&self.buffer),
            })
        } else {
            Ok(Line::Unterminated)
        }
    }
}

impl Lines<'_> {
    /// Appends up to a line feed, the end, or a byte more than a line may have.
    fn read_line(&mut self) -> io::Result<()> {
        loop {
            let chunk = match self.source.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            let found = memchr::memchr(b'\n', chunk);
            let room = MAX_LINE_BYTES + 1 - self.buffer.len();
            let wanted = found.map_or(chunk.len(), |place| place + 1);
            let taken = wanted.min(room);
            self.buffer.extend_from_slice(&chunk[..taken]);
            self.source.consume(taken);
            if taken == 0 || found.is_some() || taken < wanted || taken == room {
                return Ok(());
            }
        }
    }
}

/// The beginning of a line, for messages.
pub(crate) fn shorten(line: &[u8]) -> String {
    const SHOWN_CHARS: usize = 120;
    // A character has at most four bytes; more need not be decoded.
    let start = &line[..line.len().min(4 * SHOWN_CHARS)];
    let text = String::from_utf8_lossy(start);
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() || start.len() < line.len() {
        shown.push('…');
    }
    shown
}
