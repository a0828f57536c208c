//! What an arm must show: conditions on metrics.
//!
//! A condition is a conjunction such as `> 0, < 5`. Which metrics can occur is not decided here, see
//! [`super::possible`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// A metric and what it must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Name of the metric.
    pub metric: String,
    /// What it must be.
    pub is: Condition,
}

impl Expectation {
    /// True when the metric may have this value.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        self.is.holds(value)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds: Vec<String> = self.is.bounds.iter().map(Bound::to_string).collect();
        write!(f, "{} {}", self.metric, bounds.join(" and "))
    }
}

/// Bounds that must all hold. In files it is a text: `> 0, < 5`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    bounds: Vec<Bound>,
}

/// One comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    comparison: Comparison,
    number: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    NotEqual,
}

/// Longer signs first, so that `>=` is not read as `>`.
const SIGNS: &[(&str, Comparison)] = &[
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

/// Why a text is not a condition that can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// It cannot be read.
    #[error("{0}")]
    Syntax(String),
    /// No value of a metric satisfies it.
    #[error("{0}")]
    Contradiction(String),
}

impl Condition {
    /// Reads `> 0, < 5`.
    ///
    /// # Errors
    /// A part is not a sign and a number, or no number from 0 up can satisfy all parts.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let bounds = text
            .split(',')
            .map(|part| Bound::parse(part.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        let condition = Self { bounds };
        if condition.can_hold() {
            return Ok(condition);
        }
        let why = match condition.bounds.as_slice() {
            [_] => "a metric is never negative, so this can never hold".to_owned(),
            _ => "no number satisfies all parts at once; an expectation of either the one or the other cannot be stated".to_owned(),
        };
        Err(ConditionError::Contradiction(why))
    }

    /// True when all bounds hold for this value.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        self.bounds.iter().all(|bound| bound.holds(value))
    }

    /// True when some value from 0 up satisfies all bounds.
    fn can_hold(&self) -> bool {
        // The bounds cut an interval out of [0, ∞); a `!=` matters only when that is a single point.
        let (mut low, mut low_open) = (0.0, false);
        let (mut high, mut high_open) = (f64::INFINITY, true);
        for bound in &self.bounds {
            let (from_below, from_above, open) = match bound.comparison {
                Comparison::Above => (true, false, true),
                Comparison::AtLeast => (true, false, false),
                Comparison::Below => (false, true, true),
                Comparison::AtMost => (false, true, false),
                Comparison::Equal => (true, true, false),
                Comparison::NotEqual => (false, false, false),
            };
            if from_below && (bound.number > low || (bound.number == low && open)) {
                (low, low_open) = (bound.number, open);
            }
            if from_above && (bound.number < high || (bound.number == high && open)) {
                (high, high_open) = (bound.number, open);
            }
        }
        low < high || (low == high && !low_open && !high_open && self.holds(low))
    }
}

impl Bound {
    fn parse(part: &str) -> Result<Self, ConditionError> {
        let Some((sign, comparison)) = SIGNS.iter().find(|(sign, _)| part.starts_with(sign)) else {
            return Err(ConditionError::Syntax(sign_hint(part)));
        };
        let digits = part[sign.len()..].trim();
        match digits.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Self {
                comparison: *comparison,
                number,
            }),
            _ => Err(ConditionError::Syntax(format!(
                "after `{sign}` comes a number, such as \"{sign} 0\""
            ))),
        }
    }

    fn holds(self, value: f64) -> bool {
        match self.comparison {
            Comparison::Above => value > self.number,
            Comparison::AtLeast => value >= self.number,
            Comparison::Below => value < self.number,
            Comparison::AtMost => value <= self.number,
            Comparison::Equal => value == self.number,
            Comparison::NotEqual => value != self.number,
        }
    }
}

fn sign_hint(part: &str) -> String {
    let misspelt = [
        ("=>", ">="),
        ("=<", "<="),
        ("=", "=="),
        ("≥", ">="),
        ("≤", "<="),
        ("<>", "!="),
        ("≠", "!="),
    ];
    for (wrong, right) in misspelt {
        if let Some(number) = part.strip_prefix(wrong) {
            return format!("write \"{right} {}\"", number.trim());
        }
    }
    if part.parse::<f64>().is_ok_and(f64::is_finite) {
        return format!("write \"== {part}\"");
    }
    "write a sign (>, >=, <, <=, ==, !=) and a number, such as \"> 0\" or \"> 0, < 5\"".to_owned()
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = SIGNS
            .iter()
            .find(|(_, comparison)| *comparison == self.comparison)
            .map_or("", |(sign, _)| sign);
        write!(f, "{sign} {}", self.number)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds: Vec<String> = self.bounds.iter().map(Bound::to_string).collect();
        f.write_str(&bounds.join(", "))
    }
}

impl TryFrom<String> for Condition {
    type Error = ConditionError;

    fn try_from(text: String) -> Result<Self, ConditionError> {
        Self::parse(&text)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn conditions_hold_where_they_say() {
        let within = Condition::parse("> 0, < 5").expect("a range");
        let held: Vec<u32> = (0..7)
            .filter(|value| within.holds(f64::from(*value)))
            .collect();
        assert_eq!(held, [1, 2, 3, 4]);
        for (text, value, holds) in [
            (">= 2", 2.0, true),
            ("<=2.5", 2.5, true),
            ("== 3", 3.0, true),
            ("== 3", 3.1, false),
            ("!= 3", 3.0, false),
            ("> 0, != 4", 4.0, false),
        ] {
            assert_eq!(
                Condition::parse(text).expect(text).holds(value),
                holds,
                "{text} with {value}"
            );
        }
        let expectation = Expectation {
            metric: "lost_writes".to_owned(),
            is: within,
        };
        assert_eq!(expectation.to_string(), "lost_writes > 0 and < 5");
    }

    #[test]
    fn contradictions_are_found() {
        for text in [
            "> 5, < 3",
            "> 5, <= 5",
            "== 1, == 2",
            "== 1, != 1",
            "< 0",
            "<= 0, > 0",
            ">= 2, <= 2, != 2",
            "== -1",
        ] {
            let error = Condition::parse(text).expect_err(text);
            assert!(
                matches!(error, ConditionError::Contradiction(_)),
                "{text}: {error}"
            );
        }
        for text in [
            "> 5, < 6",
            ">= 5, <= 5",
            "<= 0",
            "!= 0",
            "> -1",
            "== 0, < 1",
        ] {
            assert!(Condition::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn misspelt_signs_are_corrected() {
        for (text, hint) in [
            ("= 0", "\"== 0\""),
            ("=> 2", "\">= 2\""),
            ("7", "\"== 7\""),
            ("> many", "a number"),
            ("", "a sign"),
        ] {
            let error = Condition::parse(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn conditions_print_and_read_back(numbers in proptest::collection::vec(0.0_f64..1e9, 1..4)) {
            let text: Vec<String> = numbers.iter().map(|number| format!(">= {number}")).collect();
            let condition = Condition::parse(&text.join(",")).expect("lower bounds never contradict");
            prop_assert_eq!(Condition::parse(&condition.to_string()), Ok(condition));
        }

        #[test]
        fn any_text_gets_an_answer(text in ".{0,24}") {
            let _ = Condition::parse(&text);
        }
    }
}
