//! The shapes of partitions: which directed links are cut. Pure.

use crate::Roster;

/// A directed link, as (sender, receiver).
pub(super) type Link = (String, String);

/// In which directions a link is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Both.
    Both,
    /// What the target sends.
    Out,
    /// What the target receives.
    In,
}

impl Way {
    /// As scenario files write them.
    pub(super) const NAMES: &'static [&'static str] = &["both", "out", "in"];

    /// The direction of that name; both without one.
    pub(super) fn find(name: Option<&str>) -> Self {
        match name {
            Some("out") => Self::Out,
            Some("in") => Self::In,
            _ => Self::Both,
        }
    }

    /// For receipts.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Both => "both ways",
            Self::Out => "in what it sends",
            Self::In => "in what it receives",
        }
    }
}

/// Links between a group and others. Who is on both sides is not cut from itself.
pub(super) fn between(group: &[String], others: &[String], way: Way) -> Vec<Link> {
    let mut links = Vec::new();
    for inside in group {
        for outside in others.iter().filter(|outside| !group.contains(outside)) {
            if way != Way::In {
                links.push((inside.clone(), outside.clone()));
            }
            if way != Way::Out {
                links.push((outside.clone(), inside.clone()));
            }
        }
    }
    links
}

/// The nodes in an order that `pick` decides: a rotation, seen from the anchor, and every second time
/// backwards.
fn around(roster: &Roster, anchor: &str, pick: u64) -> Vec<String> {
    let mut others: Vec<String> = roster
        .nodes
        .iter()
        .filter(|node| *node != anchor)
        .cloned()
        .collect();
    if !others.is_empty() {
        let by = usize::try_from(pick % others.len() as u64).unwrap_or(0);
        others.rotate_left(by);
        if (pick / others.len() as u64) % 2 == 1 {
            others.reverse();
        }
    }
    others
}

/// Two groups of nodes that do not hear each other; the anchor is in the first, which has `small` nodes.
pub(super) fn split(roster: &Roster, anchor: &str, small: usize, way: Way, pick: u64) -> Vec<Link> {
    let others = around(roster, anchor, pick);
    let mut group = vec![anchor.to_owned()];
    group.extend(others.iter().take(small.saturating_sub(1)).cloned());
    between(&group, &others, way)
}

/// Size of the smaller half of `nodes`, or the larger one if `pick` says so.
pub(super) fn half(nodes: usize, pick: u64) -> usize {
    let larger = usize::from((pick >> 16) % 2 == 1) * (nodes % 2);
    nodes / 2 + larger
}

/// The largest group of `nodes` that is no majority.
pub(super) fn minority(nodes: usize) -> usize {
    nodes.saturating_sub(1) / 2
}

/// Every node hears a majority, itself included, and no two hear the same one: Jepsen's
/// `majorities-ring` (jepsen.nemesis). With 3 nodes it is one-way: each hears one of its neighbours only.
pub(super) fn ring(roster: &Roster, anchor: &str, pick: u64) -> Vec<Link> {
    let mut nodes = vec![anchor.to_owned()];
    nodes.extend(around(roster, anchor, pick));
    let count = nodes.len();
    let majority = count / 2 + 1;
    let mut links = Vec::new();
    for start in 0..count {
        let window: Vec<usize> = (start..start + majority).map(|at| at % count).collect();
        let hearer = window[majority / 2];
        for silent in (0..count).filter(|node| !window.contains(node)) {
            links.push((nodes[silent].clone(), nodes[hearer].clone()));
        }
    }
    links
}

/// The anchor hears everyone; the others are in two halves that do not hear each other.
pub(super) fn bridge(roster: &Roster, anchor: &str, pick: u64) -> Vec<Link> {
    let others = around(roster, anchor, pick);
    let (left, right) = others.split_at(others.len() / 2);
    between(left, right, Way::Both)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn roster(nodes: usize) -> Roster {
        Roster {
            nodes: (1..=nodes).map(|number| format!("n{number}")).collect(),
            clients: Vec::new(),
        }
    }

    /// The nodes that one hears, itself included.
    fn heard<'a>(roster: &'a Roster, links: &[Link], hearer: &str) -> BTreeSet<&'a str> {
        let is_cut = |node: &String| links.contains(&(node.clone(), hearer.to_owned()));
        let heard = roster.nodes.iter().filter(|node| !is_cut(node));
        heard.map(String::as_str).collect()
    }

    proptest! {
        #[test]
        fn in_a_ring_everyone_hears_another_majority(half in 1_usize..5, anchor in 0_usize..9, pick: u64) {
            let roster = roster(2 * half + 1);
            let anchor = roster.nodes[anchor % roster.nodes.len()].clone();
            let links = ring(&roster, &anchor, pick);
            let majorities: Vec<_> = roster.nodes.iter().map(|node| heard(&roster, &links, node)).collect();
            for (node, majority) in roster.nodes.iter().zip(&majorities) {
                prop_assert_eq!(majority.len(), half + 1);
                prop_assert!(majority.contains(node.as_str()));
            }
            let different: BTreeSet<_> = majorities.iter().collect();
            prop_assert_eq!(different.len(), roster.nodes.len());
        }

        #[test]
        fn a_split_has_two_groups_that_hear_nothing_of_each_other(nodes in 2_usize..10, pick: u64) {
            let roster = roster(nodes);
            for small in [half(nodes, pick), minority(nodes).max(1)] {
                let links = split(&roster, "n1", small, Way::Both, pick);
                let group = heard(&roster, &links, "n1");
                prop_assert_eq!(group.len(), small);
                for node in &roster.nodes {
                    let hears = heard(&roster, &links, node);
                    let is_inside = group.contains(node.as_str());
                    prop_assert_eq!(hears.len(), if is_inside { small } else { nodes - small });
                    prop_assert_eq!(hears.is_disjoint(&group), !is_inside);
                }
                let one_way = split(&roster, "n1", small, Way::Out, pick);
                prop_assert_eq!(one_way.len() * 2, links.len());
                prop_assert!(one_way.iter().all(|(from, _)| group.contains(from.as_str())));
            }
        }

        #[test]
        fn over_a_bridge_everyone_hears_the_anchor_and_half_of_the_rest(nodes in 3_usize..10, pick: u64) {
            let roster = roster(nodes);
            let links = bridge(&roster, "n2", pick);
            prop_assert_eq!(heard(&roster, &links, "n2").len(), nodes);
            for node in roster.nodes.iter().filter(|node| *node != "n2") {
                let hears = heard(&roster, &links, node);
                prop_assert!(hears.contains("n2") && hears.len() < nodes);
            }
        }

        #[test]
        fn no_link_is_cut_twice_or_to_itself(nodes in 3_usize..10, pick: u64) {
            let roster = roster(nodes);
            for links in [
                ring(&roster, "n1", pick),
                bridge(&roster, "n1", pick),
                split(&roster, "n1", half(nodes, pick), Way::Both, pick),
            ] {
                prop_assert!(links.iter().all(|(from, to)| from != to));
                prop_assert_eq!(links.iter().collect::<BTreeSet<_>>().len(), links.len());
            }
        }
    }

    #[test]
    fn the_pick_decides_who_is_with_the_anchor() {
        let roster = roster(5);
        let groups: BTreeSet<_> = (0..8)
            .map(|pick| heard(&roster, &split(&roster, "n1", 2, Way::Both, pick), "n1"))
            .collect();
        assert_eq!(groups.len(), 4);
    }
}
