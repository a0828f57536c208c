//! Minimal JSON lines: what somebody writes who records a lock or register of their own. See
//! `checkers/HISTORIES.md`.
//!
//! A form made for fencepost has no excuse for guessing: unknown fields and times that go back are errors.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;

use super::collect::{Arg, Collector, Event, Type};
use super::error::ForeignProblem;
use super::tables::Values;
use crate::history::lines::{Lines, shorten};
use crate::history::{Outcome, Truncation};
use crate::model::op::{Action, pair};

/// One line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    process: i64,
    r#type: String,
    f: String,
    #[serde(default)]
    key: Option<String>,
    /// Absent and `null` are different: not known, and nothing there.
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    #[serde(default)]
    token: Option<u64>,
    #[serde(default)]
    time_ns: Option<i64>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(super) fn read(
    lines: &mut Lines<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<Truncation>, ForeignProblem> {
    super::each_line(lines, collector, |line, collector| {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let row: Row = serde_json::from_slice(line).map_err(|error| {
            let found = shorten(line);
            let detail = error.to_string();
            let detail = detail
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned();
            match error.classify() {
                Category::Data => ForeignProblem::BadFields { found, detail },
                _ => ForeignProblem::NotJson { found, detail },
            }
        })?;
        take(row, collector)
    })
}

fn take(row: Row, collector: &mut Collector<'_>) -> Result<(), ForeignProblem> {
    let Some(kind) = Type::named(&row.r#type) else {
        return Err(ForeignProblem::Field {
            field: "type",
            expected: "one of invoke, ok, fail, info",
            found: format!("`{}`", row.r#type),
        });
    };
    let Some(action) = collector.action(&row.f)? else {
        return Ok(());
    };
    if let (Some(found), Some(before)) = (row.time_ns, collector.last_time())
        && found < before
    {
        return Err(ForeignProblem::OutOfOrder {
            what: "time_ns",
            found,
            before,
        });
    }
    let key = collector
        .foreign
        .keys
        .intern(row.key.as_deref().unwrap_or("default"));
    let arg = if action == Action::Acquire {
        row.token.map_or(Arg::Absent, Arg::Number)
    } else {
        arg(action, kind, row.value, &mut collector.foreign.values)?
    };
    collector.push(Event {
        kind,
        process: row.process,
        action,
        key,
        arg,
        time_ns: row.time_ns,
    })
}

fn arg(
    action: Action,
    kind: Type,
    value: Option<Value>,
    values: &mut Values,
) -> Result<Arg, ForeignProblem> {
    let invoked = kind == Type::Invoke;
    let Some(value) = value else {
        return Ok(Arg::Absent);
    };
    Ok(match action {
        Action::Read | Action::ReadAll if kind != Type::Completion(Outcome::Ok) => Arg::Absent,
        Action::Write | Action::Cas | Action::Add if !invoked => Arg::Absent,
        Action::Read | Action::Write | Action::Add => Arg::Number(number(&value, values).into()),
        Action::Cas => match value.as_array().map(Vec::as_slice) {
            Some([expected, new]) => {
                let expected = number(expected, values);
                Arg::Number(pair(expected, number(new, values)))
            }
            _ => return Err(bad_value("[expected, new]", &value)),
        },
        Action::ReadAll => match value.as_array() {
            Some(elements) => Arg::List(
                elements
                    .iter()
                    .map(|element| number(element, values))
                    .collect(),
            ),
            None => return Err(bad_value("an array of elements", &value)),
        },
        Action::Acquire | Action::Release => Arg::Absent,
    })
}

fn number(value: &Value, values: &mut Values) -> u32 {
    match value {
        Value::Null => Values::NIL,
        other => values.intern(&other.to_string()),
    }
}

fn bad_value(expected: &'static str, found: &Value) -> ForeignProblem {
    ForeignProblem::Field {
        field: "value",
        expected,
        found: format!("`{}`", shorten(found.to_string().as_bytes())),
    }
}
