//! Histories that fencepost did not record, and fencepost's own read for one model.
//!
//! Whatever the format, what comes out is a table of [`Op`]s and the names behind its numbers. The format
//! is recognised by the first bytes of the content, never by the file's name. What is accepted is
//! documented in `checkers/HISTORIES.md`. This part reads; it concludes nothing.

mod collect;
mod edn;
mod error;
mod forms;
mod jsonl;
mod mapping;
mod own;
mod porcupine;
mod tables;

use std::io::Read;
use std::path::Path;

pub use error::{ForeignError, ForeignProblem};
pub use mapping::{BadMap, Mapping, Shape};
pub use tables::{Lists, Values};

use crate::history::lines::{Line, Lines};
use crate::history::{Names, Ns};
use crate::model::op::Op;
use collect::Collector;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `history.jsonl.zst` of a fencepost run.
    Fencepost,
    /// Jepsen's `history.edn`: maps or `#jepsen.history.Op`, one after another or in a vector.
    JepsenEdn,
    /// The log lines of `jepsen.util`, as in Porcupine's test data.
    Porcupine,
    /// The minimal JSON lines of `HISTORIES.md`.
    MinimalJsonl,
}

impl Format {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Fencepost => "fencepost history",
            Format::JepsenEdn => "Jepsen EDN",
            Format::Porcupine => "Jepsen log (as in Porcupine's data)",
            Format::MinimalJsonl => "minimal JSON lines",
        }
    }

    /// Recognises a format by how a file begins.
    fn of(start: &[u8]) -> Option<Self> {
        let start = start.trim_ascii_start();
        let dense: Vec<u8> = start
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .take(16)
            .collect();
        if dense.starts_with(b"{\"e\":") {
            Some(Format::Fencepost)
        } else if dense.starts_with(b"{\"") {
            Some(Format::MinimalJsonl)
        } else if start.starts_with(b"INFO") {
            Some(Format::Porcupine)
        } else if matches!(start.first(), Some(b'{' | b'[' | b'(' | b'#' | b';')) {
            Some(Format::JepsenEdn)
        } else {
            None
        }
    }
}

/// How a file is to be understood.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its operations are about.
    pub shape: Shape,
    /// Its names for them.
    pub mapping: Mapping,
    /// True when values are `[key value]` pairs, as those of `jepsen.independent`.
    pub keyed: bool,
}

impl Options {
    /// The usual names.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            mapping: Mapping::default(),
            keyed: false,
        }
    }
}

/// A history as a table.
#[derive(Debug)]
pub struct Foreign {
    /// What it was read as.
    pub format: Format,
    /// Its operations; `id` is the place in the order of invokes (in a fencepost history the number).
    pub ops: Vec<Op>,
    /// Locks, registers or sets.
    pub keys: Names,
    /// Values of registers, elements of sets.
    pub values: Values,
    /// Contents that were read.
    pub lists: Lists,
    /// The line of each operation's invoke; empty for fencepost's own, where `id` says more.
    pub lines: Vec<u32>,
    /// The time of each tick; empty when ticks are times, or nothing is known of them.
    pub times: Vec<Ns>,
    /// The time that witnesses count from.
    pub start_ns: Ns,
    /// True when a failed compare-and-set proves something (Porcupine's data).
    pub failed_cas_observes: bool,
    /// Oddities, with their lines.
    pub warnings: Vec<String>,
    /// Where and why it stops before its end.
    pub truncated: Option<crate::history::Truncation>,
}

impl Foreign {
    /// Reads a file, compressed with zstd or not.
    ///
    /// # Errors
    /// See [`ForeignProblem`]; the error carries what came before.
    pub fn read(path: &Path, options: &Options) -> Result<Self, ForeignError> {
        let lines = Lines::open(path).map_err(|problem| ForeignError::early(path, problem))?;
        read_lines(lines, path, options)
    }

    /// Reads from any source; `name` stands for the file in messages.
    ///
    /// # Errors
    /// See [`ForeignProblem`].
    pub fn read_from(
        source: impl Read + Send,
        name: &str,
        options: &Options,
    ) -> Result<Self, ForeignError> {
        let path = Path::new(name);
        let lines =
            Lines::new(source, false).map_err(|problem| ForeignError::early(path, problem))?;
        read_lines(lines, path, options)
    }

    /// The time of a tick in nanoseconds, if the history tells.
    #[must_use]
    pub fn time_ns(&self, tick: u64) -> Option<Ns> {
        if self.format == Format::Fencepost {
            return Some(tick);
        }
        self.times.get(usize::try_from(tick).ok()?).copied()
    }
}

/// The format of a file, if it is one of ours; for deciding how to read it.
///
/// # Errors
/// When it cannot be opened or decompressed.
pub fn sniff(path: &Path) -> Result<Option<Format>, ForeignError> {
    let fail = |problem| ForeignError::early(path, problem);
    let mut lines = Lines::open(path).map_err(fail)?;
    lines.peek().map(Format::of).map_err(fail)
}

fn read_lines(
    mut lines: Lines<'_>,
    path: &Path,
    options: &Options,
) -> Result<Foreign, ForeignError> {
    let start = lines
        .peek()
        .map_err(|problem| ForeignError::early(path, problem))?;
    let Some(format) = Format::of(start) else {
        let found = crate::history::lines::shorten(start);
        return Err(ForeignError::new(
            path,
            Some(1),
            ForeignProblem::NoFormat { found },
            None,
        ));
    };
    let mut collector = Collector::new(format, options);
    let read = match format {
        Format::Fencepost => own::read(&mut lines, &mut collector),
        Format::JepsenEdn => edn::read(&mut lines, &mut collector),
        Format::Porcupine => porcupine::read(&mut lines, &mut collector),
        Format::MinimalJsonl => jsonl::read(&mut lines, &mut collector),
    };
    match read {
        Ok(truncated) => Ok(collector.finish(truncated)),
        Err(problem) => {
            let line = collector.line.max(1);
            let why = format!("the file cannot be read further: {problem}");
            let partial = collector.finish(Some(crate::history::Truncation { line, why }));
            Err(ForeignError::new(
                path,
                Some(line),
                problem,
                Some(Box::new(partial)),
            ))
        }
    }
}

/// Reads line by line; `take` gets each whole line. Gives where the file was cut off, if it was.
fn each_line(
    lines: &mut Lines<'_>,
    collector: &mut Collector<'_>,
    mut take: impl FnMut(&mut [u8], &mut Collector<'_>) -> Result<(), ForeignProblem>,
) -> Result<Option<crate::history::Truncation>, ForeignProblem> {
    loop {
        let line = lines.advance();
        collector.line = lines.number;
        match line? {
            Line::End => return Ok(None),
            Line::CutOff => return Ok(Some(cut_off(lines.number))),
            Line::Whole => take(lines.line(), collector)?,
            Line::Unterminated => match take(lines.line(), collector) {
                // Half a line is what a killed recorder leaves.
                Err(ForeignProblem::NotJson { .. }) if !collector.is_empty() => {
                    return Ok(Some(cut_off(lines.number)));
                }
                done => done?,
            },
        }
    }
}

fn cut_off(line: u64) -> crate::history::Truncation {
    crate::history::Truncation {
        line,
        why: "the file stops in the middle: its recorder was killed, or the file was cut"
            .to_owned(),
    }
}
