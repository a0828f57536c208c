//! Jepsen's EDN: operations as maps, plain or tagged, one after another or in a vector.

use clojure_reader::edn::{self, Edn};

use super::collect::{Arg, Collector, Event, Type};
use super::error::ForeignProblem;
use super::forms::{Forms, Found};
use super::tables::Values;
use crate::history::Truncation;
use crate::history::lines::{Lines, shorten};
use crate::model::op::{Action, pair};

/// Tags that stand for an operation.
const OP_TAGS: [&str; 2] = ["jepsen.history.Op", "knossos.op.Op"];

pub(super) fn read(
    lines: &mut Lines<'_>,
    collector: &mut Collector<'_>,
) -> Result<Option<Truncation>, ForeignProblem> {
    let mut forms = Forms::new();
    let mut last_index = None;
    loop {
        let found = forms.advance(lines);
        collector.line = forms.line;
        match found? {
            Found::End => return Ok(None),
            Found::CutOff => return Ok(Some(super::cut_off(forms.line))),
            Found::Form => {}
        }
        if forms.buffer.starts_with(b"#_") {
            continue;
        }
        let not_edn = |detail: String| ForeignProblem::NotEdn {
            found: shorten(&forms.buffer),
            detail,
        };
        let text =
            std::str::from_utf8(&forms.buffer).map_err(|error| not_edn(error.to_string()))?;
        let form = edn::read_string(text).map_err(|error| not_edn(format!("{:?}", error.code)))?;
        take(&form, collector, &mut last_index).map_err(|problem| match problem {
            // Which form it was is of more use than how it was printed.
            ForeignProblem::NotEdn { detail, .. } => not_edn(detail),
            other => other,
        })?;
    }
}

/// Takes one operation; those of the nemesis and of anybody else who is no process are passed over.
fn take(
    form: &Edn<'_>,
    collector: &mut Collector<'_>,
    last_index: &mut Option<i64>,
) -> Result<(), ForeignProblem> {
    let form = match form {
        Edn::Tagged(tag, inner) if OP_TAGS.contains(&tag.as_ref()) => &**inner,
        Edn::Tagged(tag, _) => {
            return Err(ForeignProblem::Tag {
                tag: tag.to_string(),
            });
        }
        plain => plain,
    };
    if !matches!(form, Edn::Map(_)) {
        let detail = "an operation is a map with :process, :type and :f".to_owned();
        return Err(ForeignProblem::NotEdn {
            found: String::new(),
            detail,
        });
    }
    let Some(&Edn::Int(process)) = get(form, "process") else {
        return match get(form, "process") {
            Some(Edn::Key(_) | Edn::Symbol(_)) => Ok(()),
            other => Err(field(
                "process",
                "a number or a name such as :nemesis",
                other,
            )),
        };
    };
    let kind = keyword(get(form, "type")).and_then(Type::named);
    let Some(kind) = kind else {
        return Err(field(
            "type",
            "one of :invoke, :ok, :fail, :info",
            get(form, "type"),
        ));
    };
    let Some(name) = keyword(get(form, "f")) else {
        return Err(field("f", "a keyword", get(form, "f")));
    };
    let Some(action) = collector.action(name)? else {
        return Ok(());
    };
    if let Some(&Edn::Int(index)) = get(form, "index")
        && let Some(before) = last_index.replace(index)
        && index < before
    {
        return Err(ForeignProblem::OutOfOrder {
            what: "index",
            found: index,
            before,
        });
    }
    let time_ns = match get(form, "time") {
        Some(&Edn::Int(time_ns)) => Some(time_ns),
        _ => None,
    };
    let (key, value) = key_and_value(get(form, "value"), collector)?;
    let arg = arg(action, kind, value, collector)?;
    collector.push(Event {
        kind,
        process,
        action,
        key,
        arg,
        time_ns,
    })
}

fn key_and_value<'f, 'e>(
    value: Option<&'f Edn<'e>>,
    collector: &mut Collector<'_>,
) -> Result<(u32, Option<&'f Edn<'e>>), ForeignProblem> {
    if !collector.options.keyed {
        return Ok((collector.foreign.keys.intern("default"), value));
    }
    match value {
        Some(Edn::Vector(pair)) if pair.len() == 2 => {
            let key = collector.foreign.keys.intern(&pair[0].to_string());
            Ok((key, Some(&pair[1])))
        }
        other => Err(field(
            "value",
            "[key value], as the history is said to be keyed",
            other,
        )),
    }
}

fn arg(
    action: Action,
    kind: Type,
    value: Option<&Edn<'_>>,
    collector: &mut Collector<'_>,
) -> Result<Arg, ForeignProblem> {
    let value = value.filter(|value| !matches!(value, Edn::Nil));
    let observes = matches!(action, Action::Acquire | Action::Read | Action::ReadAll);
    let invoked = kind == Type::Invoke;
    let Some(value) = value else {
        return Ok(Arg::Absent);
    };
    if observes && invoked {
        return Ok(Arg::Absent);
    }
    match action {
        Action::Release => Ok(Arg::Absent),
        Action::Acquire => Ok(token(value).map_or(Arg::Absent, Arg::Number)),
        Action::Read | Action::Write | Action::Add => {
            // After a failure the value may be anything, such as :timed-out; nobody uses it.
            Ok(Arg::Number(
                number(value, &mut collector.foreign.values).into(),
            ))
        }
        Action::Cas => match value {
            Edn::Vector(two) | Edn::List(two) if two.len() == 2 => {
                let values = &mut collector.foreign.values;
                let expected = number(&two[0], values);
                let new = number(&two[1], values);
                Ok(Arg::Number(pair(expected, new)))
            }
            _ if !invoked => Ok(Arg::Absent),
            other => Err(field("value", "[expected new]", Some(other))),
        },
        Action::ReadAll => {
            let values = &mut collector.foreign.values;
            let list: Vec<u32> = match value {
                Edn::Vector(elements) | Edn::List(elements) => {
                    elements.iter().map(|e| number(e, values)).collect()
                }
                Edn::Set(elements) => elements.iter().map(|e| number(e, values)).collect(),
                // A set that holds an element twice would not be readable as a set.
                _ if kind != Type::Completion(crate::history::Outcome::Ok) => {
                    return Ok(Arg::Absent);
                }
                other => return Err(field("value", "the elements that were read", Some(other))),
            };
            Ok(Arg::List(list))
        }
    }
}

fn number(value: &Edn<'_>, values: &mut Values) -> u32 {
    if matches!(value, Edn::Nil) {
        return Values::NIL;
    }
    values.intern(&value.to_string())
}

/// A token that stands for itself, or under `:fence` or `:token`. Jepsen's Hazelcast suite writes 0 (and
/// its server −1) for an invalid fence: it is not known then.
fn token(value: &Edn<'_>) -> Option<u64> {
    let token = match value {
        Edn::Int(token) => return u64::try_from(*token).ok(),
        Edn::Map(_) => get(value, "fence").or_else(|| get(value, "token"))?,
        _ => return None,
    };
    match token {
        Edn::Int(token @ 1..) => u64::try_from(*token).ok(),
        _ => None,
    }
}

fn get<'f, 'e>(form: &'f Edn<'e>, field: &str) -> Option<&'f Edn<'e>> {
    match form {
        Edn::Map(map) => map
            .iter()
            .find(|(key, _)| matches!(key, Edn::Key(key) if key == field))
            .map(|(_, value)| value),
        _ => None,
    }
}

fn keyword<'f>(value: Option<&'f Edn<'_>>) -> Option<&'f str> {
    match value {
        Some(Edn::Key(text) | Edn::Str(text) | Edn::Symbol(text)) => Some(text),
        _ => None,
    }
}

fn field(field: &'static str, expected: &'static str, found: Option<&Edn<'_>>) -> ForeignProblem {
    let found = found.map_or_else(
        || "nothing".to_owned(),
        |found| format!("`{}`", shorten(found.to_string().as_bytes())),
    );
    ForeignProblem::Field {
        field,
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_without_building_keys() {
        let form =
            edn::read_string("{:process 3, :f :acquire, :value {:fence 7}}").expect("it reads");
        assert_eq!(get(&form, "process"), Some(&Edn::Int(3)));
        assert_eq!(get(&form, "value").and_then(token), Some(7));
        assert_eq!(keyword(get(&form, "f")), Some("acquire"));
        assert_eq!(get(&form, "time"), None);
    }
}
