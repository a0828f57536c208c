//! A scenario file as a tree in which every key and value knows where it was written.
//!
//! The tree is owned and independent of the TOML crate's types, so that an arm's `set` and the command
//! line can change values in it while each keeps the place that it came from.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Problem;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Byte range in the scenario file.
    File(Range<usize>),
    /// A command-line flag, as it was given.
    Flag(String),
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Origin,
    pub(super) value: Value,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Date(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Origin,
    pub(super) node: Node,
}

impl Node {
    /// The value under `key`, when this is a table that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.node)
    }

    /// The entries of a table; nothing for any other value.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The members of a list; nothing for any other value.
    pub(super) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The text, when this is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value in the words of an error message.
    pub(super) fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("\"{}\"", shortened(text)),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Bool(value) => format!("`{value}`"),
            Value::Date(date) => format!("the date {date}"),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

/// At most 60 characters, with control characters made visible.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = text
        .chars()
        .take(LONGEST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// Parses a whole file. All syntax errors are reported; a file that has some gives no tree, since what
/// the parser guesses behind the first of them would only add mistakes that nobody made.
pub(super) fn parse_document(source: &str) -> Result<Node, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(source);
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| Problem {
            at: Origin::File(error.span().unwrap_or(source.len()..source.len())),
            key: String::new(),
            expected: "TOML".to_owned(),
            found: format!("a syntax error: {}", error.message()),
            hint: syntax_hint(error.message()),
        })
        .collect();
    let root = Node {
        at: Origin::File(0..0),
        value: Value::Table(entries(document.get_ref(), &mut problems)),
    };
    if problems.is_empty() {
        Ok(root)
    } else {
        Err(problems)
    }
}

fn syntax_hint(message: &str) -> Option<String> {
    if message.contains("duplicate key") {
        return Some("a key may stand only once in a table; a further fault or arm begins with [[fault]] or [[arm]]".to_owned());
    }
    None
}

/// Parses a value as given on the command line: TOML, or else the text itself.
pub(super) fn parse_override(text: &str, flag: &str) -> Node {
    let at = Origin::Flag(flag.to_owned());
    let mut problems = Vec::new();
    let value = match DeValue::parse(text) {
        Ok(parsed) => convert(parsed.get_ref(), &(0..0), &mut problems),
        Err(_) => Value::Text(text.to_owned()),
    };
    let value = if problems.is_empty() {
        value
    } else {
        Value::Text(text.to_owned())
    };
    let mut node = Node {
        at: at.clone(),
        value,
    };
    relocate(&mut node, &at);
    node
}

/// Parses a default of the key table; it takes the place of the table that lacks the key.
pub(super) fn parse_default(text: &str, at: &Origin) -> Option<Node> {
    let parsed = DeValue::parse(text).ok()?;
    let value = convert(parsed.get_ref(), &(0..0), &mut Vec::new());
    let mut node = Node {
        at: at.clone(),
        value,
    };
    relocate(&mut node, at);
    Some(node)
}

fn relocate(node: &mut Node, at: &Origin) {
    node.at = at.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| relocate(item, at)),
        Value::Table(entries) => entries.iter_mut().for_each(|entry| {
            entry.key_at = at.clone();
            relocate(&mut entry.node, at);
        }),
        _ => {}
    }
}

fn entries(table: &DeTable<'_>, problems: &mut Vec<Problem>) -> Vec<Entry> {
    let mut entries: Vec<(usize, Entry)> = table
        .iter()
        .map(|(key, value)| {
            let entry = Entry {
                key: key.get_ref().to_string(),
                key_at: Origin::File(key.span()),
                node: node(value, problems),
            };
            (key.span().start, entry)
        })
        .collect();
    // The TOML crate sorts by name; errors and overrides should follow the file.
    entries.sort_by_key(|(start, _)| *start);
    entries.into_iter().map(|(_, entry)| entry).collect()
}

fn node(value: &Spanned<DeValue<'_>>, problems: &mut Vec<Problem>) -> Node {
    let span = value.span();
    Node {
        value: convert(value.get_ref(), &span, problems),
        at: Origin::File(span),
    }
}

fn convert(value: &DeValue<'_>, span: &Range<usize>, problems: &mut Vec<Problem>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            Value::Integer(number.unwrap_or_else(|_| {
                problems.push(too_large(span, integer.as_str()));
                0
            }))
        }
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(number) => Value::Float(number),
            Err(_) => {
                problems.push(too_large(span, float.as_str()));
                Value::Float(0.0)
            }
        },
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| node(item, problems)).collect())
        }
        DeValue::Table(table) => Value::Table(entries(table, problems)),
    }
}

fn too_large(span: &Range<usize>, digits: &str) -> Problem {
    Problem {
        at: Origin::File(span.clone()),
        key: String::new(),
        expected: "a number that fits in 64 bits".to_owned(),
        found: shortened(digits),
        hint: None,
    }
}
