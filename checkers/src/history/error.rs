//! What can be wrong with a history, said so that its reader can do something about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::event::{FORMAT_VERSION, Ns};
use super::lines::MAX_LINE_BYTES;
use super::settled::History;

/// Event kinds by their names in the field `e`, for messages.
pub(super) const KINDS: &str =
    "header, client, invoke, ok, fail, info, lost, access, lease, leader, fault, final, end";

/// What is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file could not be opened or read.
    #[error("cannot be read: {0}; check the path and its permissions")]
    Io(#[source] io::Error),
    /// The file has no byte.
    #[error(
        "the file is empty; a history starts with a header line. The run ended before its first flush: see its log"
    )]
    Empty,
    /// The name ends in `.zst`, the content does not begin like zstd.
    #[error(
        "not a zstd file: expected it to begin with 28 b5 2f fd, found {found}; if it holds plain JSON lines, rename it to end in .jsonl"
    )]
    NotZstd {
        /// The first bytes, in hexadecimal.
        found: String,
    },
    /// The compressed stream is damaged (not merely cut off).
    #[error(
        "the compressed data is damaged here ({0}); copy the file again from where it was recorded, and check that disk"
    )]
    Corrupt(#[source] io::Error),
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error(
        "the line is longer than {} MB, which no event is; is this a fencepost history? It begins with `{found}`",
        MAX_LINE_BYTES >> 20
    )]
    LineTooLong {
        /// Its beginning.
        found: String,
    },
    /// The line is not a JSON object.
    #[error(
        "expected one JSON object, found `{found}` ({detail}); the line was damaged or is not from a fencepost history"
    )]
    NotJson {
        /// The line, shortened.
        found: String,
        /// What the parser said.
        detail: String,
    },
    /// The field `e` is missing or names no kind of event.
    #[error(
        "unknown event kind {kind}: expected `e` to be one of {KINDS}; found `{found}`. If a newer fencepost wrote it, check it with that one"
    )]
    UnknownKind {
        /// What `e` holds.
        kind: String,
        /// The line, shortened.
        found: String,
    },
    /// A field is missing, unknown, or of the wrong type.
    #[error(
        "not a valid `{kind}` event: {detail}; found `{found}`. Correct the line, or check it with the fencepost that wrote it"
    )]
    BadFields {
        /// The event's kind.
        kind: String,
        /// What is wrong with which field.
        detail: String,
        /// The line, shortened.
        found: String,
    },
    /// The first line is not a header.
    #[error(
        "expected a `header` event on the first line, found {found}; without it nothing is known of the run (its TTL, its discipline): put it back"
    )]
    NoHeader {
        /// What stands there.
        found: String,
    },
    /// There is another header.
    #[error("a second `header`; a file holds the history of one trial: split it before this line")]
    SecondHeader,
    /// The format is newer than this program.
    #[error(
        "format {found} is newer than this program knows ({FORMAT_VERSION}); check it with the fencepost that wrote it, or a later one"
    )]
    NewerFormat {
        /// The version in the header.
        found: u32,
    },
    /// An operation number was used before.
    #[error("operation {op} is invoked a second time; operations are numbered once each")]
    RepeatedInvoke {
        /// The operation.
        op: u64,
    },
    /// A completion of an operation that was never invoked.
    #[error(
        "operation {op} completes, but no `invoke` of it comes before; lines are missing or out of order"
    )]
    NoInvoke {
        /// The operation.
        op: u64,
    },
    /// A second completion of one operation.
    #[error("operation {op} completes a second time; every operation has one outcome")]
    SecondCompletion {
        /// The operation.
        op: u64,
    },
    /// A client invokes while another of its operations is open.
    #[error(
        "client {client} invokes operation {op} while its operation {open} is still open; a logical client does one thing at a time"
    )]
    TwoOpen {
        /// The client.
        client: u32,
        /// The new operation.
        op: u64,
        /// The open one.
        open: u64,
    },
    /// A client goes on after an operation of unknown outcome.
    #[error(
        "client {client} invokes operation {op} after its operation {unknown} ended as `info`; it must be retired then, and a new client take its place"
    )]
    Retired {
        /// The client.
        client: u32,
        /// The new operation.
        op: u64,
        /// The one of unknown outcome.
        unknown: u64,
    },
    /// An operation returns before it was invoked.
    #[error(
        "operation {op} returns at {return_ns} ns, before its invoke at {invoke_ns} ns; its stamps are not truth time"
    )]
    Backwards {
        /// The operation.
        op: u64,
        /// Its invoke.
        invoke_ns: Ns,
        /// Its return.
        return_ns: Ns,
    },
}

/// A history that cannot be read to its end, and what came before.
#[derive(Debug, Error)]
#[error("{}{}: {problem}{}", path.display(), at(*line), before(partial.as_deref()))]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, when the problem is in one.
    pub line: Option<u64>,
    /// What is wrong, what was expected, and what to do.
    #[source]
    pub problem: Problem,
    /// Everything up to that line, if there was a header. It can be checked like a truncated history.
    pub partial: Option<Box<History>>,
}

fn at(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn before(partial: Option<&History>) -> String {
    partial.map_or_else(String::new, |history| {
        format!(
            " (what came before was read and can be checked; operations: {})",
            history.operations.len()
        )
    })
}
