//! What can be wrong with a foreign history.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Foreign;
use crate::history::Problem;

/// What is wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ForeignProblem {
    /// The file itself: unreadable, damaged, a line too long, a bad fencepost event.
    #[error(transparent)]
    File(#[from] Problem),
    /// It begins like no format we know.
    #[error(
        "expected a history (fencepost, Jepsen EDN, a Jepsen log or minimal JSON lines; see checkers/HISTORIES.md), found `{found}`"
    )]
    NoFormat {
        /// Its beginning.
        found: String,
    },
    /// A form is no EDN.
    #[error("expected an EDN form, found `{found}` ({detail}); the file was damaged or is not EDN")]
    NotEdn {
        /// The form, shortened.
        found: String,
        /// What the parser said.
        detail: String,
    },
    /// A form does not end.
    #[error(
        "the form that begins here does not end: a bracket or a quotation mark is missing; `{found}`"
    )]
    OpenForm {
        /// Its beginning.
        found: String,
    },
    /// A form is longer than any operation.
    #[error(
        "the form that begins here is longer than {} MB, which no operation is; it begins with `{found}`",
        super::forms::MAX_FORM_BYTES >> 20
    )]
    LongForm {
        /// Its beginning.
        found: String,
    },
    /// A tag that stands for no operation.
    #[error(
        "expected an operation: a map, or one tagged `#jepsen.history.Op` or `#knossos.op.Op`; found tag `#{tag}`. Remove the form, or write it as a plain map"
    )]
    Tag {
        /// The tag.
        tag: String,
    },
    /// A line is no JSON object.
    #[error("expected one JSON object, found `{found}` ({detail})")]
    NotJson {
        /// The line, shortened.
        found: String,
        /// What the parser said.
        detail: String,
    },
    /// A JSON object with a field that is missing, unknown or of the wrong type.
    #[error("{detail}; found `{found}`. The fields are described in checkers/HISTORIES.md")]
    BadFields {
        /// The line, shortened.
        found: String,
        /// What is wrong with which field.
        detail: String,
    },
    /// A log line that is none of an operation.
    #[error("expected `INFO jepsen.util - PROCESS :TYPE :F VALUE`, found `{found}`")]
    NotALogLine {
        /// The line, shortened.
        found: String,
    },
    /// A field is missing or of the wrong type.
    #[error("expected {expected} in field `{field}`, found {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What should be there.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// An operation that the model does not have.
    #[error(
        "operation `{found}` is none of this model's ({expected}); map it with --map OURS={found}, or leave it out with --map ignore={found}"
    )]
    Function {
        /// Its name.
        found: String,
        /// The model's.
        expected: String,
    },
    /// Time or index goes back.
    #[error(
        "{what} {found} comes after {before}; operations are out of order: sort the file by the order in which they happened"
    )]
    OutOfOrder {
        /// `time` or `index`.
        what: &'static str,
        /// The smaller one, here.
        found: i64,
        /// The larger one, before.
        before: i64,
    },
    /// A completion of a process that has nothing open.
    #[error("process {process} completes, but it has no operation open; its invoke is missing")]
    NoInvoke {
        /// The process.
        process: i64,
    },
    /// A completion of another operation than the open one.
    #[error(
        "process {process} completes `{found}`, but `{open}` is the operation that it has open"
    )]
    OtherOperation {
        /// The process.
        process: i64,
        /// What completes.
        found: &'static str,
        /// What is open.
        open: &'static str,
    },
    /// A process does two things at once.
    #[error(
        "process {process} invokes an operation while the one of line {open_line} is still open; a process does one thing at a time"
    )]
    TwoOpen {
        /// The process.
        process: i64,
        /// Where the open one was invoked.
        open_line: u64,
    },
    /// A process goes on after an unknown outcome.
    #[error(
        "process {process} invokes an operation after one of unknown outcome (line {unknown_line}); a process ends there, and a new one takes its place"
    )]
    Retired {
        /// The process.
        process: i64,
        /// Where the unknown one was invoked.
        unknown_line: u64,
    },
    /// The operation is of no use for the format.
    #[error(
        "a fencepost history is read for a lock model only; without --model every check that applies is run on it, `register` and `lost-writes` among them"
    )]
    OwnShape,
    /// More operations than can be numbered.
    #[error("more than 4,294,967,295 operations")]
    TooMany,
}

/// A history that cannot be read to its end, and what came before.
#[derive(Debug, Error)]
#[error("{}{}: {problem}{}", path.display(), at(*line), before(partial.as_deref()))]
pub struct ForeignError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1, when the problem is in one.
    pub line: Option<u64>,
    /// What is wrong.
    #[source]
    pub problem: ForeignProblem,
    /// Everything before it, which can be checked like a truncated history.
    pub partial: Option<Box<Foreign>>,
}

impl ForeignError {
    pub(super) fn new(
        path: &Path,
        line: Option<u64>,
        problem: ForeignProblem,
        partial: Option<Box<Foreign>>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            line,
            problem,
            partial,
        }
    }

    pub(super) fn early(path: &Path, problem: Problem) -> Self {
        Self::new(path, None, ForeignProblem::File(problem), None)
    }
}

fn at(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

fn before(partial: Option<&Foreign>) -> String {
    partial.map_or_else(String::new, |foreign| {
        format!(
            " (what came before was read and can be checked; operations: {})",
            foreign.ops.len()
        )
    })
}
