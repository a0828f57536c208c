//! The fate of a frame on one directed link under one rule. Pure: time comes in, nothing is sent.
//!
//! Every frame that a rule is about uses exactly eight draws (one block of ChaCha8) of the link's own stream, whatever
//! happens to it. So the n-th frame of a link has the same fate whenever the fault has the same draw from
//! the seed, however the other links and faults fare. (Hosts do not send the same frames in each run.)

use crate::draw::Draws;

use super::rule::{Effect, LONGEST_QUEUE_NS};

/// One rule on one directed link.
pub(super) struct LinkRule {
    draws: Option<Draws>,
    /// When a link of limited rate has sent what it has.
    free_ns: u64,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// It does not arrive.
    Dropped(Cause),
    /// It arrives.
    Passes(Passage),
}

/// Why a frame does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The link is cut.
    Cut,
    /// It was drawn to be lost.
    Lost,
    /// The buffer of a link of limited rate is full.
    Overflow,
}

/// How a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Passage {
    /// How much later, in nanoseconds.
    pub(super) later_ns: u64,
    /// True when it arrives twice.
    pub(super) twice: bool,
    /// True when it was let past others.
    pub(super) reordered: bool,
    /// Where a bit is flipped, as a share of the frame from 0 to 1, and which.
    pub(super) flip: Option<(f64, u8)>,
}

impl LinkRule {
    /// A rule on the link between two ports.
    pub(super) fn new(effect: &Effect, draw: u64, from: u16, to: u16) -> Self {
        Self {
            draws: effect.draws().then(|| Draws::frames(draw, from, to)),
            free_ns: 0,
        }
    }

    /// Decides on the next frame, of `len` bytes, which is there at `now_ns`.
    pub(super) fn decide(
        &mut self,
        effect: &Effect,
        since_ns: u64,
        now_ns: u64,
        len: usize,
    ) -> Fate {
        if is_cut(effect, since_ns, now_ns) {
            return Fate::Dropped(Cause::Cut);
        }
        let [lost, twice, reorder, corrupt, place, bit, jitter, _spare] = match &mut self.draws {
            Some(draws) => std::array::from_fn(|_| draws.unit()),
            // Above every share: nothing that is left to chance happens.
            None => [1.0; 8],
        };
        if lost < effect.loss {
            return Fate::Dropped(Cause::Lost);
        }
        let Some(queued_ns) = self.queue(effect, now_ns, len) else {
            return Fate::Dropped(Cause::Overflow);
        };
        let reordered = reorder < effect.reorder;
        let delay_ns = match (reordered, effect.jitter_ns) {
            (true, _) => 0,
            (false, 0) => effect.delay_ns,
            (false, jitter_ns) => {
                let offset = (jitter * (2 * jitter_ns) as f64) as u64;
                (effect.delay_ns - jitter_ns).saturating_add(offset)
            }
        };
        Fate::Passes(Passage {
            later_ns: queued_ns.saturating_add(delay_ns),
            twice: twice < effect.duplicate,
            reordered,
            flip: (corrupt < effect.corrupt).then_some((place, (bit * 8.0) as u8)),
        })
    }

    /// How long the frame waits until the link has sent those before it and itself; `None` when there is
    /// no room for it.
    fn queue(&mut self, effect: &Effect, now_ns: u64, len: usize) -> Option<u64> {
        let Some(bytes_per_s) = effect.bytes_per_s else {
            return Some(0);
        };
        let start_ns = self.free_ns.max(now_ns);
        if start_ns - now_ns > LONGEST_QUEUE_NS {
            return None;
        }
        let takes_ns = (len as u64).saturating_mul(1_000_000_000) / bytes_per_s;
        self.free_ns = start_ns.saturating_add(takes_ns);
        Some(self.free_ns - now_ns)
    }
}

/// Whether a rule that is in force since `since_ns` cuts its links at this moment.
pub(super) fn is_cut(effect: &Effect, since_ns: u64, now_ns: u64) -> bool {
    let phase = |flap_ns: u64| now_ns.saturating_sub(since_ns) / flap_ns.max(1);
    effect.cut
        && effect
            .flap_ns
            .is_none_or(|flap_ns| phase(flap_ns).is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fates(effect: &Effect, draw: u64, link: (u16, u16), frames: usize) -> Vec<Fate> {
        let mut rule = LinkRule::new(effect, draw, link.0, link.1);
        let decide = |n| rule.decide(effect, 0, n as u64 * 1_000_000, 100);
        (0..frames).map(decide).collect()
    }

    fn any_effect() -> impl Strategy<Value = Effect> {
        let share = || prop_oneof![Just(0.0), 0.0..=1.0_f64];
        let times = (1_u64..1_000_000_000).prop_flat_map(|delay| (Just(delay), 0..=delay));
        (times, share(), share(), share(), share()).prop_map(
            |((delay_ns, jitter_ns), loss, duplicate, reorder, corrupt)| Effect {
                delay_ns,
                jitter_ns,
                loss,
                duplicate,
                reorder,
                corrupt,
                ..Effect::default()
            },
        )
    }

    proptest! {
        #[test]
        fn the_same_frames_have_the_same_fate(effect in any_effect(), draw: u64, from in 0_u16..9, to in 0_u16..9) {
            prop_assert_eq!(
                fates(&effect, draw, (from, to), 200),
                fates(&effect, draw, (from, to), 200)
            );
        }

        #[test]
        fn one_effect_does_not_change_the_draws_of_another(effect in any_effect(), draw: u64) {
            let lost = |fates: Vec<Fate>| -> Vec<bool> {
                fates.iter().map(|fate| *fate == Fate::Dropped(Cause::Lost)).collect()
            };
            let only_loss = Effect { loss: effect.loss, ..Effect::default() };
            prop_assume!(effect.loss > 0.0);
            prop_assert_eq!(
                lost(fates(&effect, draw, (0, 1), 200)),
                lost(fates(&only_loss, draw, (0, 1), 200))
            );
        }

        #[test]
        fn delays_stay_within_the_jitter(effect in any_effect(), draw: u64) {
            for fate in fates(&effect, draw, (0, 1), 200) {
                if let Fate::Passes(Passage { later_ns, reordered: false, .. }) = fate {
                    prop_assert!(later_ns >= effect.delay_ns - effect.jitter_ns);
                    prop_assert!(later_ns <= effect.delay_ns + effect.jitter_ns);
                }
            }
        }
    }

    #[test]
    fn shares_are_kept_and_links_differ() {
        let effect = Effect {
            loss: 0.2,
            duplicate: 0.5,
            ..Effect::default()
        };
        let one = fates(&effect, 7, (0, 1), 10_000);
        let lost = |fates: &[Fate]| {
            let lost = fates
                .iter()
                .filter(|fate| **fate == Fate::Dropped(Cause::Lost));
            lost.count()
        };
        let twice = one
            .iter()
            .filter(|fate| matches!(fate, Fate::Passes(passage) if passage.twice))
            .count();
        assert!((1850..2150).contains(&lost(&one)), "{}", lost(&one));
        assert!((3800..4200).contains(&twice), "{twice}");
        assert_ne!(one, fates(&effect, 7, (1, 0), 10_000));
        assert_ne!(one, fates(&effect, 8, (0, 1), 10_000));
    }

    #[test]
    fn the_fates_of_draw_42_are_what_they_always_were() {
        let effect = Effect {
            loss: 0.3,
            ..Effect::default()
        };
        let text: String = fates(&effect, 42, (0, 1), 32)
            .iter()
            .map(|fate| {
                if *fate == Fate::Dropped(Cause::Lost) {
                    'x'
                } else {
                    '.'
                }
            })
            .collect();
        assert_eq!(text, "x...x.xx..x.x....xx.........x...");
    }

    #[test]
    fn a_rate_spaces_frames_out_and_its_buffer_ends() {
        let effect = Effect {
            bytes_per_s: Some(1_000),
            ..Effect::default()
        };
        let mut rule = LinkRule::new(&effect, 0, 0, 1);
        let mut later = |now_ns| match rule.decide(&effect, 0, now_ns, 100) {
            Fate::Passes(passage) => Some(passage.later_ns),
            Fate::Dropped(_) => None,
        };
        let waits: Vec<Option<u64>> = (0..5).map(|_| later(0)).collect();
        let ms = |ms: u64| Some(ms * 1_000_000);
        assert_eq!(waits, [ms(100), ms(200), ms(300), None, None]);
        assert_eq!(later(300_000_000), ms(100));
    }

    #[test]
    fn a_flapping_link_is_cut_half_of_the_time() {
        let effect = Effect {
            cut: true,
            flap_ns: Some(10),
            ..Effect::default()
        };
        let cut: Vec<bool> = [5, 14, 15, 24, 25]
            .map(|now| is_cut(&effect, 5, now))
            .into();
        assert_eq!(cut, [true, true, false, false, true]);
    }
}
