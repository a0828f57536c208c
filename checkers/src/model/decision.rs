//! What a model says about a history: valid, invalid with the operations that show it, or unknown.

use std::fmt;

/// The verdict of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Some order of the operations explains everything that was seen.
    Valid,
    /// None does.
    Invalid(Violation),
    /// It could not be decided; why. Never to be counted as valid.
    Unknown(String),
}

impl Decision {
    /// True for [`Decision::Valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        *self == Decision::Valid
    }
}

impl From<Result<(), Violation>> for Decision {
    fn from(result: Result<(), Violation>) -> Self {
        match result {
            Ok(()) => Decision::Valid,
            Err(violation) => Decision::Invalid(violation),
        }
    }
}

/// Why a history is not one of the model: the rule that is broken, and the few operations that break it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The operations, by their numbers (`Op::id`); what each is to the rule is said at the rule.
    pub ops: Vec<u32>,
}

impl Violation {
    pub(crate) fn new(rule: Rule, ops: impl Into<Vec<u32>>) -> Self {
        Self {
            rule,
            ops: ops.into(),
        }
    }
}

/// The rules of all models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Two holders at once. Ops: the first section's acquire and its release (if any), the second's acquire.
    TwoHolders,
    /// More sections at once than there are permits. Ops: their acquires.
    TooManyPermits,
    /// An owner acquired more often than it may. Ops: its acquires that were open, the last one too many.
    AcquiredTooOften,
    /// A successful release by a process that held nothing. Ops: the release.
    ReleasedUnheld,
    /// A token that is not above one of an earlier section. Ops: the acquire that told the earlier one and
    /// the release of its section, the acquire that told the later one.
    TokenNotAbove,
    /// A re-acquire came with another token than its section. Ops: the two acquires.
    TokenChanged,
    /// No order of acquires and releases fits this stretch, whatever was held at its beginning. Ops: those
    /// in it, the one that cannot be placed last.
    NoOrder,
    /// A value was observed that nobody wrote. Ops: the observer.
    FromNowhere,
    /// Two compare-and-sets succeeded from one value that was written once: an update was lost. Ops: the two.
    LostUpdate,
    /// A value was observed before what it depends on was even begun. Ops: the observer, and what came too late.
    BeforeItsCause,
    /// Values depend on one another in a circle. Ops: compare-and-sets of the circle.
    Circle,
    /// Two values must each have been there at the same time. Ops: an early return and a late invoke of
    /// each of them.
    TwoValues,
    /// The search tried every order. Ops: those that were open at the deepest point, the one that cannot be
    /// placed last.
    Exhausted,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::TwoHolders => "two held the lock at once",
            Rule::TooManyPermits => "more permits were held at once than there are",
            Rule::AcquiredTooOften => "the lock was acquired again by a holder that may not",
            Rule::ReleasedUnheld => "a release succeeded although its process held nothing",
            Rule::TokenNotAbove => "a fencing token is not above that of an earlier holder",
            Rule::TokenChanged => "a re-acquire came with another token",
            Rule::NoOrder => "no order of these acquires and releases is possible",
            Rule::FromNowhere => "a value was observed that nobody wrote",
            Rule::LostUpdate => "two compare-and-sets succeeded from one value: an update was lost",
            Rule::BeforeItsCause => "a value was observed before it can have been there",
            Rule::Circle => "values depend on one another in a circle",
            Rule::TwoValues => "two values must have been there at the same time",
            Rule::Exhausted => "no order of these operations explains what they returned",
        })
    }
}
