//! Guessing which known word a mistyped one was meant to be. Pure text.

/// The word of `known` that `typed` was most likely meant to be, or `None` when nothing is near.
pub fn closest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = |word: &&&'a str| distance(typed, word);
    let best = known.iter().min_by_key(near)?;
    // A third of the letters wrong is a slip; more is another word.
    let allowed = typed.chars().count().max(best.chars().count()).div_ceil(3);
    (distance(typed, best) <= allowed).then_some(*best)
}

/// Edit distance with swaps of neighbours counted once (optimal string alignment, as in
/// Boytsov, "Indexing methods for approximate dictionary searching", 2011, section 2.2).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut table = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            if i == 0 || j == 0 {
                table[i][j] = i + j;
                continue;
            }
            let differs = usize::from(left[i - 1] != right[j - 1]);
            let mut least = (table[i - 1][j] + 1).min(table[i][j - 1] + 1);
            least = least.min(table[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                least = least.min(table[i - 2][j - 2] + 1);
            }
            table[i][j] = least;
        }
    }
    table[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["builtin", "etcd"];
        assert_eq!(closest("ectd", &known), Some("etcd"));
        assert_eq!(closest("etc", &known), Some("etcd"));
        assert_eq!(closest("build-in", &known), Some("builtin"));
        assert_eq!(closest("zookeeper", &known), None);
        assert_eq!(closest("etcd", &[]), None);
    }

    #[test]
    fn distances() {
        for (left, right, expected) in [("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 1)] {
            assert_eq!(distance(left, right), expected, "{left} {right}");
        }
    }
}
