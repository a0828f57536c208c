//! How an operation ended, as its client can know it.

use std::fmt;

/// Outcome of one request. What cannot be known to have failed is [`Reply::Info`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// It took effect.
    Ok(T),
    /// It definitely had no effect.
    Fail(Reason),
    /// It may have taken effect, or may still do so.
    Info(Reason),
}

impl<T> Reply<T> {
    /// Keeps the kind of outcome and changes the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reply<U> {
        match self {
            Reply::Ok(value) => Reply::Ok(change(value)),
            Reply::Fail(reason) => Reply::Fail(reason),
            Reply::Info(reason) => Reply::Info(reason),
        }
    }

    /// [`Reply::Fail`] with a reason.
    pub fn fail(code: &'static str, text: impl Into<String>) -> Self {
        Reply::Fail(Reason::new(code, text))
    }

    /// [`Reply::Info`] with a reason.
    pub fn info(code: &'static str, text: impl Into<String>) -> Self {
        Reply::Info(Reason::new(code, text))
    }

    /// The outcome of an operation that consisted of one request, which ended with an error.
    pub(crate) fn of_error(definite: bool, reason: Reason) -> Self {
        if definite {
            Reply::Fail(reason)
        } else {
            Reply::Info(reason)
        }
    }
}

/// Why an operation did not end well: a short stable code for counting, and the words of whoever refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable, lower case, hyphenated: `timeout`, `session-expired`, `stale-token` …
    pub code: &'static str,
    /// What exactly was said.
    pub text: String,
}

impl Reason {
    /// A reason from its code and the words behind it.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            out.write_str(self.code)
        } else {
            write!(out, "{}: {}", self.code, self.text)
        }
    }
}
