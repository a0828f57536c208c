//! Durations as written in scenario files: `250ms`, `1.5s`, `2m`, and ranges `0s..2s`.
//!
//! Everything is exact: a text stands for a whole number of nanoseconds, and what [`format_ns`]
//! prints, [`parse_ns`] reads back as the same number.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Units with their length in nanoseconds, shortest first.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// What people write instead, and the unit they mean.
const MISSPELT_UNITS: &[(&str, &str)] = &[
    ("nsec", "ns"),
    ("nanos", "ns"),
    ("nanoseconds", "ns"),
    ("µs", "us"),
    ("μs", "us"),
    ("usec", "us"),
    ("micros", "us"),
    ("microseconds", "us"),
    ("msec", "ms"),
    ("msecs", "ms"),
    ("millis", "ms"),
    ("millisecond", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{hint}")]
pub struct DurationError {
    /// What to write instead.
    pub hint: String,
}

impl DurationError {
    fn new(hint: impl Into<String>) -> Self {
        Self { hint: hint.into() }
    }
}

/// Reads a duration into nanoseconds.
///
/// # Errors
/// The text has no known unit, no plain decimal number, or is too long or too fine for nanoseconds
/// in 64 bits.
pub fn parse_ns(text: &str) -> Result<u64, DurationError> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let Some((_, unit_ns)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(wrong_unit(text, number, unit));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (fraction.is_empty() && number.contains('.')) {
        return Err(DurationError::new(
            "write a plain decimal number and a unit, such as \"1.5s\"",
        ));
    }
    exact_ns(whole, fraction.trim_end_matches('0'), *unit_ns)
}

/// `whole.fraction × unit_ns`, or an error when that is no whole number of nanoseconds in 64 bits.
fn exact_ns(whole: &str, fraction: &str, unit_ns: u64) -> Result<u64, DurationError> {
    let too_long = || {
        DurationError::new(
            "that is longer than 64 bits of nanoseconds (584 years); write a shorter one",
        )
    };
    let too_fine = || DurationError::new("that is finer than a nanosecond; write fewer decimals");
    let whole_ns = whole
        .parse::<u64>()
        .ok()
        .and_then(|units| units.checked_mul(unit_ns))
        .ok_or_else(too_long)?;
    if fraction.is_empty() {
        return Ok(whole_ns);
    }
    // An hour has 3.6 × 10¹² ns, so more than 13 decimals can never be exact.
    if fraction.len() > 13 {
        return Err(too_fine());
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| too_fine())?);
    let scaled = fraction.parse::<u128>().map_err(|_| too_fine())? * u128::from(unit_ns);
    if scaled % scale != 0 {
        return Err(too_fine());
    }
    let fraction_ns = u64::try_from(scaled / scale).map_err(|_| too_long())?;
    whole_ns.checked_add(fraction_ns).ok_or_else(too_long)
}

fn wrong_unit(text: &str, number: &str, unit: &str) -> DurationError {
    if number.is_empty() {
        let hint = if text.starts_with('-') {
            "a duration cannot be negative".to_owned()
        } else {
            "a duration is a number and a unit (ns, us, ms, s, m, h), such as \"2s\" or \"250ms\""
                .to_owned()
        };
        return DurationError::new(hint);
    }
    if unit.is_empty() {
        return DurationError::new(format!(
            "the unit is missing: write \"{number}s\" for seconds or \"{number}ms\" for milliseconds"
        ));
    }
    let word = unit.trim().to_lowercase();
    let meant = UNITS
        .iter()
        .map(|(name, _)| *name)
        .find(|name| *name == word)
        .or_else(|| {
            MISSPELT_UNITS
                .iter()
                .find(|(wrong, _)| *wrong == word)
                .map(|(_, right)| *right)
        });
    match meant {
        Some(right) => DurationError::new(format!("write \"{number}{right}\"")),
        None => DurationError::new(
            "the units are ns, us, ms, s, m and h, right after the number, such as \"1.5s\"",
        ),
    }
}

/// Writes a duration so that [`parse_ns`] reads it back as the same number.
#[must_use]
pub fn format_ns(ns: u64) -> String {
    const MINUTE_NS: u64 = 60_000_000_000;
    let (unit, unit_ns) = match ns {
        0 => ("s", 1),
        // Minutes only where they come out whole: `90s` reads better than `1.5m`.
        _ if ns.is_multiple_of(MINUTE_NS) => ("m", MINUTE_NS),
        1_000_000_000.. => ("s", 1_000_000_000),
        1_000_000.. => ("ms", 1_000_000),
        1_000.. => ("us", 1_000),
        _ => ("ns", 1),
    };
    let (whole, rest) = (ns / unit_ns, ns % unit_ns);
    if rest == 0 {
        return format!("{whole}{unit}");
    }
    let digits = unit_ns.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}{unit}", fraction.trim_end_matches('0'))
}

/// [`format_ns`] for a time in milliseconds.
pub(super) fn format_ms(ms: u64) -> String {
    format_ns(ms.saturating_mul(1_000_000))
}

/// A duration that is drawn anew each time, uniformly from the least to the most, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeNs {
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// The longest, in nanoseconds; equal to the shortest when the duration is fixed.
    pub max_ns: u64,
}

impl RangeNs {
    /// Reads `2s` or `0s..2s`.
    ///
    /// # Errors
    /// One of its ends is no duration, or the first is longer than the second.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let (min_ns, max_ns) = match text.split_once("..") {
            None => {
                let fixed_ns = parse_ns(text)?;
                (fixed_ns, fixed_ns)
            }
            Some((min, max)) => (parse_ns(min.trim())?, parse_ns(max.trim())?),
        };
        if min_ns > max_ns {
            let (min, max) = (format_ns(max_ns), format_ns(min_ns));
            return Err(DurationError::new(format!(
                "the range is reversed: write \"{min}..{max}\""
            )));
        }
        Ok(Self { min_ns, max_ns })
    }
}

impl fmt::Display for RangeNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_ns(self.min_ns))?;
        if self.min_ns != self.max_ns {
            write!(f, "..{}", format_ns(self.max_ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_every_unit() {
        let cases = [
            ("0s", 0),
            ("7ns", 7),
            ("1.5us", 1_500),
            ("250ms", 250_000_000),
            ("2s", 2_000_000_000),
            ("1.5s", 1_500_000_000),
            ("1.50s", 1_500_000_000),
            ("1m", 60_000_000_000),
            ("0.5h", 1_800_000_000_000),
        ];
        for (text, ns) in cases {
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn refuses_and_says_what_to_write() {
        let cases = [
            ("5", "\"5s\" for seconds"),
            ("5 sec", "write \"5s\""),
            ("5 s", "write \"5s\""),
            ("5S", "write \"5s\""),
            ("3 minutes", "write \"3m\""),
            ("10µs", "write \"10us\""),
            ("", "a number and a unit"),
            ("s", "plain decimal number"),
            ("-1s", "cannot be negative"),
            ("1.s", "plain decimal number"),
            (".5s", "plain decimal number"),
            ("1.2.3s", "plain decimal number"),
            ("5 fortnights", "the units are"),
            ("0.5ns", "finer than a nanosecond"),
            ("0.00000000000001h", "finer than a nanosecond"),
            ("99999999999999999999s", "longer than 64 bits"),
            ("18446744073.709551616s", "longer than 64 bits"),
        ];
        for (text, hint) in cases {
            let error = parse_ns(text).expect_err(text);
            assert!(error.hint.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn ranges_are_checked_and_printed() {
        let range = RangeNs::parse("0s..1.5s").expect("a range");
        assert_eq!((range.min_ns, range.max_ns), (0, 1_500_000_000));
        assert_eq!(range.to_string(), "0s..1.5s");
        assert_eq!(RangeNs::parse("2s").expect("fixed").to_string(), "2s");
        let reversed = RangeNs::parse("2s..1s").expect_err("reversed");
        assert!(reversed.hint.contains("\"1s..2s\""), "{reversed}");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(ns in any::<u64>()) {
            prop_assert_eq!(parse_ns(&format_ns(ns)), Ok(ns));
        }

        #[test]
        fn round_numbers_read_back_too(count in 0_u64..10_000, unit in 0_usize..6) {
            let ns = count * UNITS[unit].1;
            prop_assert_eq!(parse_ns(&format_ns(ns)), Ok(ns));
        }

        #[test]
        fn any_text_gets_an_answer(text in ".{0,24}") {
            let _ = parse_ns(&text);
            let _ = RangeNs::parse(&text);
        }
    }
}
