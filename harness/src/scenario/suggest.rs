//! "Did you mean …?": the known name that is closest to a mistyped one.

/// The closest of `candidates` to `typed`, if it is close enough to be what was meant.
pub(super) fn closest<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let wanted = typed.to_lowercase();
    // A third of the letters may be wrong; more than that is a different word, not a slip.
    let limit = (wanted.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// [`closest`] as the text of a hint.
pub(super) fn did_you_mean<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    closest(typed, candidates).map(|name| format!("did you mean `{name}`?"))
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours
/// count one each. (Damerau 1964, in the restricted form that edits no substring twice.)
fn edit_distance(a: &str, b: &str) -> usize {
    // A name this long is no slip of the keys, and the table below is quadratic.
    const LONGEST: usize = 80;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(edit_distance("ttl", "ttl"), 0);
        assert_eq!(edit_distance("ttl", "tll"), 1);
        assert_eq!(edit_distance("clinets", "clients"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_only_what_is_close() {
        assert_eq!(
            closest("lost_write", ["lost_writes", "terms"]),
            Some("lost_writes")
        );
        assert_eq!(closest("Clients", ["client", "clients"]), Some("clients"));
        assert_eq!(closest("fence", ["clients", "locks"]), None);
        assert_eq!(closest("", ["locks"]), None);
    }
}
