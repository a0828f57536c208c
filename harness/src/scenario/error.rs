//! Errors of scenario files, made for the person who wrote the file.
//!
//! Each names the place (file, line, column, with the line shown, or the command-line flag), what was
//! expected, what was found, and where possible what to write instead.

use std::fmt;
use std::ops::Range;

use super::node::Origin;

/// One mistake in a scenario or in an override of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", Rendered(self))]
pub struct ScenarioError {
    /// The scenario file, as given.
    pub file: String,
    /// Where the mistake is.
    pub place: Place,
    /// The key it is about, for instance `workload.ttl`; empty when it is about the whole file.
    pub key: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Names of the arms in which it is a mistake; empty when that is all of them.
    pub arms: Vec<String>,
    /// The overrides without which the file is in order; empty when the file itself is wrong.
    pub overrides: Vec<String>,
}

/// Where a mistake is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a line of the file.
    Line {
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The line itself.
        text: String,
        /// How many characters of the line are meant; at least 1.
        width: usize,
    },
    /// In a command-line flag, as it was given.
    Flag(String),
    /// The file as a whole.
    File,
}

impl Place {
    /// The place of a byte range in `source`. Any range is allowed: one beyond the end means the end.
    pub(super) fn of_span(source: &str, span: &Range<usize>) -> Self {
        let start = floor_char_boundary(source, span.start);
        let end = floor_char_boundary(source, span.end).max(start);
        let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = source[start..]
            .find('\n')
            .map_or(source.len(), |newline| start + newline);
        Self::Line {
            line: source[..line_start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            text: source[line_start..line_end]
                .trim_end_matches('\r')
                .to_owned(),
            width: source[start..end.min(line_end)]
                .trim_end()
                .chars()
                .count()
                .max(1),
        }
    }

    /// For sorting: lines in their order, then the whole file, then flags.
    fn rank(&self) -> (u8, usize, usize) {
        match self {
            Self::Line { line, column, .. } => (0, *line, *column),
            Self::File => (1, 0, 0),
            Self::Flag(_) => (2, 0, 0),
        }
    }
}

fn floor_char_boundary(source: &str, at: usize) -> usize {
    (0..=at.min(source.len()))
        .rev()
        .find(|index| source.is_char_boundary(*index))
        .unwrap_or(0)
}

/// A mistake before its place has been looked up in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) at: Origin,
    pub(super) key: String,
    pub(super) expected: String,
    pub(super) found: String,
    pub(super) hint: Option<String>,
}

impl Problem {
    /// Looks up the place in the source.
    pub(super) fn locate(self, file: &str, source: &str) -> ScenarioError {
        let place = match self.at {
            Origin::File(span) => Place::of_span(source, &span),
            Origin::Flag(flag) => Place::Flag(flag),
        };
        ScenarioError {
            file: file.to_owned(),
            place,
            key: self.key,
            expected: self.expected,
            found: self.found,
            hint: self.hint,
            arms: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

/// Puts errors in the order of the file.
pub(super) fn sort(errors: &mut [ScenarioError]) {
    errors.sort_by_key(|error| error.place.rank());
}

/// All errors as one text, each followed by an empty line, and their number at the end.
#[must_use]
pub fn render(errors: &[ScenarioError]) -> String {
    let mut text: String = errors.iter().map(|error| format!("{error}\n\n")).collect();
    text.push_str(&match errors.len() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    });
    text
}

struct Rendered<'a>(&'a ScenarioError);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        match &error.place {
            Place::Line { line, column, .. } => write!(f, "{}:{line}:{column}: ", error.file)?,
            Place::Flag(flag) => write!(f, "{flag} (for {}): ", error.file)?,
            Place::File => write!(f, "{}: ", error.file)?,
        }
        if !error.key.is_empty() {
            write!(f, "`{}`: ", error.key)?;
        }
        write!(f, "expected {}, found {}", error.expected, error.found)?;
        let margin = match &error.place {
            Place::Line {
                line,
                column,
                text,
                width,
            } => caret(f, *line, *column, text, *width)?,
            Place::Flag(_) | Place::File => 1,
        };
        let mut note = |label: &str, text: &str| write!(f, "\n{:margin$} = {label}: {text}", "");
        if let Some(hint) = &error.hint {
            note("hint", hint)?;
        }
        if !error.arms.is_empty() {
            let arms: Vec<String> = error.arms.iter().map(|arm| format!("\"{arm}\"")).collect();
            note("only in arm", &arms.join(", "))?;
        }
        if !error.overrides.is_empty() {
            note("caused by", &error.overrides.join(" "))?;
        }
        Ok(())
    }
}

/// Shows the line with its number and marks the place; returns the width of the number.
fn caret(
    f: &mut fmt::Formatter<'_>,
    line: usize,
    column: usize,
    text: &str,
    width: usize,
) -> Result<usize, fmt::Error> {
    let margin = line.to_string().len();
    // Tabs are kept so that the mark stands under what it marks however wide they are shown.
    let pad: String = text
        .chars()
        .take(column - 1)
        .map(|c| if c == '\t' { '\t' } else { ' ' })
        .collect();
    write!(
        f,
        "\n{:margin$} |\n{line} | {text}\n{:margin$} | {pad}{}",
        "",
        "",
        "^".repeat(width)
    )?;
    Ok(margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_and_survive_any_range() {
        let source = "a = 1\r\nü = \"x\"\n";
        let place = Place::of_span(source, &(12..15));
        let Place::Line {
            line,
            column,
            text,
            width,
        } = place
        else {
            panic!("a line")
        };
        assert_eq!((line, column, text.as_str(), width), (2, 5, "ü = \"x\"", 3));
        for start in 0..24 {
            for end in 0..24 {
                let _ = Place::of_span(source, &(start..end));
            }
        }
        let _ = Place::of_span("", &(3..9));
    }
}
