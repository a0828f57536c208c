//! `[cluster.options]` and `[workload.options]`: from what is written to the texts that locks and backends read.
//!
//! Which options there are comes from the registry entry of the backend or lock. What they mean
//! together is that entry's own business; its check is called by `cluster.rs` and `workload.rs`.

use workloads::option::{OptionKind, OptionSpec, Options};

use crate::scenario::duration::{format_ms, parse_ns};
use crate::scenario::node::{Node, Value};
use crate::scenario::read::Section;
use crate::scenario::suggest::did_you_mean;

/// Reads the `options` of a section, with the defaults of those that are absent. `None` when one of
/// them has a mistake; all are reported.
pub(super) fn read(section: &Section<'_>, specs: &'static [OptionSpec]) -> Option<Options> {
    let defaults = specs
        .iter()
        .map(|spec| (spec.name.to_owned(), spec.default.to_owned()));
    let mut options = Options(defaults.collect());
    if section.written("options").is_none() {
        return Some(options);
    }
    let names: Vec<&'static str> = specs.iter().map(|spec| spec.name).collect();
    let table = section.subsection_with("options", &names)?;
    let mut whole = true;
    for spec in specs {
        let Some(node) = table.written(spec.name) else {
            continue;
        };
        match value(spec, node) {
            Ok(text) => {
                options.0.insert(spec.name.to_owned(), text);
            }
            Err(hint) => {
                table.problem(spec.name, &describe(spec.kind), &node.describe(), hint);
                whole = false;
            }
        }
    }
    whole.then_some(options)
}

/// The canonical text of one value, or a hint at what to write instead.
fn value(spec: &OptionSpec, node: &Node) -> Result<String, Option<String>> {
    let text = match (spec.kind, &node.value) {
        (OptionKind::Millis { .. }, Value::Text(text)) => {
            let ns = parse_ns(text).map_err(|error| Some(error.hint))?;
            if !ns.is_multiple_of(1_000_000) {
                return Err(None);
            }
            (ns / 1_000_000).to_string()
        }
        (OptionKind::Millis { .. }, Value::Integer(number)) => {
            return Err(parse_ns(&number.to_string()).err().map(|error| error.hint));
        }
        (OptionKind::Flag, Value::Bool(flag)) => flag.to_string(),
        (OptionKind::Integer { .. }, Value::Integer(number)) => number.to_string(),
        (OptionKind::Word(_), Value::Text(word)) => word.clone(),
        _ => return Err(None),
    };
    if spec.kind.admits(&text) {
        return Ok(text);
    }
    Err(match spec.kind {
        OptionKind::Word(words) => did_you_mean(&text, words.iter().copied()),
        _ => None,
    })
}

/// The kind in the words of a scenario.
pub(in crate::scenario) fn describe(kind: OptionKind) -> String {
    match kind {
        OptionKind::Millis { min, max } => format!(
            "a duration in whole milliseconds from {} to {}",
            format_ms(min),
            format_ms(max)
        ),
        kind => kind.to_string(),
    }
}

/// A default in the words of a scenario.
pub(in crate::scenario) fn show_default(spec: &OptionSpec) -> String {
    match spec.kind {
        OptionKind::Millis { .. } => {
            format!("\"{}\"", format_ms(spec.default.parse().unwrap_or(0)))
        }
        OptionKind::Word(_) => format!("\"{}\"", spec.default),
        _ => spec.default.to_owned(),
    }
}
