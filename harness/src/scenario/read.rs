//! Reading typed values out of one table, guided by the table of keys.
//!
//! A [`Section`] reports unknown and missing keys and values of the wrong kind. What values mean
//! together is not its business.

use std::borrow::Cow;
use std::cell::RefCell;

use super::duration::{self, RangeNs};
use super::error::Problem;
use super::keys::{Absent, KEYS, Key, Kind, Table};
use super::known::Known;
use super::node::{Node, Origin, Value, parse_default, shortened};
use super::suggest::did_you_mean;

/// What every reader needs: the names that exist, and where to put problems.
pub(super) struct Context<'a> {
    pub(super) known: &'a Known,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(known: &'a Known) -> Self {
        Self {
            known,
            problems: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// One table of the scenario.
pub(super) struct Section<'a> {
    pub(super) cx: &'a Context<'a>,
    table: Table,
    /// How errors name it, for instance `fault.2`; empty at the top level.
    path: String,
    node: &'a Node,
}

impl<'a> Section<'a> {
    /// Opens a table and checks its keys. `None` when the value is no table.
    pub(super) fn open(
        cx: &'a Context<'a>,
        table: Table,
        path: String,
        node: &'a Node,
    ) -> Option<Self> {
        Self::open_with(cx, table, path, node, &[])
    }

    /// Opens a table that may have further keys beside those of the table of keys.
    pub(super) fn open_with(
        cx: &'a Context<'a>,
        table: Table,
        path: String,
        node: &'a Node,
        further: &[&'static str],
    ) -> Option<Self> {
        let section = Self {
            cx,
            table,
            path,
            node,
        };
        let Value::Table(entries) = &node.value else {
            cx.report(Problem {
                at: node.at.clone(),
                key: section.path,
                expected: format!(
                    "a table with {}",
                    if table.is_open() {
                        further.join(", ")
                    } else {
                        key_list(table)
                    }
                ),
                found: node.describe(),
                hint: None,
            });
            return None;
        };
        for entry in entries {
            if table.key(&entry.key).is_none() && !further.contains(&entry.key.as_str()) {
                section.report_unknown(&entry.key, &entry.key_at, further);
            }
        }
        for key in table.keys().filter(|key| key.absent == Absent::Required) {
            if node.get(key.name).is_none() {
                section.report_missing(key);
            }
        }
        Some(section)
    }

    /// Opens the table under one of this table's keys. `None` when it is absent or no table.
    pub(super) fn subsection(&self, name: &str) -> Option<Section<'a>> {
        self.subsection_with(name, &[])
    }

    /// [`Self::subsection`] for a table that may have further keys.
    pub(super) fn subsection_with(
        &self,
        name: &str,
        further: &[&'static str],
    ) -> Option<Section<'a>> {
        let Some(Key {
            kind: Kind::Table(table),
            ..
        }) = self.table.key(name)
        else {
            return None;
        };
        let node = self.node.get(name)?;
        if node
            .items()
            .iter()
            .any(|item| matches!(item.value, Value::Table(_)))
        {
            self.problem(
                name,
                "a single table",
                "several",
                Some(format!("write [{name}], not [[{name}]]")),
            );
            return None;
        }
        Section::open_with(self.cx, *table, self.path_of(name), node, further)
    }

    /// The tables under one of this table's keys, each with its node.
    pub(super) fn tables(&self, name: &str) -> &'a [Node] {
        match self.node.get(name) {
            None => &[],
            Some(node) => {
                if !matches!(node.value, Value::List(_)) {
                    let hint = format!("write [[{name}]], one for each");
                    self.problem(name, "a list of tables", &node.describe(), Some(hint));
                }
                node.items()
            }
        }
    }

    /// The value under a key as it was written.
    pub(super) fn written(&self, name: &str) -> Option<&'a Node> {
        self.node.get(name)
    }

    /// Where a key's value is written; where the table begins when it is not.
    pub(super) fn at(&self, name: &str) -> Origin {
        self.node
            .get(name)
            .map_or_else(|| self.node.at.clone(), |node| node.at.clone())
    }

    /// Reports a problem with the value of a key.
    pub(super) fn problem(&self, name: &str, expected: &str, found: &str, hint: Option<String>) {
        self.cx.report(Problem {
            at: self.at(name),
            key: self.path_of(name),
            expected: expected.to_owned(),
            found: found.to_owned(),
            hint,
        });
    }

    /// Reports a problem with the table itself.
    pub(super) fn problem_here(&self, expected: &str, found: &str, hint: Option<String>) {
        self.cx.report(Problem {
            at: self.node.at.clone(),
            key: self.path.clone(),
            expected: expected.to_owned(),
            found: found.to_owned(),
            hint,
        });
    }

    /// How errors name a key of this table.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// A text, word or name.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let (key, node) = self.value(name)?;
        let Some(text) = node.text() else {
            let number = match node.value {
                Value::Integer(number) => Some(number.to_string()),
                Value::Float(number) => Some(number.to_string()),
                _ => None,
            };
            let hint = number.map(|number| format!("write \"{number}\", with quotes"));
            return self.wrong_kind(key, &node, hint);
        };
        match key.kind {
            Kind::Word(words) if !words.contains(&text) => {
                let hint = did_you_mean(text, words.iter().copied());
                self.wrong_kind(key, &node, hint)
            }
            Kind::Name(registry) => {
                let names = self.cx.known.names(registry);
                if names.contains(&text) {
                    return Some(text.to_owned());
                }
                let hint = did_you_mean(text, names.iter().copied());
                let expected = format!("a known {}: {}", registry.noun(), names.join(", "));
                self.problem(name, &expected, &node.describe(), hint);
                None
            }
            _ if text.trim().is_empty() => self.wrong_kind(key, &node, None),
            _ => Some(text.to_owned()),
        }
    }

    /// A whole number within the bounds of its key.
    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        let (key, node) = self.value(name)?;
        let (Value::Integer(number), Kind::Integer(min, max)) = (&node.value, key.kind) else {
            let hint = node
                .text()
                .filter(|text| text.parse::<i64>().is_ok())
                .map(|text| format!("write {text} without quotes"));
            return self.wrong_kind(key, &node, hint);
        };
        match u64::try_from(*number) {
            Ok(number) if (min..=max).contains(&number) => Some(number),
            _ => self.wrong_kind(key, &node, None),
        }
    }

    /// [`Self::integer`] for keys whose bounds fit in 32 bits.
    pub(super) fn integer_u32(&self, name: &str) -> Option<u32> {
        self.integer(name)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// A number within the bounds of its key.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        let (key, node) = self.value(name)?;
        let number = match node.value {
            Value::Float(number) => number,
            // Exact up to 2⁵³; the bounds of no key come near.
            Value::Integer(number) => number as f64,
            _ => return self.wrong_kind(key, &node, None),
        };
        match key.kind {
            Kind::Number(above, at_most)
                if number.is_finite() && above < number && number <= at_most =>
            {
                Some(number)
            }
            _ => self.wrong_kind(key, &node, None),
        }
    }

    /// `true` or `false`.
    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        let (key, node) = self.value(name)?;
        match node.value {
            Value::Bool(value) => Some(value),
            _ => self.wrong_kind(
                key,
                &node,
                Some("write true or false, without quotes".to_owned()),
            ),
        }
    }

    /// A duration in nanoseconds, not shorter than its key allows.
    pub(super) fn duration_ns(&self, name: &str) -> Option<u64> {
        let (key, node) = self.value(name)?;
        let ns = match duration_text(&node).map(|text| duration::parse_ns(&text)) {
            Some(Ok(ns)) => ns,
            Some(Err(error)) => return self.wrong_kind(key, &node, Some(error.hint)),
            None => return self.wrong_kind(key, &node, None),
        };
        let fits = match key.kind {
            Kind::Duration(min_ns) => ns >= min_ns,
            Kind::Millis => ns > 0 && ns.is_multiple_of(1_000_000),
            _ => true,
        };
        if fits {
            Some(ns)
        } else {
            self.wrong_kind(key, &node, None)
        }
    }

    /// A duration in whole milliseconds.
    pub(super) fn duration_ms(&self, name: &str) -> Option<u64> {
        self.duration_ns(name).map(|ns| ns / 1_000_000)
    }

    /// A duration or a range of them.
    pub(super) fn range(&self, name: &str) -> Option<RangeNs> {
        let (key, node) = self.value(name)?;
        match duration_text(&node).map(|text| RangeNs::parse(&text)) {
            Some(Ok(range)) => Some(range),
            Some(Err(error)) => self.wrong_kind(key, &node, Some(error.hint)),
            None => self.wrong_kind(key, &node, None),
        }
    }

    /// The value of a key, or its default. `None` when it has neither.
    fn value(&self, name: &str) -> Option<(&'static Key, Cow<'a, Node>)> {
        let key = self.table.key(name);
        debug_assert!(key.is_some(), "{name} is not in the table of keys");
        let key = key?;
        if let Some(node) = self.node.get(name) {
            return Some((key, Cow::Borrowed(node)));
        }
        match key.absent {
            Absent::Default(text) => Some((key, Cow::Owned(parse_default(text, &self.node.at)?))),
            Absent::Required | Absent::Optional(_) => None,
        }
    }

    pub(super) fn wrong_kind<T>(&self, key: &Key, node: &Node, hint: Option<String>) -> Option<T> {
        self.problem(key.name, &key.kind.describe(), &node.describe(), hint);
        None
    }

    fn report_unknown(&self, name: &str, at: &Origin, further: &[&'static str]) {
        let keys = self.table.keys().map(|key| key.name);
        let keys: Vec<&str> = keys.chain(further.iter().copied()).collect();
        self.cx.report(Problem {
            at: at.clone(),
            key: self.path_of(&shortened(name)),
            expected: format!(
                "one of the keys of {}: {}",
                self.table.title(),
                keys.join(", ")
            ),
            found: format!("the unknown key `{}`", shortened(name)),
            hint: did_you_mean(name, keys.iter().copied()).or_else(|| elsewhere(name)),
        });
    }

    fn report_missing(&self, key: &Key) {
        let example = match key.kind {
            Kind::Table(_) if self.table == Table::Top => format!("add a table {}", key.example),
            _ => format!("add {} = {}", key.name, key.example),
        };
        self.cx.report(Problem {
            at: self.node.at.clone(),
            key: self.path_of(key.name),
            expected: key.kind.describe(),
            found: "nothing: the key is required".to_owned(),
            hint: Some(example),
        });
    }
}

/// The text that a duration is read from. A bare number is read as one without its unit, so that the
/// hint can say which to add.
fn duration_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) if number.is_finite() => Some(number.to_string()),
        _ => None,
    }
}

/// The keys of a table, for error texts.
pub(super) fn key_list(table: Table) -> String {
    table
        .keys()
        .map(|key| key.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A hint when another table has a key of this name.
fn elsewhere(name: &str) -> Option<String> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    Some(format!("`{name}` is a key of {}", key.table.title()))
}
