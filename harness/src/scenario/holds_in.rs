//! In how many of its trials an arm must show what it says.

use std::fmt;

use serde::{Deserialize, Serialize};

/// In how many of its trials an arm's expectations must hold. In files it is a text: `all`, `any`, `3/10`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HoldsIn {
    /// In every trial.
    #[default]
    All,
    /// In at least one trial.
    Any,
    /// In at least this share of the trials, rounded up to whole ones.
    Share {
        /// Trials that must pass …
        passed: u32,
        /// … out of so many.
        trials: u32,
    },
}

impl HoldsIn {
    /// Reads `all`, `any` or `3/10`.
    ///
    /// # Errors
    /// It is none of these, or the share is not above 0 and at most 1.
    pub fn parse(text: &str) -> Result<Self, HoldsInError> {
        match text {
            "all" => return Ok(Self::All),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let share = text.split_once('/').and_then(|(passed, trials)| {
            Some((passed.trim().parse().ok()?, trials.trim().parse().ok()?))
        });
        match share {
            Some((passed, trials)) if 0 < passed && passed <= trials => {
                Ok(Self::Share { passed, trials })
            }
            Some(_) => Err(HoldsInError {
                hint: "a share is above 0 and at most 1, such as \"3/10\"",
            }),
            None => Err(HoldsInError {
                hint: "write \"all\", \"any\" or two whole numbers such as \"3/10\"",
            }),
        }
    }

    /// True when `passed` of `trials` are enough. No trials are never enough.
    #[must_use]
    pub fn met(self, passed: u32, trials: u32) -> bool {
        trials > 0 && passed >= self.needed(trials)
    }

    /// How many of `trials` must pass; at least 1.
    #[must_use]
    pub fn needed(self, trials: u32) -> u32 {
        let needed = match self {
            Self::All => trials,
            Self::Any => 1,
            Self::Share {
                passed,
                trials: out_of,
            } => {
                let exact =
                    (u64::from(passed) * u64::from(trials)).div_ceil(u64::from(out_of.max(1)));
                u32::try_from(exact).unwrap_or(u32::MAX)
            }
        };
        needed.max(1)
    }
}

/// Why a text does not say in how many trials something must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{hint}")]
pub struct HoldsInError {
    /// What to write instead.
    pub hint: &'static str,
}

impl fmt::Display for HoldsIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Any => f.write_str("any"),
            Self::Share { passed, trials } => write!(f, "{passed}/{trials}"),
        }
    }
}

impl TryFrom<String> for HoldsIn {
    type Error = HoldsInError;

    fn try_from(text: String) -> Result<Self, HoldsInError> {
        Self::parse(&text)
    }
}

impl From<HoldsIn> for String {
    fn from(holds_in: HoldsIn) -> Self {
        holds_in.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_up() {
        let share = HoldsIn::parse("3/10").expect("a share");
        assert_eq!(
            [1, 4, 10, 11].map(|trials| share.needed(trials)),
            [1, 2, 3, 4]
        );
        assert!(share.met(3, 10) && !share.met(2, 10) && !share.met(0, 1));
        assert!(HoldsIn::All.met(4, 4) && !HoldsIn::All.met(3, 4));
        assert!(HoldsIn::Any.met(1, 9) && !HoldsIn::Any.met(0, 9));
        assert!(!HoldsIn::All.met(0, 0) && !HoldsIn::Any.met(0, 0));
        for wrong in ["some", "0/3", "4/3", "1/0", "-1/3", "1/2/3", "/"] {
            assert!(HoldsIn::parse(wrong).is_err(), "{wrong}");
        }
    }
}
