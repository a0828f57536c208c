//! Parameters of a fault beyond whom, when and for how long: what may be given, and what was.
//!
//! A fault declares them in its [`FaultSpec`](crate::FaultSpec); scenario files write them as keys of
//! `[[fault]]`. How a text becomes a value is the business of whoever reads scenario files. Units are
//! part of the value's kind, so that no number is ever without one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::peers::{self, Peers};

/// What a parameter's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A duration.
    Duration,
    /// A share from 0 to 1, such as a probability.
    Share,
    /// A transfer rate above zero, in bytes a second.
    Rate,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Flag,
    /// Hosts at the other end of a link: see [`peers::SYNTAX`](crate::peers::SYNTAX). A text.
    Peers,
    /// Any text that is not empty; the fault itself says what it must be.
    Text,
}

/// One parameter that a fault has.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// As scenario files write it.
    pub name: &'static str,
    /// What its value must be.
    pub kind: ParamKind,
    /// The value that an absent parameter has, as a scenario file would write it in TOML; `None` means
    /// that without it the fault has none of what it stands for.
    pub default: Option<&'static str>,
    /// What it means, in one sentence.
    pub summary: &'static str,
}

/// The value of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamValue {
    /// A duration, in nanoseconds.
    DurationNs(u64),
    /// A share from 0 to 1.
    Share(f64),
    /// A rate, in bytes a second.
    BytesPerS(u64),
    /// One of the words of its kind.
    Word(String),
    /// True or false.
    Flag(bool),
    /// A text.
    Text(String),
}

/// The parameters of one fault, by name. Absent from a stored plan when there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Params(pub BTreeMap<String, ParamValue>);

impl Params {
    /// True when no parameter is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The duration of that name, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self, name: &str) -> Option<u64> {
        match self.0.get(name)? {
            ParamValue::DurationNs(ns) => Some(*ns),
            _ => None,
        }
    }

    /// The share of that name, from 0 to 1.
    #[must_use]
    pub fn share(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            ParamValue::Share(share) => Some(*share),
            _ => None,
        }
    }

    /// The rate of that name, in bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self, name: &str) -> Option<u64> {
        match self.0.get(name)? {
            ParamValue::BytesPerS(rate) => Some(*rate),
            _ => None,
        }
    }

    /// The word or text of that name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            ParamValue::Word(text) | ParamValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether the flag of that name is given and true.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(ParamValue::Flag(true)))
    }

    /// Says what is wrong with these parameters as those of a fault that has `specs`, if anything is.
    pub(crate) fn check(&self, specs: &[ParamSpec]) -> Result<(), String> {
        for (name, value) in &self.0 {
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                let known: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
                return Err(match known.as_slice() {
                    [] => format!("it has no parameter `{name}`, nor any other; remove it"),
                    known => format!(
                        "it has no parameter `{name}`; write one of {}",
                        known.join(", ")
                    ),
                });
            };
            if !spec.kind.admits(value) {
                return Err(format!(
                    "its parameter `{name}`: expected {}, found {value}",
                    spec.kind
                ));
            }
        }
        Ok(())
    }
}

impl ParamKind {
    /// Whether a value is of this kind and within its bounds.
    #[must_use]
    pub fn admits(self, value: &ParamValue) -> bool {
        match (self, value) {
            (Self::Duration, ParamValue::DurationNs(_)) | (Self::Flag, ParamValue::Flag(_)) => true,
            (Self::Share, ParamValue::Share(share)) => (0.0..=1.0).contains(share),
            (Self::Rate, ParamValue::BytesPerS(rate)) => *rate > 0,
            (Self::Word(words), ParamValue::Word(word)) => words.contains(&word.as_str()),
            (Self::Text, ParamValue::Text(text)) => !text.trim().is_empty(),
            (Self::Peers, ParamValue::Text(text)) => text.parse::<Peers>().is_ok(),
            _ => false,
        }
    }
}

/// As an error message continues "expected …".
impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => f.write_str("a duration such as \"50ms\""),
            Self::Share => f.write_str("a number from 0 to 1"),
            Self::Rate => f.write_str("a rate such as \"125kB/s\" (B/s, kB/s or MB/s)"),
            Self::Word(words) => write!(f, "one of \"{}\"", words.join("\", \"")),
            Self::Flag => f.write_str("true or false"),
            Self::Text => f.write_str("a text that is not empty"),
            Self::Peers => f.write_str(peers::SYNTAX),
        }
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DurationNs(ns) => write!(f, "{ns} ns"),
            Self::Share(share) => write!(f, "{share}"),
            Self::BytesPerS(rate) => write!(f, "{rate} B/s"),
            Self::Word(text) | Self::Text(text) => write!(f, "\"{text}\""),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[ParamSpec] = &[
        ParamSpec {
            name: "loss",
            kind: ParamKind::Share,
            default: None,
            summary: "",
        },
        ParamSpec {
            name: "shape",
            kind: ParamKind::Word(&["ring", "halves"]),
            default: Some("\"ring\""),
            summary: "",
        },
    ];

    fn params(name: &str, value: ParamValue) -> Params {
        Params([(name.to_owned(), value)].into())
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        assert_eq!(Params::default().check(&[]), Ok(()));
        assert_eq!(params("loss", ParamValue::Share(1.0)).check(SPECS), Ok(()));
        let word = |word: &str| ParamValue::Word(word.to_owned());
        for (bad, fragments) in [
            (
                params("los", ParamValue::Share(0.1)),
                "write one of loss, shape",
            ),
            (
                params("loss", ParamValue::Share(1.1)),
                "from 0 to 1, found 1.1",
            ),
            (params("loss", ParamValue::Share(f64::NAN)), "from 0 to 1"),
            (params("loss", ParamValue::DurationNs(3)), "found 3 ns"),
            (
                params("shape", word("star")),
                "one of \"ring\", \"halves\", found \"star\"",
            ),
        ] {
            let why = bad.check(SPECS).expect_err("refused");
            assert!(why.contains(fragments), "{why}");
        }
        let why = params("loss", ParamValue::Share(0.1)).check(&[]);
        assert!(why.expect_err("refused").contains("nor any other"));
    }

    #[test]
    fn values_survive_json() {
        let mut all = params("loss", ParamValue::Share(0.25));
        all.0.insert("delay".to_owned(), ParamValue::DurationNs(50));
        let json = serde_json::to_string(&all).expect("serialises");
        assert_eq!(
            json,
            r#"{"delay":{"duration_ns":50},"loss":{"share":0.25}}"#
        );
        assert_eq!(serde_json::from_str::<Params>(&json).expect("reads"), all);
    }
}
