//! Bytes of a file, decompressed where they are compressed, a chunk at a time.
//!
//! Decompression takes a third of the time that reading a history takes, so a large file has a thread of
//! its own for it: the one that parses finds the next chunk ready. It knows nothing of lines.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::error::Problem;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Fits the second-level cache of one core, so that what was decompressed is parsed from there.
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks that are decompressed ahead of the parser.
const AHEAD: usize = 4;
/// A smaller file is decompressed before a thread would have started.
const WORTH_A_THREAD_BYTES: u64 = 256 * 1024;

/// A source of chunks.
pub(super) struct Feed<'r> {
    source: Source<'r>,
    /// Whether the file is compressed: a stream that stops in the middle can then be told from one that ends.
    pub(super) compressed: bool,
}

enum Source<'r> {
    /// Read by whoever asks.
    Here(Filler<Box<dyn Read + Send + 'r>>),
    /// Read by a thread, which ends with this end of its channels.
    Ahead {
        filled: Receiver<io::Result<Vec<u8>>>,
        used: Sender<Vec<u8>>,
    },
}

impl Feed<'static> {
    /// Reads a file.
    pub(super) fn of_file(file: File, expect_zstd: bool) -> Result<Self, Problem> {
        let large = file
            .metadata()
            .is_ok_and(|metadata| metadata.len() >= WORTH_A_THREAD_BYTES);
        let (source, compressed) = decompressed(file, expect_zstd)?;
        let source = match compressed && large {
            true => ahead(Filler::new(source)).map_err(Problem::Io)?,
            false => Source::Here(Filler::new(source)),
        };
        Ok(Self { source, compressed })
    }
}

impl<'r> Feed<'r> {
    /// Reads any source, on the thread that asks.
    pub(super) fn of(source: impl Read + Send + 'r, expect_zstd: bool) -> Result<Self, Problem> {
        let (source, compressed) = decompressed(source, expect_zstd)?;
        Ok(Self {
            source: Source::Here(Filler::new(source)),
            compressed,
        })
    }

    /// Replaces the chunk by the next one, which is empty at the end.
    pub(super) fn next(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.source {
            Source::Here(filler) => filler.fill(chunk),
            Source::Ahead { filled, used } => {
                // A thread that has sent its last chunk needs no more room.
                let _ = used.send(std::mem::take(chunk));
                match filled.recv() {
                    Ok(next) => *chunk = next?,
                    Err(_) => chunk.clear(),
                }
                Ok(())
            }
        }
    }
}

/// The source's bytes as they were before compression, and whether there was any.
fn decompressed<'r>(
    mut source: impl Read + Send + 'r,
    expect_zstd: bool,
) -> Result<(Box<dyn Read + Send + 'r>, bool), Problem> {
    let mut start = [0; ZSTD_MAGIC.len()];
    let mut known = 0;
    while known < start.len() {
        match source.read(&mut start[known..]) {
            Ok(0) => break,
            Ok(count) => known += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Problem::Io(error)),
        }
    }
    if known == 0 {
        return Err(Problem::Empty);
    }
    let compressed = start == ZSTD_MAGIC;
    if expect_zstd && !compressed {
        let found = start[..known].iter().map(|b| format!("{b:02x}"));
        return Err(Problem::NotZstd {
            found: found.collect::<Vec<_>>().join(" "),
        });
    }
    let whole = Cursor::new(start).take(known as u64).chain(source);
    if !compressed {
        return Ok((Box::new(whole), false));
    }
    let buffered = BufReader::with_capacity(CHUNK_BYTES, whole);
    let decoder = zstd::Decoder::with_buffer(buffered).map_err(Problem::Io)?;
    Ok((Box::new(decoder), true))
}

/// Starts the thread that reads ahead.
fn ahead(mut filler: Filler<Box<dyn Read + Send>>) -> io::Result<Source<'static>> {
    let (to_parser, filled) = sync_channel(AHEAD);
    let (used, from_parser) = channel();
    thread::Builder::new()
        .name("inflate".to_owned())
        .spawn(move || read_ahead(&mut filler, &to_parser, &from_parser))?;
    Ok(Source::Ahead { filled, used })
}

fn read_ahead(
    filler: &mut Filler<Box<dyn Read + Send>>,
    to_parser: &SyncSender<io::Result<Vec<u8>>>,
    from_parser: &Receiver<Vec<u8>>,
) {
    loop {
        let mut chunk = from_parser.try_recv().unwrap_or_default();
        let filled = filler.fill(&mut chunk).map(|()| chunk);
        let last = filled.as_ref().map_or(true, Vec::is_empty);
        // Nobody listens any more when the parser has found a mistake.
        if to_parser.send(filled).is_err() || last {
            return;
        }
    }
}

/// Fills chunks from a source. What comes before a failure is not lost: it is a chunk of its own.
struct Filler<R> {
    source: R,
    failed: Option<io::Error>,
}

impl<R: Read> Filler<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            failed: None,
        }
    }

    /// Reads until the chunk is full or the source ends or fails.
    fn fill(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        chunk.resize(CHUNK_BYTES, 0);
        let mut known = 0;
        while known < chunk.len() {
            match self.source.read(&mut chunk[known..]) {
                Ok(0) => break,
                Ok(count) => known += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if known == 0 => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        chunk.truncate(known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, then a failure, then bytes that must not be read as if nothing had happened.
    struct Failing(Vec<&'static [u8]>);

    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.pop() {
                Some(b"") => Err(io::Error::other("broken")),
                Some(bytes) => {
                    into[..bytes.len()].copy_from_slice(bytes);
                    Ok(bytes.len())
                }
                None => Ok(0),
            }
        }
    }

    fn chunks(mut feed: Feed<'_>) -> (Vec<u8>, Option<String>) {
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        loop {
            match feed.next(&mut chunk) {
                Ok(()) if chunk.is_empty() => return (all, None),
                Ok(()) => all.extend_from_slice(&chunk),
                Err(error) => return (all, Some(error.to_string())),
            }
        }
    }

    #[test]
    fn what_comes_before_a_failure_is_kept() {
        let source = Failing(vec![b"more", b"", b"n", b"begi"]);
        let feed = Feed::of(source, false).unwrap_or_else(|error| panic!("{error}"));
        let (all, failed) = chunks(feed);
        assert_eq!(all, b"begin");
        assert_eq!(failed.as_deref(), Some("broken"));
    }

    #[test]
    fn a_thread_reads_what_the_caller_would_have_read() {
        let text: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = zstd::encode_all(&text[..], 1).unwrap();
        assert!(packed.len() as u64 > WORTH_A_THREAD_BYTES);
        let cut = &packed[..packed.len() - 100];
        for (bytes, whole) in [(&packed[..], true), (cut, false)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            let open = || File::open(file.path()).unwrap();
            let ahead = Feed::of_file(open(), true).unwrap_or_else(|error| panic!("{error}"));
            assert!(matches!(ahead.source, Source::Ahead { .. }));
            let here = Feed::of(open(), true).unwrap_or_else(|error| panic!("{error}"));
            let (ahead, here) = (chunks(ahead), chunks(here));
            assert_eq!(ahead, here);
            assert_eq!((ahead.0 == text, ahead.1.is_none()), (whole, whole));
        }
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_thread() {
        let endless: Box<dyn Read + Send> = Box::new(io::repeat(7));
        let mut filler = Filler::new(endless);
        let (to_parser, filled) = sync_channel(AHEAD);
        let (used, from_parser) = channel();
        let thread = thread::spawn(move || read_ahead(&mut filler, &to_parser, &from_parser));
        assert!(!filled.recv().unwrap().unwrap().is_empty());
        drop((filled, used));
        thread.join().expect("it ends instead of waiting for ever");
    }
}
