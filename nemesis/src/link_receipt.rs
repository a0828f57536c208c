//! The receipt of a fault on links: what was measured, whether that proves it, and the words.
//!
//! Nothing is measured in this file.

use std::fmt;

use crate::mechanism::switch::{Effect, RuleCounters};
use crate::receipt::{count, ms};

/// What was measured of a fault on links. Truth times throughout.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkReceipt {
    /// What was done to whom.
    pub(crate) what: String,
    pub(crate) effect: Effect,
    /// How long it was to last, if that was said.
    pub(crate) asked_ns: Option<u64>,
    /// Just before the network was asked.
    pub(crate) requested_ns: u64,
    /// From here on every frame was subject to it.
    pub(crate) since_ns: u64,
    /// Just before the network was asked to lift it.
    pub(crate) lifted_ns: u64,
    /// From here on no frame was subject to it.
    pub(crate) gone_ns: u64,
    pub(crate) counters: RuleCounters,
}

impl LinkReceipt {
    /// True when every effect struck at least one frame and it lasted long enough.
    pub(crate) fn proven(&self) -> bool {
        self.unproven().is_empty() && self.long_enough()
    }

    /// The effects that were asked for, each with the frames that it struck.
    fn struck(&self) -> Vec<(&'static str, u64)> {
        let (effect, counters) = (&self.effect, &self.counters);
        let all = [
            ("cut", effect.cut, counters.cut + counters.cut_under_way),
            ("delayed", effect.delay_ns > 0, counters.delayed),
            ("lost", effect.loss > 0.0, counters.lost),
            ("doubled", effect.duplicate > 0.0, counters.duplicated),
            ("let past others", effect.reorder > 0.0, counters.reordered),
            ("corrupted", effect.corrupt > 0.0, counters.corrupted),
            (
                "throttled",
                effect.bytes_per_s.is_some(),
                counters.delayed + counters.overflowed,
            ),
        ];
        let asked = all.into_iter().filter(|(_, asked, _)| *asked);
        asked.map(|(name, _, frames)| (name, frames)).collect()
    }

    /// The effects that struck nothing.
    fn unproven(&self) -> Vec<&'static str> {
        let struck = self.struck();
        let none = struck.iter().filter(|(_, frames)| *frames == 0);
        none.map(|(name, _)| *name).collect()
    }

    fn length_ns(&self) -> u64 {
        self.lifted_ns.saturating_sub(self.since_ns)
    }

    fn long_enough(&self) -> bool {
        let asked_ns = self.asked_ns.unwrap_or(0);
        u128::from(self.length_ns()) * 10 >= u128::from(asked_ns) * 9
    }
}

/// Most links that a receipt lists.
const LISTED: usize = 6;

impl fmt::Display for LinkReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        write!(
            f,
            "{}, within {:.2} ms, for {:.2} ms",
            self.what,
            ms(self.since_ns.saturating_sub(self.requested_ns)),
            ms(self.length_ns()),
        )?;
        if let Some(asked_ns) = self.asked_ns {
            write!(f, " of {:.2} ms asked", ms(asked_ns))?;
        }
        let seen = usize::try_from(counters.seen).unwrap_or(usize::MAX);
        write!(f, "; of {}", count(seen, "frame", "frames"))?;
        for (index, (name, frames)) in self.struck().into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator} {frames} {name}")?;
        }
        if counters.overflowed > 0 {
            write!(f, ", {} lost from a full buffer", counters.overflowed)?;
        }
        if counters.cut_under_way > 0 {
            write!(f, " ({} under way)", counters.cut_under_way)?;
        }
        self.write_links(f)?;
        if counters.lateness.count() > 0 {
            write!(
                f,
                "; sent on late by {:.3} ms (p50), {:.3} ms (p99), {:.3} ms (most)",
                ms(counters.lateness.percentile_ns(0.5)),
                ms(counters.lateness.percentile_ns(0.99)),
                ms(counters.lateness.max_ns()),
            )?;
        }
        for effect in self.unproven() {
            write!(f, "; NOT PROVEN: no frame was {effect}")?;
        }
        if !self.long_enough() {
            f.write_str("; NOT PROVEN: shorter than nine tenths of what was asked")?;
        }
        let healed = ms(self.gone_ns.saturating_sub(self.lifted_ns));
        write!(f, "; whole again within {healed:.2} ms")
    }
}

impl LinkReceipt {
    /// The links on which most frames were struck.
    fn write_links(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut links: Vec<_> = self.counters.struck_by_link.iter().collect();
        links.sort_by_key(|(link, struck)| (std::cmp::Reverse(**struck), *link));
        for (index, ((from, to), struck)) in links.iter().take(LISTED).enumerate() {
            let separator = if index == 0 { " (" } else { ", " };
            write!(f, "{separator}{from}→{to} {struck}")?;
        }
        match links.len() {
            0 => Ok(()),
            listed @ 1..=LISTED => {
                debug_assert!(listed <= LISTED);
                f.write_str(")")
            }
            more => write!(f, " and {} more links)", more - LISTED),
        }
    }
}

/// An effect in words.
pub(crate) fn effect_words(effect: &Effect) -> String {
    let mut words = Vec::new();
    if effect.cut {
        words.push("cut".to_owned());
    }
    if effect.delay_ns > 0 {
        let jitter = match effect.jitter_ns {
            0 => String::new(),
            jitter_ns => format!(" ± {}", ms(jitter_ns)),
        };
        words.push(format!("{}{jitter} ms late", ms(effect.delay_ns)));
    }
    for (name, share) in [
        ("lost", effect.loss),
        ("doubled", effect.duplicate),
        ("let past others", effect.reorder),
        ("corrupted", effect.corrupt),
    ] {
        if share > 0.0 {
            words.push(format!("{} % {name}", share * 100.0));
        }
    }
    if let Some(bytes_per_s) = effect.bytes_per_s {
        words.push(format!("at most {bytes_per_s} B/s"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::switch::Lateness;

    fn receipt() -> LinkReceipt {
        let mut lateness = Lateness::default();
        lateness.add(40_000);
        LinkReceipt {
            what: "userspace switch: n1 cut off from everyone both ways".to_owned(),
            effect: Effect {
                cut: true,
                ..Effect::default()
            },
            asked_ns: Some(1_000_000_000),
            requested_ns: 0,
            since_ns: 100_000,
            lifted_ns: 1_000_200_000,
            gone_ns: 1_000_300_000,
            counters: RuleCounters {
                seen: 12,
                cut: 12,
                cut_under_way: 1,
                struck_by_link: [(("n1".to_owned(), "n2".to_owned()), 13)].into(),
                ..RuleCounters::default()
            },
        }
    }

    #[test]
    fn a_cut_that_dropped_frames_is_proven_and_says_so() {
        assert!(receipt().proven());
        assert_eq!(
            receipt().to_string(),
            "userspace switch: n1 cut off from everyone both ways, within 0.10 ms, for 1000.10 ms of \
             1000.00 ms asked; of 12 frames 13 cut (1 under way) (n1→n2 13); whole again within 0.10 ms"
        );
    }

    #[test]
    fn an_effect_that_struck_nothing_and_a_short_fault_are_not_proven() {
        let both = LinkReceipt {
            effect: Effect {
                delay_ns: 1,
                loss: 0.1,
                ..Effect::default()
            },
            counters: RuleCounters {
                seen: 5,
                delayed: 5,
                ..RuleCounters::default()
            },
            ..receipt()
        };
        assert!(!both.proven());
        assert!(both.to_string().contains("NOT PROVEN: no frame was lost"));
        let short = LinkReceipt {
            lifted_ns: 800_000_000,
            ..receipt()
        };
        assert!(!short.proven() && short.to_string().contains("nine tenths"));
    }
}
