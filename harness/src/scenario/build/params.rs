//! The keys of a `[[fault]]` that are parameters of its kind: from what is written to typed values.
//!
//! Which there are comes from the fault's registry entry. What they mean together is the fault's own
//! business; its check is called by `fault.rs`.

use nemesis::{ParamKind, ParamSpec, ParamValue, Params, Peers, Target};

use crate::scenario::duration::parse_ns;
use crate::scenario::known::KnownFault;
use crate::scenario::node::{Node, Value, parse_default};
use crate::scenario::read::{Context, Section};
use crate::scenario::suggest::did_you_mean;

/// The parameters that a fault may have; all that any has, while its kind has a mistake of its own.
pub(super) fn names(cx: &Context<'_>, fault: &Node) -> Vec<&'static str> {
    let kind = fault.get("kind").and_then(Node::text);
    match kind.and_then(|kind| cx.known.fault(kind)) {
        Some(known) => known.params.iter().map(|param| param.name).collect(),
        None => {
            let all = cx.known.faults.iter().flat_map(|known| known.params);
            all.map(|param| param.name).collect()
        }
    }
}

/// Reads every parameter of the fault, with the defaults of those that are absent. `None` when one of
/// them has a mistake; all are reported.
pub(super) fn read(section: &Section<'_>, fault: &Node, kind: &KnownFault) -> Option<Params> {
    let mut params = Some(Params::default());
    for spec in kind.params {
        let default = || parse_default(spec.default?, &fault.at);
        let Some(node) = fault.get(spec.name).cloned().or_else(default) else {
            continue;
        };
        match value(spec, &node) {
            Ok(value) => {
                if let Some(params) = &mut params {
                    params.0.insert(spec.name.to_owned(), value);
                }
            }
            Err(hint) => {
                section.problem(spec.name, &spec.kind.to_string(), &node.describe(), hint);
                params = None;
            }
        }
    }
    params
}

/// The targets among the parameters: the other ends of links, each with its key.
pub(super) fn peers<'a>(
    kind: &'a KnownFault,
    params: &'a Params,
) -> impl Iterator<Item = (&'static str, Target)> + 'a {
    let of_kind = kind
        .params
        .iter()
        .filter(|spec| spec.kind == ParamKind::Peers);
    of_kind.filter_map(
        |spec| match params.text(spec.name).map(str::parse::<Peers>) {
            Some(Ok(Peers::Only(target))) => Some((spec.name, target)),
            _ => None,
        },
    )
}

/// One value, or a hint at what to write instead.
fn value(spec: &ParamSpec, node: &Node) -> Result<ParamValue, Option<String>> {
    let value = match (spec.kind, &node.value) {
        (ParamKind::Flag, Value::Bool(flag)) => ParamValue::Flag(*flag),
        (ParamKind::Share, Value::Float(share)) => ParamValue::Share(*share),
        // 0 and 1 are shares too; any other is refused by its kind.
        (ParamKind::Share, Value::Integer(share)) => ParamValue::Share(*share as f64),
        (ParamKind::Word(_), Value::Text(word)) => ParamValue::Word(word.clone()),
        (ParamKind::Text | ParamKind::Peers, Value::Text(text)) => ParamValue::Text(text.clone()),
        // `port = 2380` on the command line is a number to TOML and a text to the fault.
        (ParamKind::Text, Value::Integer(number)) => ParamValue::Text(number.to_string()),
        (ParamKind::Duration, Value::Text(text)) => {
            ParamValue::DurationNs(parse_ns(text).map_err(|error| Some(error.hint))?)
        }
        (ParamKind::Duration, Value::Integer(number)) => {
            let error = parse_ns(&number.to_string()).err();
            return Err(error.map(|error| error.hint));
        }
        (ParamKind::Rate, Value::Text(text)) => {
            ParamValue::BytesPerS(parse_rate(text).ok_or(None)?)
        }
        _ => return Err(None),
    };
    if spec.kind.admits(&value) {
        return Ok(value);
    }
    Err(match (spec.kind, &value) {
        (ParamKind::Word(words), ParamValue::Word(word)) => {
            did_you_mean(word, words.iter().copied())
        }
        _ => None,
    })
}

/// `125kB/s` in bytes a second; whole numbers only.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, scale) = [("kB/s", 1_000), ("MB/s", 1_000_000), ("B/s", 1)]
        .into_iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.trim_end(), scale)))?;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!(parse_rate("125kB/s"), Some(125_000));
        assert_eq!(parse_rate("1 MB/s"), Some(1_000_000));
        assert_eq!(parse_rate("7B/s"), Some(7));
        for wrong in [
            "125",
            "kB/s",
            "1.5MB/s",
            "-1B/s",
            "1GB/s",
            "99999999999999999999B/s",
        ] {
            assert_eq!(parse_rate(wrong), None, "{wrong}");
        }
    }
}
