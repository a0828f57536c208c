//! Targets as scenario files write them: the words for suggestions, and the numbers of named hosts.
//!
//! The types themselves are the nemesis's; whether a named host exists only a scenario can know.

use nemesis::Target;

pub(super) const SYNTAX: &str = "holder, waiter, client, clients, leader, follower, one, all, minority, majority, node:n1 … or client:c1 …";

/// Reads `holder`, `node:n1`, `client:c1` …; a name must be one that a host can have.
pub(super) fn parse(text: &str) -> Option<Target> {
    let target: Target = text.parse().ok()?;
    let named = matches!(target, Target::Node(_) | Target::ClientHost(_));
    (!named || host_number(&target).is_some()).then_some(target)
}

/// The words that stand for a target, for suggestions.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    nemesis::target::ALL_FORMS
        .iter()
        .copied()
        .filter(|form| !form.contains(':'))
}

/// The number of the named host, from 1.
pub(super) fn host_number(target: &Target) -> Option<u32> {
    match target {
        Target::Node(name) => number(name, 'n').or_else(|| number(name, 's')),
        Target::ClientHost(name) => number(name, 'c'),
        _ => None,
    }
}

/// Whether a target names a helper host, `s1` and up.
pub(super) fn is_helper(target: &Target) -> bool {
    matches!(target, Target::Node(name) if name.starts_with('s'))
}

/// `n3` is 3. Leading zeros, signs and 0 are no host names.
fn number(name: &str, prefix: char) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_print_and_read_back() {
        for text in words().chain(["node:n1", "node:n12", "node:s2", "client:c3"]) {
            assert_eq!(parse(text).expect(text).to_string(), text);
        }
        for wrong in [
            "",
            "nobody",
            "node",
            "node:",
            "node:c1",
            "node:n0",
            "node:n01",
            "node:n+1",
            "client:n1",
            "link:a",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
