//! Reading a history from a file, from events, or from any source of bytes.
//!
//! A history whose recorder was killed is a good history up to that point, and says where it stops
//! ([`History::truncated`]). Anything else that is wrong is an error with its line; the error carries
//! what came before.

use std::io::Read;
use std::path::Path;

use super::decode::by_serde;
use super::error::{Problem, ReadError};
use super::event::Event;
use super::hot::hot;
use super::lines::{Line, Lines};
use super::settle::Settler;
use super::settled::{History, Truncation};

const CUT_OFF: &str =
    "the compressed stream stops in the middle: its recorder was killed, or the file was cut";
const HALF_A_LINE: &str =
    "the last line is only half there: its recorder was killed, or the file was cut";
const NO_END: &str = "there is no `end` event: its recorder was killed, or the file was cut";

impl History {
    /// Reads `history.jsonl.zst`, or plain JSON lines.
    ///
    /// # Errors
    /// See [`Problem`]; the error names the file and the line.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let fail = |problem| ReadError {
            path: path.to_owned(),
            line: None,
            problem,
            partial: None,
        };
        let lines = Lines::open(path).map_err(fail)?;
        read_lines(lines, path)
    }

    /// Reads from any source, compressed or plain; `name` stands for the file in messages.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn read_from(source: impl Read + Send, name: &str) -> Result<Self, ReadError> {
        let path = Path::new(name);
        let lines = Lines::new(source, false).map_err(|problem| ReadError {
            path: path.to_owned(),
            line: None,
            problem,
            partial: None,
        })?;
        read_lines(lines, path)
    }

    /// Settles events that are in memory.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn from_events(events: impl IntoIterator<Item = Event>) -> Result<Self, Problem> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(Problem::Empty)?;
        let mut settler = Settler::new(first)?;
        let mut line = 1;
        for event in events {
            line += 1;
            settler.push(event, line)?;
        }
        let truncated = (!settler.ended()).then(|| truncation(line + 1, NO_END));
        Ok(settler.finish(truncated))
    }
}

fn truncation(line: u64, why: &str) -> Truncation {
    Truncation {
        line,
        why: why.to_owned(),
    }
}

fn read_lines(mut lines: Lines<'_>, path: &Path) -> Result<History, ReadError> {
    let mut settler = None;
    let stop = loop {
        match step(&mut lines, &mut settler) {
            Ok(None) => {}
            Ok(Some(stop)) => break stop,
            Err(problem) => {
                let line = lines.number;
                let partial = settler.map(|settler: Settler| {
                    let why = format!("the file cannot be read further: {problem}");
                    Box::new(settler.finish(Some(truncation(line, &why))))
                });
                return Err(ReadError {
                    path: path.to_owned(),
                    line: Some(line),
                    problem,
                    partial,
                });
            }
        }
    };
    let Some(settler) = settler else {
        return Err(ReadError {
            path: path.to_owned(),
            line: Some(1),
            problem: Problem::NoHeader {
                found: "the end of the file".to_owned(),
            },
            partial: None,
        });
    };
    let truncated = match stop {
        Stop::End if settler.ended() => None,
        Stop::End => Some(truncation(lines.number, NO_END)),
        Stop::Early(why) => Some(truncation(lines.number, why)),
    };
    Ok(settler.finish(truncated))
}

enum Stop {
    End,
    Early(&'static str),
}

/// Reads one line and takes its event; `Some` when there is no more.
fn step(lines: &mut Lines<'_>, settler: &mut Option<Settler>) -> Result<Option<Stop>, Problem> {
    let unterminated = match lines.advance()? {
        Line::End => return Ok(Some(Stop::End)),
        Line::CutOff => return Ok(Some(Stop::Early(CUT_OFF))),
        Line::Whole => false,
        Line::Unterminated => true,
    };
    let number = lines.number;
    if let (Some(settler), Some(hot)) = (settler.as_mut(), hot(lines.line())) {
        settler.push_hot(hot, number)?;
        return Ok(None);
    }
    let event = match by_serde(lines.line()) {
        Ok(event) => event,
        // Half a line is never whole JSON; only a killed recorder leaves one.
        Err(Problem::NotJson { .. }) if unterminated && settler.is_some() => {
            return Ok(Some(Stop::Early(HALF_A_LINE)));
        }
        Err(problem) => return Err(problem),
    };
    match settler {
        Some(settler) => settler.push(event, lines.number)?,
        None => *settler = Some(Settler::new(event)?),
    }
    Ok(None)
}
