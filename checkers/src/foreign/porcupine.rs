//! The lines that `jepsen.util` logs, as in the etcd histories of Porcupine's test data:
//! `INFO  jepsen.util - 3 :ok :cas [1 2]`.
//!
//! They are read as Porcupine's model reads them: a read of nil found nothing, and a failed
//! compare-and-set found another value than it expected.

use super::collect::{Arg, Collector, Event, Type};
use super::error::ForeignProblem;
use crate::history::lines::{Lines, shorten};
use crate::history::{Outcome, Truncation};
use crate::model::op::{Action, pair};

pub(super) fn read(
    lines: &mut Lines<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<Truncation>, ForeignProblem> {
    super::each_line(lines, collector, |line, collector| {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let not_a_log_line = || ForeignProblem::NotALogLine {
            found: shorten(line),
        };
        let text = std::str::from_utf8(line).map_err(|_| not_a_log_line())?;
        let (_, event) = text
            .split_once("jepsen.util - ")
            .ok_or_else(not_a_log_line)?;
        let mut words = Words(event);
        let process = words.next().ok_or_else(not_a_log_line)?;
        let Ok(process) = process.parse::<i64>() else {
            // The nemesis and others who are no process.
            return if process.starts_with(':') {
                Ok(())
            } else {
                Err(not_a_log_line())
            };
        };
        let kind = words
            .next()
            .and_then(|word| Type::named(word.strip_prefix(':')?))
            .ok_or_else(not_a_log_line)?;
        let name = words
            .next()
            .and_then(|word| word.strip_prefix(':'))
            .ok_or_else(not_a_log_line)?;
        let Some(action) = collector.action(name)? else {
            return Ok(());
        };
        let key = collector.foreign.keys.intern("default");
        let arg = arg(action, kind, words.0.trim(), collector)?;
        collector.push(Event {
            kind,
            process,
            action,
            key,
            arg,
            time_ns: None,
        })
    })
}

/// What is left of a line, word by word.
struct Words<'l>(&'l str);

impl<'l> Words<'l> {
    fn next(&mut self) -> Option<&'l str> {
        let text = self.0.trim_start();
        let end = text
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

fn arg(
    action: Action,
    kind: Type,
    value: &str,
    collector: &mut Collector<'_>,
) -> Result<Arg, ForeignProblem> {
    let values = &mut collector.foreign.values;
    let invoked = kind == Type::Invoke;
    Ok(match action {
        Action::Read if kind == Type::Completion(Outcome::Ok) => {
            Arg::Number(values.intern(value).into())
        }
        Action::Write if invoked => Arg::Number(values.intern(value).into()),
        Action::Cas if invoked => {
            let inner = value
                .strip_prefix('[')
                .and_then(|value| value.strip_suffix(']'));
            let mut two = inner.unwrap_or_default().split_whitespace();
            let (Some(expected), Some(new), None) = (two.next(), two.next(), two.next()) else {
                return Err(ForeignProblem::Field {
                    field: "value",
                    expected: "[expected new]",
                    found: format!("`{}`", shorten(value.as_bytes())),
                });
            };
            Arg::Number(pair(values.intern(expected), values.intern(new)))
        }
        Action::Add if invoked => Arg::Number(values.intern(value).into()),
        Action::Acquire if kind == Type::Completion(Outcome::Ok) => {
            value.parse().map_or(Arg::Absent, Arg::Number)
        }
        Action::ReadAll if kind == Type::Completion(Outcome::Ok) => {
            let inner =
                value.trim_matches(|c| matches!(c, '[' | ']' | '(' | ')' | '#' | '{' | '}'));
            Arg::List(
                inner
                    .split_whitespace()
                    .map(|element| values.intern(element))
                    .collect(),
            )
        }
        _ => Arg::Absent,
    })
}
