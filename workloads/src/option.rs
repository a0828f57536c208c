//! Settings that only one lock or one lock service has: what may be said, and what was.
//!
//! A registry entry declares [`OptionSpec`]s; scenarios write them under `[workload.options]` and
//! `[cluster.options]`. Values travel as texts in a canonical form, so that workers in other languages
//! need no types. How a scenario's value becomes that text is the business of whoever reads scenarios.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What an option's value must be. Bounds are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A duration; its text is the number of milliseconds.
    Millis {
        /// The shortest, in milliseconds.
        min: u64,
        /// The longest, in milliseconds.
        max: u64,
    },
    /// A whole number.
    Integer {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

impl OptionKind {
    /// Whether the canonical text is a value of this kind.
    #[must_use]
    pub fn admits(self, text: &str) -> bool {
        match self {
            Self::Flag => matches!(text, "true" | "false"),
            Self::Word(words) => words.contains(&text),
            Self::Millis { min, max } | Self::Integer { min, max } => text
                .parse::<u64>()
                .is_ok_and(|number| (min..=max).contains(&number)),
        }
    }
}

impl fmt::Display for OptionKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => out.write_str("true or false"),
            Self::Word(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                match quoted.as_slice() {
                    [first @ .., last] if !first.is_empty() => {
                        write!(out, "{} or {last}", first.join(", "))
                    }
                    _ => out.write_str(&quoted.join("")),
                }
            }
            Self::Millis { min, max } => write!(out, "a duration from {min} ms to {max} ms"),
            Self::Integer { min, max } => write!(out, "a whole number from {min} to {max}"),
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// As scenarios write it.
    pub name: &'static str,
    /// What its value must be.
    pub kind: OptionKind,
    /// The text of the value that an absent option has.
    pub default: &'static str,
    /// What it means, in one sentence.
    pub about: &'static str,
}

/// Values of options, by name, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Options(pub BTreeMap<String, String>);

impl From<&[(&str, &str)]> for Options {
    fn from(pairs: &[(&str, &str)]) -> Self {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        Self(pairs.iter().map(owned).collect())
    }
}

impl Options {
    /// Says what is wrong with these as options of something that has `specs`, if anything is.
    ///
    /// # Errors
    /// An option that does not exist, or a value that is not of its kind.
    pub fn check(&self, specs: &[OptionSpec]) -> Result<(), String> {
        for (name, text) in &self.0 {
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                let known: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
                return Err(match known.as_slice() {
                    [] => format!("found the option `{name}`, expected none: remove it"),
                    known => format!(
                        "found the option `{name}`, expected one of {}",
                        known.join(", ")
                    ),
                });
            };
            if !spec.kind.admits(text) {
                return Err(format!(
                    "option `{name}`: expected {}, found `{text}`",
                    spec.kind
                ));
            }
        }
        Ok(())
    }

    /// The value of an option, or its default.
    #[must_use]
    pub fn text(&self, spec: &OptionSpec) -> &str {
        self.0.get(spec.name).map_or(spec.default, String::as_str)
    }

    /// Whether a [flag](OptionKind::Flag) is set.
    #[must_use]
    pub fn flag(&self, spec: &OptionSpec) -> bool {
        self.text(spec) == "true"
    }

    /// The number of an option of the kinds [`OptionKind::Millis`] and [`OptionKind::Integer`]; 0 when the
    /// text is none, which [`Self::check`] refuses.
    #[must_use]
    pub fn number(&self, spec: &OptionSpec) -> u64 {
        self.text(spec).parse().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec {
            name: "delay",
            kind: OptionKind::Millis { min: 0, max: 100 },
            default: "7",
            about: "A delay.",
        },
        OptionSpec {
            name: "mode",
            kind: OptionKind::Word(&["a", "b", "c"]),
            default: "b",
            about: "A mode.",
        },
    ];

    fn options(pairs: &[(&str, &str)]) -> Options {
        Options::from(pairs)
    }

    #[test]
    fn absent_options_have_their_defaults() {
        let none = options(&[]);
        assert_eq!((none.number(&SPECS[0]), none.text(&SPECS[1])), (7, "b"));
        let some = options(&[("delay", "100"), ("mode", "c")]);
        assert_eq!((some.number(&SPECS[0]), some.text(&SPECS[1])), (100, "c"));
        assert_eq!(some.check(SPECS), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (pair, words) in [
            (("dealy", "1"), "expected one of delay, mode"),
            (
                ("delay", "101"),
                "a duration from 0 ms to 100 ms, found `101`",
            ),
            (("mode", "d"), "\"a\", \"b\" or \"c\", found `d`"),
        ] {
            let error = options(&[pair]).check(SPECS).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let error = options(&[("delay", "1")]).check(&[]).unwrap_err();
        assert!(error.contains("expected none"), "{error}");
    }
}
