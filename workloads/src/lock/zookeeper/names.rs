//! How the nodes of a queue are called, and who comes before whom. It talks to nobody.

/// Ways to call the nodes; the server appends ten digits to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeNames {
    /// `lock-`, as the recipe.
    Recipe,
    /// `x-SESSION-`, as WriteLock of `zookeeper-recipes-lock`.
    Session,
    /// `_c_ID-lock-`, as Curator in its protected mode: a node is found again by its id when the answer to
    /// its creation was lost.
    Curator,
}

impl NodeNames {
    /// What a name begins with; `turn` differs for each acquire of a session.
    pub(super) fn stem(self, session: i64, turn: u64) -> String {
        match self {
            NodeNames::Recipe => "lock-".to_owned(),
            NodeNames::Session => format!("x-{session:x}-"),
            // Curator draws a random UUID; a session and a number tell nodes apart as well.
            NodeNames::Curator => format!("_c_{session:016x}-{turn:016x}-lock-"),
        }
    }

    /// Whether a node of the own stem is the own node.
    pub(super) fn finds_again(self) -> bool {
        self == NodeNames::Curator
    }
}

/// Who comes first in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ordering {
    /// The lowest sequence number.
    Sequence,
    /// The lowest stem as a text, then the lowest number: WriteLock's `ZNodeName.compareTo` before
    /// ZOOKEEPER-2931.
    SessionFirst,
}

impl Ordering {
    /// The queue, from the holder on. What is no sequential node is not in it.
    pub(super) fn sort(self, names: Vec<String>) -> Vec<String> {
        let mut queue: Vec<(String, i64)> = names
            .into_iter()
            .filter_map(|name| {
                let number = name.rsplit_once('-')?.1.parse().ok()?;
                Some((name, number))
            })
            .collect();
        queue.sort_by(|(one, first), (other, second)| match self {
            Ordering::Sequence => first.cmp(second),
            Ordering::SessionFirst => stem_of(one).cmp(stem_of(other)).then(first.cmp(second)),
        });
        queue.into_iter().map(|(name, _)| name).collect()
    }
}

fn stem_of(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_session_goes_past_a_lower_number_only_in_the_old_ordering() {
        let names = || {
            ["x-300-0000000001", "x-100-0000000002", "other"]
                .map(str::to_owned)
                .to_vec()
        };
        assert_eq!(
            Ordering::Sequence.sort(names()),
            ["x-300-0000000001", "x-100-0000000002"]
        );
        assert_eq!(
            Ordering::SessionFirst.sort(names()),
            ["x-100-0000000002", "x-300-0000000001"]
        );
    }

    #[test]
    fn stems_differ_by_what_they_say() {
        assert_eq!(NodeNames::Recipe.stem(255, 1), "lock-");
        assert_eq!(NodeNames::Session.stem(255, 1), "x-ff-");
        let curator = |turn| NodeNames::Curator.stem(255, turn);
        assert!(curator(1) != curator(2) && curator(1).starts_with("_c_00000000000000ff-"));
    }
}
