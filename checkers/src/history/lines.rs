//! Lines of a file, compressed or not, of bounded length.
//!
//! It tells a stream that merely stops (its recorder was killed) from one that is damaged. It knows
//! nothing of events. A line that lies within a chunk of the file is not copied.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use super::error::Problem;
use super::feed::Feed;

/// The longest line that is read. A final read of some million elements fits.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// What the next read gave.
pub(crate) enum Line {
    /// A whole line is there, without its line feed.
    Whole,
    /// The file ends with these bytes and no line feed.
    Unterminated,
    /// The file ends.
    End,
    /// The compressed stream stops in the middle of its frame; the beginning of a line may be there.
    CutOff,
}

/// A source of lines.
pub(crate) struct Lines<'r> {
    feed: Feed<'r>,
    chunk: Vec<u8>,
    /// What of the chunk was not taken yet.
    rest: usize,
    /// Where in the chunk the line last read is; it is in `spilled` if it began in another one.
    within: Option<Range<usize>>,
    spilled: Vec<u8>,
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
        Feed::of_file(file, expect_zstd).map(Lines::from)
    }

    /// Reads from any source.
    pub(crate) fn new(source: impl Read + Send + 'r, expect_zstd: bool) -> Result<Self, Problem> {
        Feed::of(source, expect_zstd).map(Self::from)
    }

    /// The line last read.
    pub(crate) fn line(&mut self) -> &mut [u8] {
        match &self.within {
            Some(range) => &mut self.chunk[range.clone()],
            None => &mut self.spilled,
        }
    }

    /// What comes next, at least a byte of it unless it is the end, without taking it.
    pub(crate) fn peek(&mut self) -> Result<&[u8], Problem> {
        self.refill().map_err(Problem::Io)?;
        Ok(&self.chunk[self.rest..])
    }

    /// The next bytes, for readers that do not go by lines; `None` at the end. [`consume`](Self::consume)
    /// takes them.
    pub(crate) fn chunk(&mut self) -> Result<Option<&[u8]>, Problem> {
        if let Err(error) = self.refill() {
            if self.feed.compressed && error.kind() == io::ErrorKind::UnexpectedEof {
                self.cut_off = true;
                return Ok(None);
            }
            return Err(self.broken(error));
        }
        let rest = &self.chunk[self.rest..];
        Ok((!rest.is_empty()).then_some(rest))
    }

    /// Takes `bytes` of the chunk.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.rest += bytes;
    }

    /// Reads the next line.
    pub(crate) fn advance(&mut self) -> Result<Line, Problem> {
        self.number += 1;
        self.spilled.clear();
        // Nearly every line ends in the chunk that it begins in.
        if let Some(length) = memchr::memchr(b'\n', &self.chunk[self.rest..]) {
            self.within = Some(self.rest..self.rest + length);
            self.rest += length + 1;
            return Ok(Line::Whole);
        }
        self.within = None;
        match self.spill() {
            Err(error) if self.feed.compressed && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Line::CutOff);
            }
            Err(error) => return Err(self.broken(error)),
            Ok(()) => {}
        }
        if self.spilled.last() == Some(&b'\n') {
            self.spilled.pop();
            Ok(Line::Whole)
        } else if self.spilled.is_empty() {
            Ok(Line::End)
        } else if self.spilled.len() > MAX_LINE_BYTES {
            Err(Problem::LineTooLong {
                found: shorten(&self.spilled),
            })
        } else {
            Ok(Line::Unterminated)
        }
    }

    /// Collects up to a line feed, the end, or a byte more than a line may have.
    fn spill(&mut self) -> io::Result<()> {
        loop {
            self.refill()?;
            let rest = &self.chunk[self.rest..];
            let found = memchr::memchr(b'\n', rest);
            let room = MAX_LINE_BYTES + 1 - self.spilled.len();
            let wanted = found.map_or(rest.len(), |place| place + 1);
            let taken = wanted.min(room);
            self.spilled.extend_from_slice(&rest[..taken]);
            self.rest += taken;
            if taken == 0 || found.is_some() || taken < wanted || taken == room {
                return Ok(());
            }
        }
    }

    /// Sees to it that something is left in the chunk, unless the file is at its end.
    fn refill(&mut self) -> io::Result<()> {
        if self.rest == self.chunk.len() {
            self.rest = 0;
            self.chunk.clear();
            self.feed.next(&mut self.chunk)?;
        }
        Ok(())
    }

    fn broken(&self, error: io::Error) -> Problem {
        if self.feed.compressed {
            Problem::Corrupt(error)
        } else {
            Problem::Io(error)
        }
    }
}

impl<'r> From<Feed<'r>> for Lines<'r> {
    fn from(feed: Feed<'r>) -> Self {
        Self {
            feed,
            chunk: Vec::new(),
            rest: 0,
            within: None,
            spilled: Vec::new(),
            number: 0,
            cut_off: false,
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
